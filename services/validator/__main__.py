"""`python -m services.validator ...` is `envwheel run validator ...`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "services.cli", "run", "validator", *sys.argv[1:]])  # noqa: S606 - ourselves
