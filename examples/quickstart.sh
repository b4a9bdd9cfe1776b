#!/usr/bin/env bash
# Sets everything up, then compiles three models with CudaForge, in inference and in training, and runs them again from the
# cache in a second process. Options are passed on: see examples/quickstart.py --help.
case " $* " in
*" -h "* | *" --help "*) # said without setting anything up
  exec python3 "$(dirname "${BASH_SOURCE[0]}")/arguments.py" --help
  ;;
esac
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$PYTHON" examples/quickstart.py "$@"
