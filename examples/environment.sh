# Sourced by examples/quickstart.sh and tests/run.sh: installs what is missing, builds, and sets PYTHON.
#
#   CUDAFORGE_USE_CURRENT_ENV=1  use the current python3 and system as they are, install nothing. Libraries are then found
#                                through CMAKE_PREFIX_PATH and LD_LIBRARY_PATH.
#   CUDAFORGE_BUILD_TESTS=ON     build the C++ tests too.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() {
  printf 'cudaforge: %s\n' "$*" >&2
  exit 1
}

# Debian and Ubuntu packages: the compiler, the build tools, and the libraries that the core links.
PACKAGES="g++ cmake ninja-build ccache librocksdb-dev nlohmann-json3-dev libsodium-dev"
[ "${CUDAFORGE_BUILD_TESTS:-OFF}" = ON ] && PACKAGES="$PACKAGES libgtest-dev clang-format-14 clang-tidy-14"

install_packages() {
  local missing=() package sudo=""
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing system packages: ${missing[*]}"
  command -v apt-get >/dev/null || fail "apt-get is not here; install by hand: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; run as root: apt-get install ${missing[*]}"
    sudo="sudo"
  fi
  $sudo apt-get update -qq || fail "apt-get update failed; is the network there?"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || fail "apt-get could not install: ${missing[*]}"
}

choose_python() {
  local candidate
  for candidate in python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "Python 3.11 or 3.12 is needed; found $(python3 --version 2>&1 || echo none)"
}

make_venv() {
  local base
  if [ ! -x .venv/bin/python ]; then
    base=$(choose_python)
    # Debian splits these two out of its own interpreter.
    if [ "$("$base" -c 'import sys; print(sys.prefix)')" = /usr ]; then
      install_packages python3-venv python3-dev
    fi
    say "creating .venv with $base"
    "$base" -m venv .venv || fail "could not create .venv with $base"
  fi
  PYTHON="$ROOT/.venv/bin/python"
  if ! "$PYTHON" -c 'import torch, numpy; assert torch.__version__.startswith("2.11.0")' 2>/dev/null; then
    say "installing torch 2.11.0 (about 4.7 GB, one to three minutes)"
    "$PYTHON" -m pip install -q "torch==2.11.0" numpy setuptools wheel ||
      fail "pip could not install torch==2.11.0; is the package index reachable and 6 GB of disk free?"
  fi
}

if [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" = 1 ]; then
  PYTHON=$(command -v python3) || fail "CUDAFORGE_USE_CURRENT_ENV=1, but there is no python3 on PATH"
  "$PYTHON" -c 'import torch' || fail "CUDAFORGE_USE_CURRENT_ENV=1, but $PYTHON cannot import torch"
  say "using $PYTHON as it is"
  export CUDAFORGE_BUILD_TESTS="${CUDAFORGE_BUILD_TESTS:-OFF}"
  "$PYTHON" setup.py -q build_ext --inplace egg_info >build.log 2>&1 || { tail -40 build.log >&2; fail "the build failed; see build.log"; }
else
  # shellcheck disable=SC2086
  install_packages $PACKAGES
  make_venv
  export CUDAFORGE_BUILD_TESTS="${CUDAFORGE_BUILD_TESTS:-OFF}"
  say "building (first time: some minutes on 2 cores; later: seconds)"
  "$PYTHON" -m pip install -q --no-build-isolation --no-deps -e . >build.log 2>&1 || { tail -40 build.log >&2; fail "the build failed; see build.log"; }
fi
export PYTHONPATH="$ROOT/python${PYTHONPATH:+:$PYTHONPATH}"
