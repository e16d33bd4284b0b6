#!/usr/bin/env bash
# The Metal backend on the emulator of tests/metal: builds build/metal beside the package, then runs pytest with its
# arguments on that build (default: the executor and the operators). Of the CPU's kernel tables it has base and avx2.
# Expects tools/setup.sh to have run; needs clang 19 and libblocksruntime-dev. On a Mac the package itself has the
# backend: specs/016-metal.md has the command.
#   tools/metal.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/metal
python=$PWD/.venv/bin/python
cmake=.venv/bin/cmake
headers=${METAL_CPP_DIR:-build/metal_headers/metal_cpp}
[ -f "$headers/Metal/Metal.hpp" ] || $python tools/metal_headers.py build/metal_headers
[ -f $build/build.ninja ] || PATH="$PWD/.venv/bin:$PATH" $cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DACCEL_METAL_EMULATOR=ON -DACCEL_ISAS="${ACCEL_ISAS:-avx2}" -DMETAL_CPP_DIR="$(cd "$headers" && pwd)" -DPython_EXECUTABLE="$python" \
  ${ACCEL_WERROR:+-DACCEL_WERROR=ON} -Dpybind11_DIR="$($python -m pybind11 --cmakedir)" >/dev/null
$cmake --build $build --target _core py_links
export PYTHONPATH=$PWD/$build/py HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
export ACCEL_TEST_DEVICE=${ACCEL_TEST_DEVICE:-metal}
[ $# -gt 0 ] || set -- -m "not slow and not peers" tests/metal tests/ops
exec "$python" -m pytest -q "$@"
