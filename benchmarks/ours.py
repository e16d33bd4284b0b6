"""One run of accel on a checkpoint: prints one JSON object. Started by bench.py.

ours.py MODEL THREADS PROMPT_IDS.json DECODE_TOKENS
"""

import json
import resource
import sys
import time

import accel
from accel import llm


def generate(model, ids: list[int], tokens: int) -> tuple[list[int], float, float]:
    """The ids, the seconds to the first token, and the seconds of one later step."""
    begin = time.perf_counter()
    stamps, out = [], []
    for token in model.generate(ids, tokens, ignore_eos=True):
        stamps.append(time.perf_counter())
        out.append(token.id)
    return out, stamps[0] - begin, (stamps[-1] - stamps[0]) / (tokens - 1)


def matrix_weights(config) -> int:
    """Weights that every prompt token is multiplied with; the head serves the last one alone."""
    key_value = config.kv_heads * config.head_dim
    query = config.heads * config.head_dim
    layer = config.hidden * (2 * query + 2 * key_value) + 3 * config.hidden * config.ffn
    return config.layers * layer


def main() -> None:
    path, threads, prompt, tokens = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    with open(prompt) as file:
        ids = json.load(file)
    device = accel.open_cpu(threads=threads)
    begin = time.perf_counter()
    model = llm.load(path, device=device, kv="f16", context=len(ids) + tokens + 8)
    load_s = time.perf_counter() - begin
    warm, _, _ = generate(model, ids, 8)
    out, prefill_s, step_s = generate(model, ids, tokens)
    if out[:8] != warm:
        sys.exit("ours: two runs gave different tokens")
    report = model.report()
    result = {
        "engine": "accel",
        "device": device.info.name,
        "isa": device.info.isa,
        "load_s": load_s,
        "prefill_s": prefill_s,
        "step_s": step_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "weight_bytes": report.weight_bytes,
        "prefill_ops": 2 * matrix_weights(model.config) * len(ids),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
