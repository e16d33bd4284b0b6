#!/usr/bin/env bash
# Formatter, linters, stubs, rules, generated files, headers alone; --fix formats and mends instead.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
mapfile -t cpp < <(find cpp benchmarks -name '*.h' -o -name '*.cc' -o -name '*.inl' | sort)
mapfile -t shared < <(find shaders -name '*.h' | sort)
if [ "${1:-}" = --fix ]; then
  $bin/clang-format -i "${cpp[@]}" "${shared[@]}"
  $bin/ruff format -q python tests benchmarks tools examples
  $bin/ruff check -q --fix python tests benchmarks tools examples
  exit
fi

status=0
step() { # NAME, then a command; every step runs, and one failure fails the whole
  local name=$1
  shift
  if "$@"; then echo "check: $name: ok"; else echo "check: $name: FAILED"; status=1; fi
}
headers_alone() {
  find cpp -name '*.h' ! -path 'cpp/bindings/*' ! -path 'cpp/backends/cpu/kernels/*' -print0 |
    xargs -0 -n 4 -P "$(nproc)" sh -c 'for h; do
      printf "#include \"%s\"\n" "${h#cpp/}" |
        "${CXX:-c++}" -std=c++20 -Wall -Wextra -Werror -Icpp -Ishaders -fsyntax-only -x c++ - || exit 255
    done' _
}
changed_since_upstream() { # clang-tidy takes seconds a file, so it reads what a change touches; CI reads everything
  if [ -n "${CI:-}" ]; then find cpp -name '*.cc' ! -path 'cpp/backends/cpu/kernels/*'; return; fi
  { git diff --name-only HEAD; git ls-files --others --exclude-standard; } | grep -E '^cpp/.*\.cc$' |
    grep -v '/kernels/' | head -n 8
}
tidy() {
  local files
  mapfile -t files < <(changed_since_upstream)
  [ ${#files[@]} = 0 ] || clang-tidy --quiet -p build/py "${files[@]}"
}
step format $bin/clang-format --dry-run -Werror "${cpp[@]}" "${shared[@]}"
step ruff $bin/ruff check -q python tests benchmarks tools examples
step "ruff format" $bin/ruff format -q --check python tests benchmarks tools examples
step mypy $bin/mypy --no-error-summary python/accel/_core.pyi python/accel/tensor.py
step "mypy --strict over the examples" $bin/mypy --strict --no-error-summary examples
step headers headers_alone
if command -v clang-tidy >/dev/null; then step clang-tidy tidy; else echo "check: clang-tidy: not installed, left out"; fi
step rules $bin/python -m pytest -q tests/rules
exit $status
