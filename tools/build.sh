#!/usr/bin/env bash
# Compiles and installs the package into .venv, editable: tools/build.sh [CMAKE TARGET...] builds those targets too
# (cpp_tests, benches). One build tree, build/py, so that nothing is compiled twice.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/py
cmake=.venv/bin/cmake
python=.venv/bin/python

# Compiler steps as they come: one line that is overwritten on a terminal, whole lines elsewhere.
steps() {
  local end='\n'
  [ -t 1 ] && end='\033[K\r'
  sed -un 's/^ *\(\[[0-9]*\/[0-9]*\] .*\)/\1/p' | while read -r line; do printf "%.100s$end" "$line"; done
  [ -t 1 ] && printf '\033[K' || true
}
install_editable() {
  local log=build/install.log
  echo "build: compiling; the first time takes minutes"
  mkdir -p build
  if ! $python -m pip --disable-pip-version-check -v install --no-build-isolation --no-deps --no-index \
    --config-settings build-dir=$build --config-settings cmake.define.ACCEL_TESTS=ON \
    ${ACCEL_WERROR:+--config-settings cmake.define.ACCEL_WERROR=ON} -e . 2>&1 |
    tee $log | steps; then
    grep -A 30 -m 1 -E 'FAILED|error:|Error' $log >&2 || tail -n 30 $log >&2
    echo "build: failed; the whole log is in $log" >&2
    exit 1
  fi
}

# pip writes the console script and the redirect to python/; only a change of those needs it again.
key=$({ cksum pyproject.toml CMakeLists.txt; find python -name '*.py' | sort; } | cksum)
# Warnings as errors are the tree's own word, and a tree that was configured without is told.
warned() { [ -z "${ACCEL_WERROR:-}" ] || grep -qx 'ACCEL_WERROR:[A-Z]*=ON' $build/CMakeCache.txt 2>/dev/null; }
if warned && [ -f .venv/.stamp-install ] && [ "$(cat .venv/.stamp-install)" = "$key" ] && [ -f $build/build.ninja ]; then
  $cmake --build $build --target _core
  site=$($python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  $cmake --install $build --prefix "$site" >/dev/null
else
  rm -f .venv/.stamp-install
  install_editable
  printf '%s' "$key" >.venv/.stamp-install
fi
for target in "$@"; do $cmake --build $build --target "$target"; done
