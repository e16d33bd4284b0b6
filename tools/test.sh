#!/usr/bin/env bash
# The fast suite: C++ tests, then pytest on all cores. Expects tools/setup.sh and tools/build.sh to have run.
#   tools/test.sh [pytest arguments]    the suite of `make test`
#   tools/test.sh --isa NAME [whole]    the Python tests that depend on a kernel table with another one; whole: all
#   tools/test.sh --slow                what is marked slow, and other implementations as the reference
#   tools/test.sh --release             what only a release needs
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/py
python=.venv/bin/python
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1

# Tests that start threads of their own come last, with the machine to themselves.
python_tests() { # MARKS, then pytest arguments
  local marks=$1 none=5 first=0 second=0
  shift
  $python -m pytest -q -n "$jobs" --dist worksteal -m "($marks) and not threads" "$@" || first=$?
  # By hand a part may be chosen that has threads alone; where nobody chooses, an empty selection is a mistake in MARKS.
  [ $first = 0 ] || { [ $first = $none ] && [ -z "${CI:-}" ]; } || return $first
  $python -m pytest -q -m "($marks) and threads" "$@" || second=$?
  [ $second = 0 ] || [ $second = $none ] || return $second
  [ $first = 0 ] || return $second # nothing at all was selected: that is an error
}

fast="not slow and not peers"
case ${1:-} in
  --isa)
    export ACCEL_CPU_ISA="$2" ACCEL_TEST_ISA="$2"
    marks="$fast and not rules"
    [ "${3:-}" = whole ] || marks="$marks and device"
    python_tests "$marks"
    exit ;;
  --slow)
    export ACCEL_TEST_SLOW=1 ACCEL_TEST_PEERS=1
    python_tests "slow or peers" --timeout 1200
    exit ;;
  --release)
    tools/metal.sh --whole
    tools/cuda.sh --whole
    tools/macho.sh
    tools/wheel.sh
    isas=$($python tools/isas.py) # a failure inside the head of the loop would be an empty list
    for isa in $isas; do tools/test.sh --isa "$isa" whole; done
    tools/sanitize.sh address,undefined whole
    tools/sanitize.sh thread whole
    $build/test_random_graphs 100000 20001
    exec env ACCEL_FUZZ_PROGRAMS=100000 ACCEL_FUZZ_MUTANTS=1000000 $python -m pytest -q --timeout 0 \
      tests/fuzz/test_builder_fuzz.py tests/fuzz/test_headers_fuzz.py ;;
esac
tools/build.sh cpp_tests
.venv/bin/ctest --test-dir $build --no-tests=error --output-on-failure -j "$jobs"
python_tests "$fast" "$@"
