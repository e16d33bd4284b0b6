"""Time of a decode step against its context, of a compile against layers: one JSON object.

ours_scaling.py THREADS ROUNDS

The models have SmolLM2-135M's widths and memory of zeros: what is timed depends on no value.
"""

import dataclasses
import json
import statistics
import sys
import time

import accel
from submit_cost import bind, llama, record

CONTEXTS = (128, 256, 512, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192)
LAYERS = (2, 4, 8, 16, 24, 32, 48, 64)
SMOLLM2 = {"layers": 30, "hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64}
SMOLLM2 |= {"vocab": 49152, "context": 8192, "rotary_dim": 64}


def compile_seconds(device, layers: int) -> float:
    runtime = accel.Runtime(device)
    config = dataclasses.replace(llama(**SMOLLM2), layers=layers)
    builder = runtime.new_builder("layers")
    begin = time.perf_counter()
    record(builder, config)
    plan = builder.compile()
    spent = time.perf_counter() - begin
    plan.close()
    runtime.close()
    return spent


class Decode:
    """The decode step over zeros, at any position of its cache."""

    def __init__(self, device):
        builder = accel.Runtime(device).new_builder("decode")
        record(builder, llama(**SMOLLM2))
        self.plan = builder.compile()
        self.bound, self.ports = bind(self.plan, device)

    def seconds(self, context: int) -> float:
        self.ports["positions"].numpy()[:] = context - 1
        self.ports["length"].numpy()[:] = context
        begin = time.perf_counter()
        self.plan.submit(self.bound).wait()
        return time.perf_counter() - begin


def medians(points, rounds: int, measure) -> list[dict]:
    """Every point once a round, so that a slow minute falls on all of them."""
    found: dict = {p: [] for p in points}
    for _ in range(rounds):
        for p in points:
            found[p].append(measure(p))
    return [{"at": p, "seconds": statistics.median(times)} for p, times in found.items()]


def main() -> None:
    threads, rounds = int(sys.argv[1]), int(sys.argv[2])
    device = accel.open_cpu(threads=threads)
    compiles = medians(LAYERS, rounds, lambda n: compile_seconds(device, n))
    decode = Decode(device)
    decode.seconds(CONTEXTS[-1])
    steps = medians(CONTEXTS, 4 * rounds, decode.seconds)
    print(json.dumps({"context": steps, "layers": compiles}), flush=True)


if __name__ == "__main__":
    main()
