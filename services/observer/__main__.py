"""`python -m services.observer`: the same as `envwheel run observer`."""

import sys

from services.kernel.launch import run_service
from services.observer.main import serve

if __name__ == "__main__":
    sys.exit(run_service("observer", serve))
