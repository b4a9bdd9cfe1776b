#!/usr/bin/env bash
# Sets everything up and runs every test: C++, C++ under the sanitizers, Python, lint, examples.
#
#   CUDAFORGE_USE_CURRENT_ENV=1  use the current python3 and system, install nothing (see examples/environment.sh). Lint and
#                                the sanitizer build run only where their tools are.
#   CUDAFORGE_REQUIRE_GPU=1      fail when a GPU test was skipped.
# Arguments go to pytest.
export CUDAFORGE_BUILD_TESTS=ON
source "$(dirname "${BASH_SOURCE[0]}")/../examples/environment.sh"
BUILD="${CUDAFORGE_BUILD_DIR:-$ROOT/build/cmake}"
JOBS=$(nproc)
LINT=(tests/lint)
if [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" = 1 ]; then
  if ! [ -x "$(dirname "$PYTHON")/clang-tidy" ]; then
    say "lint is left out: its tools (tests/requirements.txt) are not in this environment"
    LINT=()
  fi
elif ! cmp -s tests/requirements.txt .venv/test-requirements.txt; then
  say "installing the test tools"
  "$PYTHON" -m pip install -q -r tests/requirements.txt || fail "pip could not install tests/requirements.txt"
  cp tests/requirements.txt .venv/test-requirements.txt
fi

# The core finds NVRTC and the CUDA headers in torch's own packages, then in a toolkit.
CUDAFORGE_CUDA_PATH=$("$PYTHON" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1] / "nvidia" / "cu13")')
export CUDAFORGE_CUDA_PATH
LOGS="$BUILD/test-logs"
mkdir -p "$LOGS"

say "C++ tests"
(cd "$BUILD" && ctest --output-on-failure -j "$JOBS" 2>&1 | tee "$LOGS/ctest.log" | grep -vE '^ *[0-9]+/[0-9]+ Test.*Passed|^ +Start ') ||
  fail "C++ tests failed; see $LOGS/ctest.log"

if [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" != 1 ]; then
  say "C++ tests of the torch-free parts under AddressSanitizer and UndefinedBehaviorSanitizer"
  cmake -S . -B build/sanitize -G Ninja -DCUDAFORGE_WITH_TORCH=OFF -DCUDAFORGE_SANITIZE=ON -DCUDAFORGE_WERROR=OFF >"$LOGS/sanitize.log" 2>&1 &&
    cmake --build build/sanitize --parallel "$JOBS" >>"$LOGS/sanitize.log" 2>&1 || { tail -30 "$LOGS/sanitize.log"; fail "the sanitizer build failed"; }
  (cd build/sanitize && ctest --output-on-failure -j "$JOBS" 2>&1 | tee "$LOGS/sanitize-ctest.log" | tail -8) ||
    fail "tests failed under the sanitizers; see $LOGS/sanitize-ctest.log"
fi

say "Python tests${LINT:+ and lint}"
"$PYTHON" -m pytest tests/python "${LINT[@]}" "$@"

SKIPPED=$(grep -cE 'Gpu.*Skipped' "$LOGS/ctest.log" || true)
say "C++ tests skipped for want of a GPU: $SKIPPED (Python: see pytest's line above)"
if [ "${CUDAFORGE_REQUIRE_GPU:-0}" = 1 ] && [ "$SKIPPED" -ne 0 ]; then
  fail "CUDAFORGE_REQUIRE_GPU=1 and GPU tests were skipped"
fi
