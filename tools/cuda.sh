#!/usr/bin/env bash
# The CUDA backend on the stand-in of the driver (tests/cuda), which runs the kernels on the emulator of tests/metal.
# Expects tools/setup.sh llm,test model and tools/build.sh to have run; no GPU and no toolkit. What is missing of clang 19
# and libblocksruntime-dev is installed by apt (tools/metal.sh --setup).
#   tools/cuda.sh                      kernels, executor, steps, conformance and the gate
#   tools/cuda.sh --whole              the operators too
#   tools/cuda.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=build/py
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
python=$root/.venv/bin/python

fail() { printf 'cuda: %s\n' "$*" >&2; exit 1; }

[ -x "$python" ] || fail ".venv is missing: tools/setup.sh llm,test model"
[ -f $build/build.ninja ] || fail "$build is missing: tools/build.sh"
tools/metal.sh --setup
. tools/clang.sh
CXX=$clang PYTHON=$python tests/cuda/build.sh $build
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 METALEMU_BUILD=$root/$build MSLEMU_PYTHON=$python ACCEL_TEST_CUDA=1
standin=(env ACCEL_TEST_DEVICE=cuda LD_LIBRARY_PATH="$root/$build/cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
suite() { "${standin[@]}" "$python" -m pytest -q "$@"; }
# NVRTC looks for a driver as well, and calls what the stand-in has not.
compiles=(tests/cuda/test_cuda_kernels.py tests/cuda/test_cuda_build.py)
fast="not slow and not peers"
if [ "${1:-}" = --whole ]; then
  suite -n "$jobs" --dist worksteal -m "$fast and device" tests/ops tests/test_check_data.py tests/test_models.py
elif [ $# -gt 0 ]; then
  suite "$@"
else
  # The executor's tests count live objects and calls: a file on one worker.
  "$python" -m pytest -q -n "$jobs" --dist loadfile -m "$fast" "${compiles[@]}"
  suite -n "$jobs" --dist loadfile -m "$fast" tests/cuda "${compiles[@]/#/--ignore=}"
  suite -n "$jobs" --dist worksteal -m "$fast and device" tests/conformance tests/test_gate.py
fi
