#!/usr/bin/env bash
# A source distribution, then a wheel from that archive alone: what is not in the archive cannot be in the wheel.
#   tools/wheel.sh [base]    base: of the kernel tables this one alone, which compiles every file in half of the time
# On Linux a wheel without the kernels of CUDA is an error (where there is NVRTC: x86-64 and aarch64).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p dist
rm -f dist/accel_tensor-*
.venv/bin/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'
settings=(${1:+--config-settings "cmake.define.ACCEL_ISAS=$1"})
case $(uname -sm) in "Linux x86_64" | "Linux aarch64") settings+=(--config-settings cmake.define.ACCEL_CUDA=ON) ;; esac
.venv/bin/python -m pip --disable-pip-version-check -qq wheel ${settings[@]+"${settings[@]}"} --no-build-isolation --no-deps --no-index -w dist dist/accel_tensor-*.tar.gz
for wheel in dist/*.whl; do
  bytes=$(wc -c <"$wheel")
  printf '%s: %d bytes\n' "$wheel" "$bytes"
  [ "$bytes" -lt $((15 * 1000 * 1000)) ] || { echo "wheel: more than 15 MB" >&2; exit 1; }
done
