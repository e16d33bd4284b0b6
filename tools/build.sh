#!/usr/bin/env bash
# Compiles and installs the package into .venv, editable: tools/build.sh [CMAKE TARGET...] builds those targets too
# (cpp_tests, benches). One build tree, build/py, so that nothing is compiled twice.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/py
tree_key() { cksum pyproject.toml CMakeLists.txt; find cpp/bindings shaders python -name '*.py' -o -name 'py.typed' | sort; }

# pip writes the console script and the redirect to python/; only a change of those needs it again.
key=$(tree_key | cksum)
if [ -f .venv/.stamp-install ] && [ "$(cat .venv/.stamp-install)" = "$key" ] && [ -f $build/build.ninja ]; then
  .venv/bin/cmake --build $build --target _core
  .venv/bin/cmake --install $build --prefix "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null
else
  rm -f .venv/.stamp-install
  echo "build: compiling (first time: minutes)"
  .venv/bin/python -m pip --disable-pip-version-check -qq install --no-build-isolation --no-deps --no-index \
    -C build-dir=$build -C cmake.define.ACCEL_TESTS=ON ${ACCEL_WERROR:+-C cmake.define.ACCEL_WERROR=ON} -e .
  printf '%s' "$key" >.venv/.stamp-install
fi
for target in "$@"; do .venv/bin/cmake --build $build --target "$target"; done
