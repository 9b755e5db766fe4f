"""`python -m services.observer ...` is `envwheel run observer ...`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "services.cli", "run", "observer", *sys.argv[1:]])  # noqa: S606
