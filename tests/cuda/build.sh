#!/usr/bin/env bash
# Builds the stand-in of NVIDIA's driver: build.sh OUT gives OUT/cuda/libcuda.so.1, which runs kernels on the emulator of
# tests/metal (OUT/libmetalemu.so). CXX is a clang that knows blocks and bfloat16.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "${1:?build.sh OUT}/cuda" && cd "$1" && pwd)
cxx=${CXX:-clang++-19}
CXX=$cxx "$here/../metal/build.sh" "$out"
"${PYTHON:-python3}" "$here/../../tools/embed_shaders.py" --out "$out/cuda/shaders.new" --cxx "$cxx"
cmp -s "$out/cuda/shaders.new" "$out/cuda/shaders.inc" || mv "$out/cuda/shaders.new" "$out/cuda/shaders.inc"
library=$out/cuda/libcuda.so.1
if [ -e "$library" ] && [ -z "$(find "$here/fake" "$out/cuda/shaders.inc" "$here/../../cpp/backends/cuda/api.h" \
  "$here/../metal/emu" -newer "$library" \( -name '*.cc' -o -name '*.h' -o -name '*.inc' \) -print -quit)" ]; then exit; fi
flags=(-std=c++20 -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-gnu-zero-variadic-macro-arguments -fPIC
  -I "$here/../metal/stubs" -I "$out/cuda")
running=()
for source in "$here"/fake/*.cc; do
  "$cxx" "${flags[@]}" -c "$source" -o "$out/cuda/$(basename "$source" .cc).o" &
  running+=($!)
done
for pid in "${running[@]}"; do wait "$pid"; done
"$cxx" -shared "$out"/cuda/*.o -o "$library" -Wl,-soname,libcuda.so.1 -L "$out" -lmetalemu -Wl,-rpath,'$ORIGIN/..' -lpthread
