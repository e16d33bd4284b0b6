#!/usr/bin/env bash
# The whole library without Python, with the Metal backend, compiled and linked for macOS on Linux: one shared object a
# machine, in build/macho-<machine>. Nothing of it is run or shipped: it shows that no unit needs what macOS lacks. The
# compiler, its headers and Apple's C library come with the package ziglang, the rest of the system from
# tests/metal/stubs_darwin. Of the CPU's kernel tables there are base, and avx2 or neon, or those of ACCEL_ISAS.
# Expects tools/setup.sh to have run.
#   tools/macho.sh [arm64|x86_64 ...]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
os=${MACOSX_DEPLOYMENT_TARGET:-14.0}
zig=$root/build/macho/zig/ziglang/zig
stubs=$root/tests/metal/stubs_darwin
export PATH="$root/.venv/bin:$PATH"
export ZIG_GLOBAL_CACHE_DIR=$root/build/macho/cache ZIG_LOCAL_CACHE_DIR=$root/build/macho/cache
unset MACOSX_DEPLOYMENT_TARGET

[ -x "$zig" ] || python -m pip --disable-pip-version-check -qq install --retries 5 --no-deps --upgrade \
  --target build/macho/zig ziglang==0.17.1
headers=${METAL_CPP_DIR:-build/metal_headers/metal_cpp}
[ -f "$headers/Metal/Metal.hpp" ] || python tools/metal_headers.py build/metal_headers
headers=$(cd "$headers" && pwd)

# CMake wants programs of one word. The last word of the optimizer is 1: nobody runs the code, and that saves half of the time.
programs() { # FOLDER TARGET
  mkdir -p "$1"
  printf '#!/bin/sh\nexec "%s" c++ -target %s -isystem "%s" "$@" -O1 -fno-sanitize=undefined\n' "$zig" "$2" "$stubs" >"$1/cxx"
  printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$zig" >"$1/ar"
  printf '#!/bin/sh\nexec "%s" ranlib "$@"\n' "$zig" >"$1/ranlib"
  chmod +x "$1/cxx" "$1/ar" "$1/ranlib"
}

compile() { # FOLDER MACHINE
  # The compiler makes no program while CMake looks around: that would need the frameworks.
  [ -f "$1/build.ninja" ] || cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DACCEL_PYTHON=OFF \
    -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR="$2" -DCMAKE_OSX_SYSROOT= -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY \
    -DCMAKE_CXX_COMPILER="$root/$1/cxx" -DCMAKE_AR="$root/$1/ar" -DCMAKE_RANLIB="$root/$1/ranlib" \
    -DCMAKE_CXX_COMPILER_LAUNCHER= -DCCACHE= -DPython_EXECUTABLE="$(command -v python)" -DMETAL_CPP_DIR="$headers" \
    -DACCEL_METAL=ON -DACCEL_ISAS="${ACCEL_ISAS:-avx2|neon}" ${ACCEL_WERROR:+-DACCEL_WERROR=ON} >"$1/configure.log" 2>&1 ||
    { cat "$1/configure.log" >&2; exit 1; }
  cmake --build "$1" --target accel_runtime accel_oracle
}

# Every object of the tree, and nothing dropped for want of a caller: a symbol that nobody defines is an error wherever it
# is used. That it is one is looked at too, by a link without one unit.
link() { # FOLDER OUTPUT, then objects
  "$1/cxx" -shared -Wl,--no-gc-sections -o "$2" "${@:3}" -F "$stubs/frameworks" -L "$stubs/lib" \
    -framework Foundation -framework Metal -lobjc
}
link_all() { # FOLDER
  local objects without
  mapfile -t objects < <(find "$1/CMakeFiles" -name '*.o' | sort)
  mapfile -t without < <(printf '%s\n' "${objects[@]}" | grep -v '/exec/memory\.cc\.o$')
  link "$1" "$1/libaccel.dylib" "${objects[@]}"
  if link "$1" "$1/without.dylib" "${without[@]}" 2>"$1/without.log"; then
    echo "macho: a link without cpp/exec/memory.cc must fail and does not" >&2
    exit 1
  fi
  grep -q 'undefined symbol' "$1/without.log" || { cat "$1/without.log" >&2; exit 1; }
  printf '%s: %d objects\n' "$1/libaccel.dylib" ${#objects[@]}
}

[ $# -gt 0 ] || set -- arm64 x86_64
for machine in "$@"; do
  folder=build/macho-$machine
  case $machine in
    arm64) target=aarch64-macos.$os ;;
    x86_64) target=x86_64-macos.$os ;;
    *) echo "macho: the machine is $machine and must be arm64 or x86_64" >&2; exit 2 ;;
  esac
  programs "$folder" "$target"
  compile "$folder" "$machine"
  link_all "$folder"
  python tools/macho.py "$folder/libaccel.dylib" --machine "$machine" --system "$os" --needs Metal Foundation libobjc
done
