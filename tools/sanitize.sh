#!/usr/bin/env bash
# Builds the C++ tests under a sanitizer and runs them; address and undefined also run a Python subset.
#   tools/sanitize.sh address,undefined | undefined | thread [whole]
# Without whole: of the kernel tables base and the best of this machine, for thread the C++ tests that start threads. With
# it: all tables and tests, address and undefined run the whole fast Python suite, and thread the Python tests of threads.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
scope=${2:-}
build=build/${kind//,/-}
python=$PWD/.venv/bin/python
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1

isas=""
# Races are between threads, not between tables: one beside base is enough for them.
if [ "$kind" = thread ]; then isas=avx2
elif [ "$scope" != whole ]; then isas=$("$python" -c 'import accel; print(accel.open_cpu().info.isa)'); fi
.venv/bin/cmake -S . -B "$build" -G Ninja -DACCEL_ISAS="$isas" -DCMAKE_MAKE_PROGRAM="$PWD/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DACCEL_SANITIZE="$kind" -DACCEL_TESTS=ON -DACCEL_PYTHON=ON -DPython_EXECUTABLE="$python" \
  -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" >/dev/null
ctest() { .venv/bin/ctest --test-dir "$build" --no-tests=error --output-on-failure --timeout 900 -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" "$@"; }
if [ "$kind" = thread ] && [ "$scope" != whole ]; then
  threaded=$(grep -lw -e threads -e thread cpp/tests/test_*.cc | sed 's:.*/::; s:\.cc$::')
  # shellcheck disable=SC2086  # names of targets
  .venv/bin/cmake --build "$build" --target $threaded
  # Of the products one test starts threads, and the others take minutes.
  "$build/test_products" chunks_run_at_the_same_time
  ctest -R "^($(echo $threaded | tr ' ' '|'))\$" -E '^test_products$'
  exit 0
fi
.venv/bin/cmake --build "$build" --target cpp_tests
ctest

.venv/bin/cmake --build "$build" --target _core py_links
# The interpreter is not instrumented, so the runtime is loaded ahead of it and its own leaks are not ours. -S keeps
# the editable install of .venv out of the way of the instrumented module.
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
case $kind in
  *address*) runtime="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)" ;;
  thread) runtime=$("$compiler" -print-file-name=libtsan.so) ;;
  *) runtime="" ;;
esac
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 TSAN_OPTIONS=$TSAN_OPTIONS:ignore_noninstrumented_modules=1
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
suite() {
  env ACCEL_SANITIZED="$kind" LD_PRELOAD="$runtime" PYTHONPATH="$PWD/$build/py:$site" \
    "$python" -S -m pytest -q -p no:cacheprovider --timeout 900 "$@"
}
if [ "$kind" = thread ]; then
  suite -m "threads and not slow" tests
  exit
fi
fast="not slow and not peers and not rules"
if [ "$scope" != whole ]; then
  # The edges where memory changes hands: buffers, arrays, bindings, threads, corrupt files, views, pages, experts.
  suite -m "$fast" tests/test_api_*.py tests/test_host_arrays.py tests/test_threads.py tests/test_gguf.py \
    tests/test_safetensors.py tests/test_pack.py tests/test_check_data.py tests/ops/test_views.py tests/ops/test_more.py \
    tests/conformance/test_moe.py tests/conformance/test_linear_attention.py tests/conformance/test_attention_forms.py
  exit
fi
suite -m "$fast" tests/ops tests/fuzz & # both cores
first=$!
trap 'kill "$first" 2>/dev/null || true' EXIT
suite -m "$fast" --ignore tests/ops --ignore tests/fuzz tests
wait "$first"
