"""What `plan.submit` of prepared bindings costs the calling thread, for the ports of a decode step.

The graph is the decode step of SmolLM2-135M (30 layers, all its ports) at the smallest width, so
that kernels do next to nothing and what is left is the host's work. With --model the real step
follows, whose kernels sweep the caches between two submissions.
"""

import argparse
import json
import statistics
import time

import accel
from accel import llm
from accel.llm.models.config import Config
from accel.llm.models.decoder import GGUF, Traits
from accel.llm.models.graph import Graph, Step
from accel.llm.models.llama import Llama
from accel.llm.models.rope import Rope
from accel.llm.weights import Held, Part

WIDTH = 32


def llama(**sizes) -> Config:
    """A Llama as SmolLM2 is, in other sizes."""
    fixed = {"architecture": "llama", "rope_base": 1e5, "eps": 1e-5, "tied": True}
    return Config(bos=None, eos=None, quantization="Q4_1", **fixed, **sizes)


NARROW = {"layers": 30, "hidden": WIDTH, "ffn": WIDTH, "heads": 4, "kv_heads": 4, "head_dim": 8}
NARROW |= {"vocab": WIDTH, "context": WIDTH, "rotary_dim": 8}


def held(part: Part) -> Held:
    """As the Q4_1 checkpoint holds it: an int8 embedding, affine int4 matrices, f32 gains."""
    name, shape = part.port, part.shape
    if part.kind == "vector":
        return Held(name, part.stored, shape, "array", accel.F32, False, 32, "F32", "f32", 0.0)
    if part.kind == "table":
        return Held(name, part.stored, shape, "int8", accel.F16, False, 32, "Q8_0", "int8", 0.0)
    return Held(name, part.stored, shape, "int4", accel.F16, True, 32, "Q4_1", "int4", 0.0)


def record(builder, config: Config) -> None:
    """The decode step."""
    traits = Traits(Rope(config.rope_base, config.rotary_dim), pairing="adjacent")
    model = Llama("synthetic", config, traits, GGUF)
    parts = {part.name: held(part) for part in model.parts()}
    model.record(Graph(builder, parts, model.states(accel.F16), Step(1, "last")))


def narrow_plan(runtime):
    builder = runtime.new_builder("narrow")
    record(builder, llama(**NARROW))
    return builder.compile()


def bind(plan, device):
    """Zeroed buffers for every port, one for every scalar; the bindings, and the buffers."""
    ports = {p.name: device.new_buffer(p.dtype, p.shape.elements()) for p in plan.ports()}
    scalars = {s.name: 1.0 if str(s.kind) == "f32" else 1 for s in plan.scalars()}
    return plan.bind(ports, scalars), ports


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[int(q * (len(values) - 1))]


def measure(plan, bound, count: int) -> dict:
    submits, steps = [], []
    for _ in range(count):
        begin = time.perf_counter_ns()
        fence = plan.submit(bound)
        submits.append((time.perf_counter_ns() - begin) / 1e3)
        fence.wait()
        steps.append((time.perf_counter_ns() - begin) / 1e3)
    warm = submits[count // 10 :]
    return {
        "ports": len(plan.ports()),
        "operators": len(plan.selections()),
        "submit_us": statistics.median(warm),
        "submit_us_p10": quantile(warm, 0.1),
        "submit_us_p90": quantile(warm, 0.9),
        "step_us": statistics.median(steps[count // 10 :]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--model", help="measure this checkpoint's decode plan as well")
    options = parser.parse_args()
    device = accel.open_cpu(threads=1)
    plan = narrow_plan(accel.Runtime(device))
    print(
        json.dumps(
            {"bench": "submit", "plan": "narrow"}
            | measure(plan, bind(plan, device)[0], options.count)
        )
    )
    if options.model:
        model = llm.load(options.model, device=device, context=512)
        plan = model.plans["decode"]
        result = measure(plan, bind(plan, device)[0], max(20, options.count // 50))
        print(json.dumps({"bench": "submit", "plan": "decode"} | result))


if __name__ == "__main__":
    main()
