# Sourced by tools/metal.sh and tools/cuda.sh: `clang` is the compiler that the emulators and what they run are built with, empty
# where there is none.
clang=
for version in 19 20 21; do
  if command -v "clang++-$version" >/dev/null; then clang=clang++-$version && break; fi
done
export MSLEMU_CXX=$clang MSLC_CLANG=$clang
