"""One run of llama.cpp (xllamacpp, in .venv-bench): prints one JSON object."""

import importlib.metadata
import json
import statistics
import sys
import time

import xllamacpp
from reference import arguments, plain_prompt, plain_text

RUNS = 2


def complete(server, ids: list[int], tokens: int) -> dict:
    request = {"prompt": ids, "n_predict": tokens, "temperature": 0, "ignore_eos": True}
    request |= {"cache_prompt": False, "stream": False}
    answer = server.handle_completions(request)
    timings = answer["timings"]
    if timings["prompt_n"] != len(ids) or timings["predicted_n"] != tokens:
        sys.exit(f"peer_llama: ran {timings['prompt_n']} + {timings['predicted_n']} tokens")
    return answer


def main() -> None:
    options = arguments(__doc__)
    ids, tokens = options.ids, options.tokens
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_ctx = len(ids) + tokens + 8
    params.n_parallel = 1
    params.warmup = True
    begin = time.perf_counter()
    server = xllamacpp.Server(params)
    load_s = time.perf_counter() - begin
    if options.reference:
        got = complete(server, plain_prompt()[0], 1)["choices"][0]["text"]
        if not got or not plain_text().startswith(got):
            sys.exit(f"peer_llama: the reference prompt gives {got!r}, not {plain_text()!r}")
    complete(server, ids, 8)
    runs = [complete(server, ids, tokens)["timings"] for _ in range(RUNS)]
    result = {
        "engine": "llama.cpp",
        "version": importlib.metadata.version("xllamacpp"),
        "built_for": xllamacpp.get_system_info().strip(),
        "load_s": load_s,
        "prefill_s": statistics.median(r["prompt_ms"] for r in runs) / 1e3,
        # The clock starts when the first token is there, so n tokens are n - 1 steps.
        "step_s": statistics.median(r["predicted_ms"] for r in runs) / 1e3 / (tokens - 1),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
