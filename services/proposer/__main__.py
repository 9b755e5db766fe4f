"""`python -m services.proposer ...` is `envwheel run proposer ...`."""

import os
import sys

if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "services.cli", "run", "proposer", *sys.argv[1:]])  # noqa: S606 - ourselves
