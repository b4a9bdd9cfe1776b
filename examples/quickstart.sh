#!/usr/bin/env bash
# Sets everything up, then compiles three models with CudaForge, in inference and in training, and runs them again from the
# cache in a second process. Options are passed on: see examples/quickstart.py --help.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$PYTHON" examples/quickstart.py "$@"
