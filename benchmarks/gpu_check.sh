#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds, runs the suite there, the sanitizers, the benchmarks, and writes gpu.json and
# gpu.txt. A part is one of build, cuda, ops, matrix (operators and conformance with products on matrix units), conformance,
# models, sanitize, bench, report; without arguments all of them, in this order. What parts leave stays in the output folder, so they may run one by one, and each ends within some minutes.
#   benchmarks/gpu_check.sh [part ...]
# OUT: the output folder (benchmarks/results/gpu). WHEELS: a folder of wheels for a machine without a network: what its
# Python lacks of pybind11, numpy, pytest, pytest-timeout, hypothesis, ml_dtypes, cmake, ninja and NVRTC's package is
# installed from there. MODEL: a GGUF checkpoint of SmolLM2-135M, for its reference tokens. LIMIT: seconds that a part may take
# (540). WORKERS: processes of the suites, where pytest-xdist is (1). COMMIT: what the report says where there is no
# repository. LARGE=1: the step of an 8B model too. KERNELS: arguments of gpu_kernels.py.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-benchmarks/results/gpu}
mkdir -p "$out"
build=build/gpu
python=${PYTHON:-python3}
limit=${LIMIT:-540}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
site=$PWD/build/gpu_site
if [ -n "${WHEELS:-}" ] && [ ! -d "$site" ]; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
fi
export PYTHONPATH=$PWD/$build/py:$site:${PYTHONPATH:-} PATH=$site/bin:$PATH
export ACCEL_TEST_DEVICE=cuda HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 ACCEL_TEST_MODEL=${MODEL:-}
failed=()

suite() {  # suite NAME pytest-arguments: junit XML and a log in the output folder
  local name=$1
  shift
  timeout "$limit" "$python" -m pytest -q -p no:cacheprovider -p no:benchmark ${WORKERS:+-n "$WORKERS"} -m "not slow and not peers and not rules" \
    --junitxml="$out/$name.xml" "$@" >"$out/$name.log" 2>&1 || failed+=("$name")
  tail -1 "$out/$name.log"
}

part_build() {
  local nvrtc
  nvrtc=$(find "$site" /usr/local/cuda/lib64/ -name 'libnvrtc.so.*' 2>/dev/null | head -1)
  cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DACCEL_CUDA=ON -DACCEL_ISAS="${ACCEL_ISAS:-avx2}" \
    ${nvrtc:+-DNVRTC_DIR="$(dirname "$nvrtc")"} -DPython_EXECUTABLE="$(command -v "$python")" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" >"$out/build.log" 2>&1 &&
    cmake --build $build --target _core py_links >>"$out/build.log" 2>&1 || { tail -20 "$out/build.log"; exit 1; }
  "$python" -m accel devices | tee "$out/devices.txt"
}
part_cuda() { suite cuda tests/cuda; }
part_ops() { suite ops tests/ops tests/test_check_data.py tests/cuda/test_cuda_dlpack.py; }
part_matrix() {
  ACCEL_TEST_DEVICE=cuda_matrix suite matrix_ops tests/ops
  ACCEL_TEST_DEVICE=cuda_matrix suite matrix_conformance tests/conformance
}
part_conformance() { suite conformance tests/conformance; }
part_models() {
  suite models tests/test_models.py -k "recorded or cut or batch or paged or ragged"
  [ -z "${MODEL:-}" ] || suite smollm2 tests/test_llm.py -k "reference or perplexity or cut"
}
part_sanitize() {
  local tool each=$((limit / 4))
  for tool in memcheck racecheck initcheck synccheck; do
    timeout "$each" compute-sanitizer --tool $tool --error-exitcode 9 "$python" benchmarks/gpu_kernels.py \
      ${KERNELS:-} >"$out/sanitize_$tool.log" 2>&1 || failed+=("sanitize_$tool")
    tail -1 "$out/sanitize_$tool.log"
  done
}
part_bench() {
  timeout "$limit" "$python" benchmarks/gpu_rows.py ${LARGE:+--large} >"$out/rows.jsonl" 2>"$out/rows.log" || failed+=(rows)
  local form
  for form in serial plain-edges matrix; do
    timeout "$limit" "$python" benchmarks/gpu_rows.py --$form --rounds 20 >"$out/rows_$form.jsonl" 2>>"$out/rows.log" || failed+=("rows_$form")
  done
  timeout "$limit" "$python" benchmarks/gpu_pairs.py >"$out/rows_pairs.jsonl" 2>>"$out/rows.log" || failed+=(rows_pairs)
}
part_report() { "$python" benchmarks/gpu_report.py "$out" "$commit"; }

[ $# -gt 0 ] || set -- build cuda ops matrix conformance models sanitize bench report
for part in "$@"; do
  echo "== $part"
  "part_$part"
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
