#!/usr/bin/env bash
# The CUDA backend on the stand-in of the driver (tests/cuda): builds build/cuda beside the package, then runs pytest
# with its arguments on that build (default: the executor and the operators). Of the CPU's kernel tables it has base and
# avx2. Expects tools/setup.sh to have run; needs clang 19 and libblocksruntime-dev, no GPU and no toolkit.
#   tools/cuda.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/cuda
python=$PWD/.venv/bin/python
cmake=.venv/bin/cmake
[ -f $build/build.ninja ] || PATH="$PWD/.venv/bin:$PATH" $cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DACCEL_CUDA=ON -DACCEL_ISAS="${ACCEL_ISAS:-avx2}" -DPython_EXECUTABLE="$python" \
  ${NVRTC_DIR:+-DNVRTC_DIR="$NVRTC_DIR"} ${ACCEL_WERROR:+-DACCEL_WERROR=ON} \
  -Dpybind11_DIR="$($python -m pybind11 --cmakedir)" >/dev/null
$cmake --build $build --target _core py_links
PYTHON=$python tests/cuda/build.sh $build
export PYTHONPATH=$PWD/$build/py HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1
export ACCEL_TEST_DEVICE=cuda LD_LIBRARY_PATH=$PWD/$build/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MSLEMU_PYTHON=$python
[ $# -gt 0 ] || set -- -m "not slow and not peers" tests/cuda tests/ops
exec "$python" -m pytest -q "$@"
