"""`python -m cudaforge_backend` is the `cudaforge` command."""

import sys

from .cli import main

sys.exit(main())
