"""`python -m services.trainer ...` is `envwheel run trainer ...`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "services.cli", "run", "trainer", *sys.argv[1:]])  # noqa: S606 - ourselves
