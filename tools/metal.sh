#!/usr/bin/env bash
# The Metal backend on the emulator of tests/metal: builds the module once more beside the package's own, of the same
# objects, then runs pytest with its arguments on it (default: the executor, the operators, the gate and conformance, on
# both families). Expects tools/setup.sh with llm and test, and tools/build.sh, to have run. clang 19 and
# libblocksruntime-dev are installed by apt where they are missing. On a Mac the package itself has the backend:
# specs/016-metal.md has the command.
#   tools/metal.sh [pytest arguments]
#   tools/metal.sh --setup              only what apt installs
#   tools/metal.sh --whole              the real checkpoint with all layers, and every barrier of the shaders
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=build/py
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-2}

fail() { printf 'metal: %s\n' "$*" >&2; exit 1; }

. tools/clang.sh
blocks() { echo 'int main() {}' | "${CXX:-c++}" -x c++ - -lBlocksRuntime -o /dev/null 2>/dev/null; }
install_packages() {
  [ -n "$clang" ] && blocks && return
  local as=() version=19
  [ "$(id -u)" = 0 ] || as=(sudo -n)
  command -v apt-get >/dev/null || fail "clang 19 and BlocksRuntime are missing, and without apt-get they are yours to install"
  [ ${#as[@]} = 0 ] || "${as[@]}" true 2>/dev/null ||
    fail "clang 19 and BlocksRuntime are missing; as root: apt-get install clang-19 libblocksruntime-dev"
  export DEBIAN_FRONTEND=noninteractive
  "${as[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update >/dev/null ||
    fail "apt-get update failed; clang 19 and BlocksRuntime are missing"
  # A system whose archive has left 19 behind has a later one.
  for version in 19 20 21; do
    [ -z "$(apt-cache -q search --names-only "^clang-$version\$")" ] || break
  done
  [ -z "$clang" ] || version=${clang#clang++-}
  echo "metal: installing clang-$version and libblocksruntime-dev"
  "${as[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends "clang-$version" libblocksruntime-dev \
    >/dev/null || fail "apt-get does not install clang-$version and libblocksruntime-dev; the suite of Metal needs both"
  . tools/clang.sh
}

install_packages
[ "${1:-}" != --setup ] || exit 0
python=$root/.venv/bin/python
[ -x "$python" ] || fail ".venv is missing: tools/setup.sh llm,test model"
[ -f $build/build.ninja ] || fail "$build is missing: tools/build.sh"
headers=${METAL_CPP_DIR:-build/metal_headers/metal_cpp}
[ -f "$headers/Metal/Metal.hpp" ] || $python tools/metal_headers.py build/metal_headers
PATH="$root/.venv/bin:$PATH" cmake -S . -B $build -DACCEL_METAL_BESIDE=ON -DMETAL_CPP_DIR="$(cd "$headers" && pwd)" >/dev/null
.venv/bin/cmake --build $build --target _core_metal py_links_metal

# An environment that sees the packages of .venv and this module in the place of the installed one.
venv=$build/metal/venv
if [ ! -x $venv/bin/python ] || [ "$(cat $venv/.root 2>/dev/null)" != "$root" ]; then
  rm -rf $venv
  $python -m venv --without-pip $venv
  site=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  packages=$($python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$root/$build/metal/py" "$packages" >"$site/accel_metal.pth"
  printf '%s' "$root" >$venv/.root
fi
export METALEMU_BUILD=$root/$build HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 ACCEL_TEST_METAL=1
suite() { # DEVICES, then pytest arguments
  local devices=$1
  shift
  env ACCEL_TEST_DEVICE="$devices" $venv/bin/python -m pytest -q "$@"
}
fast="not slow and not peers"
if [ "${1:-}" = --whole ]; then
  export ACCEL_TEST_SLOW=1
  suite metal --timeout 1800 -m slow tests/metal
elif [ $# -gt 0 ]; then
  suite "${ACCEL_TEST_DEVICE:-metal}" "$@"
else
  # The executor's tests count live objects and submit from many threads: in their own process, a file on one worker.
  suite metal -n "$jobs" --dist loadfile -m "$fast" tests/metal
  suite metal,metal_plain -n "$jobs" --dist worksteal -m "$fast and device" tests/ops tests/conformance tests/test_gate.py \
    tests/test_check_data.py
fi
