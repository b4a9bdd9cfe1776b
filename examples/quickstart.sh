#!/usr/bin/env bash
# Sets everything up, then compiles three models with CudaForge, in inference and in training, and runs them again from the
# cache in a second process. Options are passed on: see examples/quickstart.py --help.
export QUICKSTART_FROM="${QUICKSTART_FROM:-$PWD}" # environment.sh leaves it; the files that options name are seen from there
cd "$QUICKSTART_FROM" || exit
case " $* " in
*" -h "* | *" --help "*) # said without setting anything up
  exec python3 "$(dirname "${BASH_SOURCE[0]}")/arguments.py" --help
  ;;
esac
if command -v python3 >/dev/null; then # a wrong option is reported before anything is installed
  python3 "$(dirname "${BASH_SOURCE[0]}")/arguments.py" "$@" || exit
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$QUICKSTART_FROM" || exit
unset CUDAFORGE_ON_MISS # it is about what is made by default
exec "$PYTHON" "$ROOT/examples/quickstart.py" "$@"
