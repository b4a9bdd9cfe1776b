# shellcheck shell=bash
# Sourced by examples/quickstart.sh and tests/run.sh: installs what is missing, builds, and sets PYTHON.
#
#   --torch RELEASE              build for this release of PyTorch, in an environment of its own, build/torch-RELEASE. Else for
#                                the one in .venv, which at first is 2.11.0.
#   CUDAFORGE_USE_CURRENT_ENV=1  use the current python3 and system as they are, install nothing. Libraries are then found
#                                through CMAKE_PREFIX_PATH and LD_LIBRARY_PATH.
#   CUDAFORGE_BUILD_TESTS=ON     build the C++ tests too.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SCRIPT=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
cd "$ROOT"
mkdir -p build

say() {
  if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi
}
fail() {
  printf 'cudaforge: %s\n' "$*" >&2
  exit 1
}

# doing LOG: the last line of LOG, or a bar if that line has "[3/10]".
doing() {
  local line bar=########################
  line=$(tail -c 2000 "$1" | tr '\r' '\n' | grep -av '^ *$' | tail -n 1 | tr -cd '[:print:]') || true
  if [[ $line =~ \[([0-9]+)/([0-9]+)\] ]]; then
    printf '[%-24s] %d of %d' "${bar:0:24*BASH_REMATCH[1]/BASH_REMATCH[2]}" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
  else
    printf '%s' "${line:0:60}"
  fi
}

# busy WHAT LOG COMMAND...: runs the command with its output in LOG. Shows how far it is: at a terminal in one line that changes,
# otherwise every 20 seconds. Then says how long it took, or shows the end of LOG if it failed.
busy() {
  local what=$1 log=$2 begin=$SECONDS spoke=$SECONDS status=0 watch every=20 start='' end=$'\n'
  shift 2
  if [ -t 1 ]; then every=1 start=$'\r\033[K' end=''; fi
  : >"$log"
  # It polls, so that it neither outlives this script nor keeps a pipe open for long when that is interrupted.
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    if [ $((SECONDS - spoke)) -ge "$every" ]; then
      printf '%s   %s, %d s: %s%s' "$start" "$what" $((SECONDS - begin)) "$(doing "$log")" "$end"
      spoke=$SECONDS
    fi
  done &
  watch=$!
  "$@" >>"$log" 2>&1 || status=$?
  kill "$watch" 2>/dev/null || true
  wait "$watch" 2>/dev/null || true
  if [ "$status" -ne 0 ]; then
    printf '%s' "$start"
    tail -40 "$log" >&2
  else
    printf '%s   %s took %d s\n' "$start" "$what" $((SECONDS - begin))
  fi
  return "$status"
}

# One run in a checkout at a time: two would install into one .venv and build in one folder, and disturb each other's timings.
# -o: children do not inherit the lock, so what a run leaves behind cannot hold it.
if [ "${CUDAFORGE_LOCKED:-}" != "$ROOT" ]; then
  flock -n build/.lock true || say "waiting for another run in $ROOT to end"
  CUDAFORGE_LOCKED="$ROOT" exec flock -o build/.lock bash "$SCRIPT" "$@"
fi
unset CUDAFORGE_LOCKED # meant for this script alone

TORCH=
ARGUMENTS=() # the others
while [ $# -gt 0 ]; do
  case "$1" in
  --torch)
    TORCH=${2:-nothing}
    [ $# -lt 2 ] || shift
    ;;
  --torch=*) TORCH=${1#--torch=} ;;
  *) ARGUMENTS+=("$1") ;;
  esac
  shift
