#!/usr/bin/env bash
# Builds the emulated Metal device: build.sh OUT. CXX is a clang that knows blocks and bfloat16.
# Several may run at once: one builds, the others find it done.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?build.sh OUT}
cxx=${CXX:-clang++-19}
mkdir -p "$out/objects"
exec 9>"$out/objects/.lock"
flock 9
flags=(-std=c++20 -O2 -g -Wall -Wextra -Wno-unused-parameter -fPIC -fno-strict-aliasing -fno-plt
  -I "$here/stubs" "-DMSLEMU_DEFAULT_HOME=\"$here\"")
build() { "$cxx" "${flags[@]}" -c "$1" -o "$out/objects/$(basename "$1" .cc).o"; }
stale=()
for source in "$here"/emu/*.cc; do
  object=$out/objects/$(basename "$source" .cc).o
  if [ ! -e "$object" ] || [ -n "$(find "$here/emu" "$here/shim" -name '*.h' -newer "$object" -print -quit)" ] ||
    [ "$source" -nt "$object" ]; then stale+=("$source"); fi
done
# A library that a process has loaded is not written again for nothing.
library=$out/libmetalemu.so
[ ${#stale[@]} = 0 ] && [ -e "$library" ] && [ -z "$(find "$out/objects" -name '*.o' -newer "$library" -print -quit)" ] && exit
running=()
for source in "${stale[@]}"; do
  build "$source" &
  running+=($!)
  if [ ${#running[@]} -ge "${JOBS:-2}" ]; then wait "${running[0]}"; running=("${running[@]:1}"); fi
done
for pid in "${running[@]}"; do wait "$pid"; done
"$cxx" -shared "$out"/objects/*.o -o "$out/objects/new.so" -Wl,-soname,libmetalemu.so \
  -lBlocksRuntime -ldl -lpthread
mv "$out/objects/new.so" "$library"
