"""Forms of a CUDA device against each other, alternated in one process, one JSON object a line:
gpu_pairs.py [--rounds N] [--shapes KxN,...] [--most N].

Products of one f32 row by f16 weights, as many behind one another as no cache holds and half of
them; so each form has a time for one more product (`us`) and one for a submission without any
(`fixed_us`). Forms: nodes that overlap, plain edges, matrix units, and torch in a CUDA graph where
it is installed. Products stand beside each other, or each reads the one before (`chain`); there
the weights are [n, k] and [k, n] in turn.
"""

import argparse
import json
import statistics
import time

import accel
from accel import tensor as T
from gpu_torch import torch_replay
from submit_cost import bind

SHAPES = "4096x4096,4096x12288,12288x4096,4096x151936"
CACHE_BYTES = 256 << 20


def products(device, k: int, n: int, count: int, chain: bool):
    """A plan, its bindings and buffers. In a chain every second weight is [k, n]."""
    runtime = accel.Runtime(device)
    b = runtime.new_builder("products")
    x = b.input("x", accel.F32, [1, k])
    for i in range(count):
        back = chain and i % 2
        w = b.weight(f"w{i}", accel.F16, [k, n] if back else [n, k])
        y = T.matmul(x, w, w_order="nk")
        if chain:
            x = y
        else:
            b.output(f"y{i}", y)
    if chain:
        b.output("y", x)
    plan = b.compile()
    return plan, *bind(plan, device)


def alternated(calls: dict, rounds: int) -> dict:
    """Median microseconds of each call, all of them in every round."""
    times = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter_ns()
            call()
            times[name].append((time.perf_counter_ns() - begin) / 1e3)
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def measure(devices: dict, k: int, n: int, most: int, chain: bool, rounds: int) -> None:
    counts = (most // 4 * 2, most)
    found = []
    for count in counts:
        made = {name: products(d, k, n, count, chain) for name, d in devices.items()}
        calls = {
            name: lambda plan=plan, bound=bound: plan.submit(bound).wait()
            for name, (plan, bound, _) in made.items()
        }
        if not chain and (replay := torch_replay(1, k, n, count)):
            calls["torch"] = replay
        found.append(alternated(calls, rounds))
        for plan, _, ports in made.values():
            plan.close()
            for buffer in ports.values():
                buffer.close()
    for name in found[0]:
        each = (found[1][name] - found[0][name]) / (counts[1] - counts[0])
        row = {"form": name, "k": k, "n": n, "chain": chain, "count": most}
        fixed = found[1][name] - each * counts[1]
        print(json.dumps(row | {"bench": "pair", "us": each, "fixed_us": fixed}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--most", type=int, default=16, help="products of a submission, at most")
    options = parser.parse_args()
    devices = {
        "overlap": accel.open_cuda(),
        "plain": accel.open_cuda(overlap=False),
        "matrix": accel.open_cuda(matrix=True),
    }
    for shape in options.shapes.split(","):
        k, n = (int(v) for v in shape.split("x"))
        most = max(4, min(options.most, CACHE_BYTES // (2 * k * n) * 2) // 4 * 4)
        for chain in (False, True):
            measure(devices, k, n, most, chain, options.rounds)


if __name__ == "__main__":
    main()
