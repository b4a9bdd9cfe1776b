#!/usr/bin/env bash
# Sets everything up and runs every test: C++, C++ under the sanitizers, Python, lint, examples.
#
#   bash tests/run.sh [--torch RELEASE] [--all] [PYTEST ARGUMENTS]
#
# --torch: builds for that release of PyTorch, in an environment of its own, and runs what depends on the release: C++ and Python.
# Without it: for the release in .venv, which at first is 2.11.0.
# A stage that passed is not run again while all that it depends on is the same (see tests/stage.py); --all runs it again.
# With arguments for pytest, pytest always runs.
#
#   CUDAFORGE_USE_CURRENT_ENV=1  use the current python3 and system, install nothing (see examples/environment.sh). The
#                                sanitizer build is left out, and so are the lint tools that are not there.
#   CUDAFORGE_REQUIRE_GPU=1      fail when a GPU test was skipped.
case " $* " in
*" -h "* | *" --help "*) # said without setting anything up
  sed -n '2,/^#   CUDAFORGE_REQUIRE_GPU/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
  ;;
esac
export CUDAFORGE_BUILD_TESTS=ON
source "$(dirname "${BASH_SOURCE[0]}")/../examples/environment.sh"
JOBS=$(nproc)
START=$(date +%s)
ALL=()
if [ "${1:-}" = --all ]; then
  ALL=(--all)
  shift
fi
SANITIZE=1
LINT=(tests/lint)
CPP=()
if [ -n "$TORCH" ]; then
  SANITIZE=0
  LINT=()
  CPP=(-R '_aten_test|target_test|generators_test|adversarial_control') # what uses PyTorch, or compiles with the CUDA it brings
  export GTEST_FILTER='-*Host.*:EmitCpu.*' # of the generators' tests: what the system's compiler makes
fi
if [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" = 1 ]; then
  SANITIZE=0
  if ! [ -x "$(dirname "$PYTHON")/clang-tidy" ]; then
    say "of lint, clang-tidy, ruff and mypy are left out: they (tests/requirements.txt) are not in this environment"
    LINT=(tests/lint --ignore=tests/lint/test_tools.py)
  fi
elif ! cmp -s tests/requirements.txt "$VENV/test-requirements.txt"; then
  busy "installing the test tools" build/pip.log "$PYTHON" -m pip install -r tests/requirements.txt ||
    fail "pip could not install tests/requirements.txt (see above)"
  cp tests/requirements.txt "$VENV/test-requirements.txt"
fi

# The core finds NVRTC and the CUDA headers in torch's own packages, then in a toolkit.
if [ -z "${CUDAFORGE_CUDA_PATH:-}" ]; then
  CUDAFORGE_CUDA_PATH=$("$PYTHON" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1] / "nvidia" / "cu13")')
  export CUDAFORGE_CUDA_PATH
fi

# Tests have the compiler make a thousand small libraries. What it made before is kept for a week, in a folder for each compiler,
# processor and torch.
KEPT="$BUILD/kept/$({ g++ -v 2>&1 && grep -m1 ^flags /proc/cpuinfo && cat "$BUILD/built_for_torch.txt"; } | sha256sum | cut -c1-16)"
mkdir -p "$KEPT"
for NAME in g++ c++; do ln -sf "$ROOT/tests/kept_libraries.sh" "$KEPT/$NAME"; done
find "$BUILD/kept" -type f -mtime +7 -delete
WITH_KEPT=(env PATH="$KEPT:$PATH")

# run_ctest NAME FOLDER: runs the tests of a build folder; reports go to FOLDER/test-reports (see CMakeLists.txt).
run_ctest() {
  local programs=()
  for program in "$2"/cudaforge-worker "$2"/cudaforge-verifier "$2"/adversarial; do
    if [ -e "$program" ]; then programs+=("$program"); fi
  done
  "$PYTHON" tests/stage.py "${ALL[@]}" "$1" "$2/passed/ctest" "$2/test-reports/*_test_*.xml" \
    "$2"/*_test "${programs[@]}" "$2/CTestTestfile.cmake" \
    tests/adversarial tests/cpp/generators/cuda_shim.h cache/packs tests/kept_libraries.sh -- \
    "${WITH_KEPT[@]}" ctest --test-dir "$2" --output-on-failure -j "$JOBS" "${CPP[@]}" ||
    fail "C++ tests failed; all they wrote is in $2/Testing/Temporary/LastTest.log"
}

say "C++ tests"
run_ctest "C++ tests" "$BUILD"

if [ "$SANITIZE" = 1 ]; then
  say "C++ tests of the parts that hold memory, files and processes under AddressSanitizer and UndefinedBehaviorSanitizer"
  build cmake -S . -B build/sanitize -G Ninja -DCUDAFORGE_WITH_TORCH=OFF -DCUDAFORGE_SANITIZE=address
  build cmake --build build/sanitize --parallel "$JOBS"
  run_ctest "C++ tests under sanitizers" build/sanitize

  say "C++ tests of what threads share under ThreadSanitizer"
  build cmake -S . -B build/threads -G Ninja -DCUDAFORGE_WITH_TORCH=OFF -DCUDAFORGE_SANITIZE=thread
  build cmake --build build/threads --parallel "$JOBS" --target base_test cache_test target_test
  if build/threads/base_test --gtest_list_tests > /dev/null 2>&1; then
    run_ctest "C++ tests under ThreadSanitizer" build/threads
  else
    say "left out: ThreadSanitizer does not start here (kernels whose vm.mmap_rnd_bits is above 28 need a newer compiler)"
  fi
fi

say "Python tests and lint"
STATUS=0
PATHS=(tests/python "${LINT[@]}")
for ARGUMENT in "$@"; do # files that are named are run instead
  if [ -e "${ARGUMENT%%::*}" ]; then PATHS=(); fi
done
PYTEST=("${WITH_KEPT[@]}" "$PYTHON" -m pytest "${PATHS[@]}" --junit-xml="$BUILD/test-reports/pytest.xml")
if "$PYTHON" -c 'import xdist' 2>/dev/null; then # the files of tests shared out among processes
  PYTEST+=(--dist loadfile -n "$((JOBS < 8 ? JOBS : 8))")
fi
if [ $# -gt 0 ]; then
  "${PYTEST[@]}" "$@" || STATUS=$?
else
  "$PYTHON" tests/stage.py "${ALL[@]}" "Python tests and lint" "$BUILD/passed/pytest" "$BUILD/test-reports/pytest.xml" \
    . "$PACKAGE"/_C*.so "$PACKAGE"/bin/* "$BUILD/compile_commands.json" -- \
    "${PYTEST[@]}" || STATUS=$?
fi

say "summary (torch $("$PYTHON" -c 'import torch; print(torch.__version__)'), ${SECONDS} s)"
"$PYTHON" tests/summary.py "$BUILD" "$START" || STATUS=1
exit "$STATUS"
