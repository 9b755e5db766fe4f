"""`python -m services.validator`: the same as `envwheel run validator`."""

import sys

from services.kernel.launch import run_service
from services.validator.main import serve

if __name__ == "__main__":
    sys.exit(run_service("validator", serve))
