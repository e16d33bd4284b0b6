#!/usr/bin/env bash
# On a Mac with Xcode: every shader through Apple's compiler ahead of time, each into a library of its own below build/shaders, as
# the executor makes one of each text. All are tried; the exit status says whether one was refused. Warnings are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/shaders
rm -rf $out
python3 tools/embed_shaders.py --texts $out
refused=0
for text in "$out"/*.metal; do
  name=${text%.metal}
  if xcrun -sdk macosx metal -x metal -std=metal3.1 -mmacosx-version-min=14.0 -Wall -Wextra -fno-fast-math -c "$text" -o "$name.air" &&
    xcrun -sdk macosx metallib "$name.air" -o "$name.metallib"; then
    echo "$text: ok"
  else
    echo "$text: refused" >&2
    refused=$((refused + 1))
  fi
done
[ $refused = 0 ] || { echo "shaders: $refused refused" >&2; exit 1; }
