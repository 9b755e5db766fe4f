"""`python -m services.proposer`: the same as `envwheel run proposer`."""

import sys

from services.kernel.launch import run_service
from services.proposer.main import serve

if __name__ == "__main__":
    sys.exit(run_service("proposer", serve))
