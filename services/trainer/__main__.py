"""`python -m services.trainer`: the same as `envwheel run trainer`."""

import sys

from services.kernel.launch import run_service
from services.trainer.main import serve

if __name__ == "__main__":
    sys.exit(run_service("trainer", serve))
