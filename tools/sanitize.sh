#!/usr/bin/env bash
# Builds the C++ tests under a sanitizer and runs them; address and undefined also run a Python subset.
#   tools/sanitize.sh address,undefined | undefined | thread
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
build=build/${kind//,/-}
python=$PWD/.venv/bin/python
with_python=ON
[ "$kind" = thread ] && with_python=OFF
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1

.venv/bin/cmake -S . -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DACCEL_SANITIZE="$kind" -DACCEL_TESTS=ON -DACCEL_PYTHON=$with_python -DPython_EXECUTABLE="$python" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" >/dev/null
.venv/bin/cmake --build "$build" --target cpp_tests
.venv/bin/ctest --test-dir "$build" --output-on-failure --timeout 900 -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
[ $with_python = ON ] || exit 0

.venv/bin/cmake --build "$build" --target _core py_links
# The interpreter is not instrumented, so the runtime is loaded ahead of it and its own leaks are not ours. -S keeps
# the editable install of .venv out of the way of the instrumented module.
runtime=""
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
case $kind in
  *address*) runtime="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)" ;;
esac
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
# The edges where memory changes hands: buffers, arrays, bindings, threads, corrupt files, views.
subset=(tests/test_api_*.py tests/test_host_arrays.py tests/test_threads.py tests/test_gguf.py tests/ops/test_views.py)
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
env LD_PRELOAD="$runtime" PYTHONPATH="$PWD/$build/py:$site" "$python" -S -m pytest -q -m "not slow and not peers" -p no:cacheprovider "${subset[@]}"
