"""One run of llama.cpp (xllamacpp, in .venv-bench): prints one JSON object. Started by bench.py.

peer_llama.py MODEL THREADS PROMPT_IDS.json DECODE_TOKENS
"""

import importlib.metadata
import json
import resource
import sys
import time

import xllamacpp


def complete(server, ids: list[int], tokens: int) -> dict:
    request = {"prompt": ids, "n_predict": tokens, "temperature": 0, "ignore_eos": True}
    answer = server.handle_completions(request | {"cache_prompt": False, "stream": False})
    timings = answer["timings"]
    if timings["prompt_n"] != len(ids) or timings["predicted_n"] != tokens:
        sys.exit(f"peer_llama: ran {timings['prompt_n']} + {timings['predicted_n']} tokens")
    return timings


def main() -> None:
    model, threads, prompt, tokens = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    with open(prompt) as file:
        ids = json.load(file)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_ctx = len(ids) + tokens + 8
    params.n_parallel = 1
    params.warmup = True
    begin = time.perf_counter()
    server = xllamacpp.Server(params)
    load_s = time.perf_counter() - begin
    complete(server, ids, 8)
    timings = complete(server, ids, tokens)
    result = {
        "engine": "llama.cpp",
        "version": importlib.metadata.version("xllamacpp"),
        "built_for": xllamacpp.get_system_info().strip(),
        "load_s": load_s,
        "prefill_s": timings["prompt_ms"] / 1e3,
        # The clock starts when the first token is there, so n tokens are n - 1 steps.
        "step_s": timings["predicted_ms"] / 1e3 / (tokens - 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
