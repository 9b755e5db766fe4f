"""`python -m services.solver`: the same as `envwheel run solver`."""

import sys

from services.kernel.launch import run_service
from services.solver.main import serve

if __name__ == "__main__":
    sys.exit(run_service("solver", serve))
