"""First figures of a GPU, one JSON object a line: gpu_rows.py [--rounds N] [--large] [--serial]
[--plain-edges] [--matrix].

* submit: what plan.submit of prepared bindings costs the calling thread;
* step: a decode step over zeros in the widths of SmolLM2-135M and, with --large, of an 8B model,
  f16 weights, f32 activations, f16 cache; `ends` is how often the end was dozed for and seen early,
  spun for or slept for, and how many threads a near end roused (two a step);
* matvec: f16 weights, one f32 row, as many weights in turn as no cache holds, beside torch in a
  CUDA graph where it is installed;
* many: the same with more rows, x and weights of f16 and bf16; torch with x of the weights' type.

--matrix opens the device with products on matrix units.
"""

import argparse
import json
import statistics
import time

import accel
from accel import _core
from accel import tensor as T
from accel.llm.models.decoder import GGUF, Traits
from accel.llm.models.graph import Graph, Step
from accel.llm.models.llama import Llama
from accel.llm.models.rope import Rope
from accel.llm.weights import Held, Part
from gpu_torch import torch_replay
from submit_cost import NARROW, bind, llama, measure, narrow_plan

SMALL = {"layers": 30, "hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64}
SMALL |= {"vocab": 49152, "context": 8192, "rotary_dim": 64}
LARGE = {"layers": 36, "hidden": 4096, "ffn": 12288, "heads": 32, "kv_heads": 8, "head_dim": 128}
LARGE |= {"vocab": 151936, "context": 8192, "rotary_dim": 128}
SHAPES = ((576, 576), (576, 1536), (4096, 4096), (4096, 12288), (12288, 4096), (4096, 151936))
MANY_ROWS = (16, 64, 512)
MANY_SHAPES = ((4096, 4096), (4096, 12288))
MANY_TYPES = ((accel.F16, accel.F16), (accel.F32, accel.F16), (accel.F32, accel.BF16))
CACHE_BYTES = 256 << 20  # more than any GPU's last cache


def say(**row) -> None:
    print(json.dumps(row), flush=True)


def held(part: Part) -> Held:
    """Every matrix in f16, every gain in f32."""
    dtype = accel.F32 if part.kind == "vector" else accel.F16
    text = str(dtype)
    return Held(part.port, part.stored, part.shape, "array", dtype, False, 32, text, text, 0.0)


def step_plan(runtime, sizes: dict):
    config = llama(**sizes)
    traits = Traits(Rope(config.rope_base, config.rotary_dim), pairing="adjacent")
    model = Llama("synthetic", config, traits, GGUF)
    parts = {part.name: held(part) for part in model.parts()}
    builder = runtime.new_builder("step")
    model.record(Graph(builder, parts, model.states(accel.F16), Step(1, "last")))
    return builder.compile()


def step(device, name: str, sizes: dict, rounds: int) -> None:
    runtime = accel.Runtime(device)
    begin = time.perf_counter()
    plan = step_plan(runtime, sizes)
    compiled = time.perf_counter() - begin
    bound, ports = bind(plan, device)
    bytes_read = sum(b.bytes for n, b in ports.items() if n not in ("keys", "values"))
    before = _core._ends_seen()
    row = measure(plan, bound, rounds)
    ends = {kind: n - before[kind] for kind, n in _core._ends_seen().items()}
    say(
        bench="step", model=name, weight_bytes=bytes_read, compile_s=compiled,
        steps_per_s=1e6 / row["step_us"], ends=ends, **row,
    )  # fmt: skip
    plan.close()
    for buffer in ports.values():
        buffer.close()


def products(device, m: int, k: int, n: int, rounds: int, types=(accel.F32, accel.F16)) -> dict:
    """Products behind one another, each with a weight of its own."""
    runtime, count = accel.Runtime(device), max(2, -(-CACHE_BYTES // (2 * k * n)))
    b = runtime.new_builder("products")
    x = b.input("x", types[0], [m, k])
    for i in range(count):
        w = b.weight(f"w{i}", types[1], [n, k])
        b.output(f"y{i}", T.matmul(x, w, w_order="nk"))
    plan = b.compile()
    kernel = plan.selections()[0].kernel
    bound, ports = bind(plan, device)
    plan.submit(bound).wait()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        plan.submit(bound).wait()
        times.append((time.perf_counter() - begin) / count)
    us = statistics.median(times) * 1e6
    plan.close()
    for buffer in ports.values():
        buffer.close()
    row = {"us": us, "gb_s": 2 * k * n / us / 1e3, "count": count, "kernel": kernel}
    return row | torch_products(m, k, n, count, rounds, str(types[1]))


def matvec(device, k: int, n: int, rounds: int) -> None:
    say(bench="matvec", k=k, n=n, **products(device, 1, k, n, rounds))


def many(device, m: int, k: int, n: int, rounds: int) -> None:
    for types in MANY_TYPES:
        row = products(device, m, k, n, rounds, types)
        row["tflop_s"] = 2 * m * k * n / row["us"] / 1e6
        say(bench="many", m=m, k=k, n=n, x=str(types[0]), w=str(types[1]), **row)


def torch_products(m: int, k: int, n: int, count: int, rounds: int, dtype: str) -> dict:
    replay = torch_replay(m, k, n, count, dtype)
    if replay is None:
        return {}
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        replay()
        times.append((time.perf_counter() - begin) / count)
    us = statistics.median(times) * 1e6
    return {"torch_us": us, "torch_gb_s": 2 * k * n / us / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--large", action="store_true", help="with the step of an 8B model")
    parser.add_argument("--serial", action="store_true", help="each launch waits for the last")
    parser.add_argument("--plain-edges", action="store_true", help="no launch begins early")
    parser.add_argument("--matrix", action="store_true", help="products on matrix units")
    options = parser.parse_args()
    device = accel.open_cuda(
        serial=options.serial, overlap=not options.plain_edges, matrix=options.matrix
    )
    say(bench="device", name=device.info.name, isa=device.info.isa, **device.info.limits)
    plan = narrow_plan(accel.Runtime(device))
    bound, _ = bind(plan, device)
    say(bench="submit", **measure(plan, bound, 20 * options.rounds), vocab=NARROW["vocab"])
    step(device, "SmolLM2-135M", SMALL, 4 * options.rounds)
    for k, n in SHAPES:
        matvec(device, k, n, options.rounds)
    for k, n in MANY_SHAPES:
        for m in MANY_ROWS:
            many(device, m, k, n, options.rounds)
    if options.large:
        step(device, "8B", LARGE, options.rounds)


if __name__ == "__main__":
    main()
