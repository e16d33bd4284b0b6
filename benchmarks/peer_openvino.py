"""One run of OpenVINO GenAI (in .venv-bench): prints one JSON object. Started by the benchmark."""

import importlib.metadata
import json
import statistics
import sys
import time

import numpy as np
import openvino
import openvino_genai
from reference import arguments, plain_prompt

RUNS = 2


def generate(pipe, ids: list[int], tokens: int) -> tuple[list[int], float, float]:
    """The new ids, the seconds to the first token, and the seconds of one later step."""
    stamps: list[float] = []

    class Stamps(openvino_genai.StreamerBase):
        def write(self, token):
            stamps.append(time.perf_counter())
            return openvino_genai.StreamingStatus.RUNNING

        def end(self):
            pass

    options = openvino_genai.GenerationConfig(
        max_new_tokens=tokens, ignore_eos=True, do_sample=False
    )
    begin = time.perf_counter()
    found = pipe.generate(openvino.Tensor(np.array([ids], np.int64)), options, Stamps())
    out = [int(i) for i in found.tokens[0]]
    if len(out) != tokens or len(stamps) != tokens:
        sys.exit(f"peer_openvino: gave {len(out)} tokens in {len(stamps)} steps, not {tokens}")
    return out, stamps[0] - begin, (stamps[-1] - stamps[0]) / (tokens - 1)


def main() -> None:
    options = arguments(__doc__)
    properties = {"INFERENCE_NUM_THREADS": options.threads}
    if options.activations:
        properties["INFERENCE_PRECISION_HINT"] = options.activations
    begin = time.perf_counter()
    pipe = openvino_genai.LLMPipeline(options.model, "CPU", **properties)
    load_s = time.perf_counter() - begin
    if options.reference:
        prompt, want = plain_prompt()
        got, _, _ = generate(pipe, prompt, 2)
        if got[:1] != want[:1]:
            sys.exit(f"peer_openvino: the reference prompt gives {got} and must give {want[:1]}")
    # The pipeline keeps the cache of a prefix, so every run starts with another token.
    starts = range(11, 11 + 1 + RUNS)
    runs = [generate(pipe, [start, *options.ids[1:]], options.tokens) for start in starts][1:]
    core = openvino.Core()
    result = {
        "engine": "OpenVINO",
        "version": importlib.metadata.version("openvino-genai"),
        "built_for": ", ".join(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
        "precision": options.activations
        or core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name(),
        "load_s": load_s,
        "prefill_s": statistics.median(prefill for _, prefill, _ in runs),
        "step_s": statistics.median(step for _, _, step in runs),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
