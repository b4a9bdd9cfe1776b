#!/usr/bin/env bash
# Proves hostile kernels and honest controls as a user's program would, and compares the verdicts with those expected.
#
#   bash tests/adversarial/run.sh [--target cpu|cuda] [--seeds N] [--json FILE] [--only NAME] [--jobs N] [--compile] [--folder DIR]
#
# --target cpu   the device (cpu)                --only NAME   cases with this in their name, or of this class
# --seeds 1      how many secret seeds           --jobs N      regions at a time (cpu: one a processor; cuda: 1)
# --json FILE    what became of each, as JSON    --compile     compile the texts only; needs no GPU
# --folder DIR   other cases, of the same form
#
# Status: 0 when all is as expected, 1 after a false accept or a false refusal, 2 when it could not run.
# Needs a build (tests/run.sh, or python setup.py build_ext --inplace with CUDAFORGE_BUILD_TESTS=ON).
set -euo pipefail
case " $* " in
*" -h "* | *" --help "*)
  sed -n '2,/^# Needs/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
  ;;
esac
FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$FOLDER/../.." && pwd)
BUILD=${CUDAFORGE_BUILD_DIR:-$ROOT/build/cmake}
PYTHON=$ROOT/.venv/bin/python
if ! [ -x "$PYTHON" ]; then PYTHON=python3; fi
if ! [ -x "$BUILD/adversarial" ]; then
  echo "adversarial: $BUILD/adversarial is not built; run bash tests/run.sh, or build with CUDAFORGE_BUILD_TESTS=ON" >&2
  exit 2
fi
if [ -z "${CUDAFORGE_CUDA_PATH:-}" ]; then
  CUDAFORGE_CUDA_PATH=$("$PYTHON" -c 'import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1] / "nvidia" / "cu13")' 2>/dev/null) || true
  export CUDAFORGE_CUDA_PATH
fi
JOBS=$(nproc)
case " $* " in *" cuda "* | *"--target=cuda"*) JOBS=1 ;; esac

# Libraries that the compiler made before are kept, as in tests/run.sh.
KEPT=$BUILD/kept/$({ g++ -v 2>&1 && grep -m1 ^flags /proc/cpuinfo && cat "$BUILD/built_for_torch.txt"; } | sha256sum | cut -c1-16)
mkdir -p "$KEPT"
for NAME in g++ c++; do ln -sf "$ROOT/tests/kept_libraries.sh" "$KEPT/$NAME"; done
export PATH="$KEPT:$PATH"
exec "$BUILD/adversarial" --folder "$FOLDER" --programs "$BUILD" --jobs "$JOBS" "$@"
