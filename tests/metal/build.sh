#!/usr/bin/env bash
# Builds the emulated Metal device: build.sh OUT. CXX is a clang that knows blocks and bfloat16.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?build.sh OUT}
cxx=${CXX:-clang++-19}
mkdir -p "$out/objects"
flags=(-std=c++20 -O2 -g -Wall -Wextra -Wno-unused-parameter -fPIC -fno-strict-aliasing -fno-plt
  -I "$here/stubs" "-DMSLEMU_DEFAULT_HOME=\"$here\"")
build() { "$cxx" "${flags[@]}" -c "$1" -o "$out/objects/$(basename "$1" .cc).o"; }
stale=()
for source in "$here"/emu/*.cc; do
  object=$out/objects/$(basename "$source" .cc).o
  if [ ! -e "$object" ] || [ -n "$(find "$here/emu" "$here/shim" -name '*.h' -newer "$object" -print -quit)" ] ||
    [ "$source" -nt "$object" ]; then stale+=("$source"); fi
done
running=()
for source in "${stale[@]}"; do
  build "$source" &
  running+=($!)
  if [ ${#running[@]} -ge "${JOBS:-2}" ]; then wait "${running[0]}"; running=("${running[@]:1}"); fi
done
for pid in "${running[@]}"; do wait "$pid"; done
"$cxx" -shared "$out"/objects/*.o -o "$out/libmetalemu.so" -Wl,-soname,libmetalemu.so \
  -lBlocksRuntime -ldl -lpthread
