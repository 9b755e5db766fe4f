"""`python -m services.solver ...` is `envwheel run solver ...`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "services.cli", "run", "solver", *sys.argv[1:]])  # noqa: S606 - ourselves
