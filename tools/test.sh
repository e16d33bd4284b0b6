#!/usr/bin/env bash
# The fast suite: C++ tests, then pytest. Expects tools/setup.sh and tools/build.sh to have run.
#   tools/test.sh [pytest arguments]    the suite of `make test`
#   tools/test.sh --isa NAME            the same Python tests with another CPU kernel table
#   tools/test.sh --release             what only a release needs
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/py
python=.venv/bin/python
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1

case ${1:-} in
  --isa)
    exec env ACCEL_CPU_ISA="$2" ACCEL_TEST_ISA="$2" $python -m pytest -q -m "not slow and not peers and not rules" "${@:3}" ;;
  --release)
    tools/macho.sh
    tools/sanitize.sh address,undefined whole
    tools/sanitize.sh thread whole
    $build/test_random_graphs 100000 20001
    exec env ACCEL_FUZZ_PROGRAMS=100000 ACCEL_FUZZ_MUTANTS=1000000 $python -m pytest -q --timeout 0 \
      tests/fuzz/test_builder_fuzz.py tests/fuzz/test_headers_fuzz.py ;;
esac
tools/build.sh cpp_tests
.venv/bin/ctest --test-dir $build --output-on-failure -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}"
$python -m pytest -q -m "not slow and not peers" "$@"