done
set -- "${ARGUMENTS[@]}"
VENV="$ROOT/.venv"
BUILD="${CUDAFORGE_BUILD_DIR:-$ROOT/build/cmake}"
if [ -n "$TORCH" ]; then
  [[ $TORCH =~ ^[0-9]+(\.[0-9]+)+$ ]] || fail "--torch takes a release such as 2.15.0, not $TORCH"
  [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" != 1 ] || fail "--torch makes an environment of its own: unset CUDAFORGE_USE_CURRENT_ENV"
  VENV="$ROOT/build/torch-$TORCH/venv"
  BUILD="$ROOT/build/torch-$TORCH/cmake"
fi

# Debian and Ubuntu packages: the compiler, the build tools, and the libraries that the core links or opens.
PACKAGES=(g++ cmake ninja-build ccache libcurl4-openssl-dev librocksdb-dev nlohmann-json3-dev libsodium-dev libxxhash-dev
  libkainjow-mustache-dev)
if [ "${CUDAFORGE_BUILD_TESTS:-OFF}" = ON ]; then PACKAGES+=(libgtest-dev rocksdb-tools locales); fi

install_packages() {
  local missing=() package sudo=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  command -v apt-get >/dev/null || fail "no apt-get here; install by hand what Debian calls: ${missing[*]}"
  say "installing system packages: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
    sudo true || fail "sudo did not accept you; run as root: apt-get install ${missing[*]}" # before a progress line hides its question
  fi
  busy "reading the list of packages" build/apt.log "${sudo[@]}" apt-get update ||
    fail "apt-get update failed; is the network there?"
  busy "installing packages" build/apt.log "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
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
  local base name
  if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
    command -v python3 >/dev/null || install_packages python3 # small images have none
    base=$(choose_python)
    # Debian splits these two out of its own interpreter.
    if [ "$("$base" -c 'import sys; print(sys.prefix)')" = /usr ]; then
      name=$("$base" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
      install_packages "$name-venv" "$name-dev"
    fi
    say "creating ${VENV#"$ROOT"/} with $base"
    "$base" -m venv --clear "$VENV" || fail "could not create $VENV with $base"
  fi
  PYTHON="$VENV/bin/python"
  local release=${TORCH:-2.11.0}
  if ! "$PYTHON" -c "import torch, numpy, setuptools, wheel; assert torch.__version__.split('+')[0] == '$TORCH' or not '$TORCH'" 2>/dev/null; then
    say "installing torch $release into ${VENV#"$ROOT"/} with pip (about 4.7 GB, one to three minutes)"
    busy "installing torch" build/pip.log "$PYTHON" -m pip install "torch==$release" numpy setuptools wheel ||
      fail "pip could not install torch==$release (see above); is the package index reachable and 10 GB of disk free?"
  fi
  # The package itself is installed with --no-deps.
  busy "installing click and rich" build/pip.log "$PYTHON" -m pip install "click>=8.4" "rich>=14" ||
    fail "pip could not install click and rich (see above)"
}

# build COMMAND...: runs it with its output in build/build.log.
build() {
  # A warning is an error with Debian 12's compiler, which CI uses; another one's warnings break nobody's build. The same for
  # quickstart and tests, so that the second one finds everything compiled.
  if [ "$("${CXX:-g++}" -dumpversion 2>/dev/null || true)" = 12 ]; then export CUDAFORGE_WERROR="${CUDAFORGE_WERROR:-ON}"; fi
  export CUDAFORGE_BUILD_TESTS="${CUDAFORGE_BUILD_TESTS:-OFF}"
  say "building, with the output in build/build.log (on 2 cores each kind of build takes minutes the first time, then seconds)"
  busy building build/build.log "$@" || fail "the build failed; all of its output is in build/build.log"
}

if [ "${CUDAFORGE_USE_CURRENT_ENV:-0}" = 1 ]; then
  PYTHON=$(command -v python3) || fail "CUDAFORGE_USE_CURRENT_ENV=1, but there is no python3 on PATH"
  "$PYTHON" -c 'import torch, click, rich' || fail "CUDAFORGE_USE_CURRENT_ENV=1, but $PYTHON cannot import torch, click and rich"
  say "using $PYTHON as it is"
  build "$PYTHON" setup.py -q build_ext --inplace egg_info
else
  install_packages "${PACKAGES[@]}"
  make_venv
  if [ -z "$TORCH" ]; then
    build "$PYTHON" -m pip install -v --no-build-isolation --no-deps -e .
  else # a copy of the package: the source folder holds the C++ part for the torch of .venv
    printf '[build]\nbuild_base = %s\n' "$ROOT/build/torch-$TORCH/python" >"$ROOT/build/torch-$TORCH/setuptools.cfg"
    rm -rf "$ROOT/build/torch-$TORCH/python"
    CUDAFORGE_BUILD_DIR="$BUILD" DIST_EXTRA_CONFIG="$ROOT/build/torch-$TORCH/setuptools.cfg" \
      build "$PYTHON" -m pip install -v --no-build-isolation --no-deps .
  fi
fi
if [ -z "$TORCH" ]; then export PYTHONPATH="$ROOT/python${PYTHONPATH:+:$PYTHONPATH}"; fi
# shellcheck disable=SC2034  # for tests/run.sh
PACKAGE=$("$PYTHON" -c 'import importlib.util as i; print(i.find_spec("cudaforge_backend").submodule_search_locations[0])')
