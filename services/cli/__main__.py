"""`python -m services.cli`: the same as `envwheel`."""

import sys

from services.cli import main

sys.exit(main())
