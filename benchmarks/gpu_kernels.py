"""Runs one case of each kernel on the GPU, for a sanitizer around it: gpu_kernels.py [--list]
[--combined] [--matrix].

The cases are those of tests/ops; each is the first that a kernel is chosen for; behind them each
launch that does the work of several commands (tests/cuda/pieces.py), with --combined these alone.
With --matrix alone the functions on matrix units, each tile once.
Nothing is judged here but that the runs end.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "ops", "cuda")]

import accel  # noqa: E402
import numpy as np  # noqa: E402
import pieces  # noqa: E402
from accel import _core  # noqa: E402
from case import In, P  # noqa: E402
from cases import CASES  # noqa: E402
from runner import record, run  # noqa: E402


def matrix() -> None:
    device, seen = accel.open_cuda(debug_fill=255, matrix=True), set()
    runtime = accel.Runtime(device)
    points = [(case.op, point) for case in CASES for point in case.points]
    points += [
        ("matmul", P(In((512, 64), x), In((4096, 64), w, kind="weight"), w_order="nk"))
        for x in ("f32", "f16")
        for w in ("f16", "bf16")
    ]
    for op, point in points:
        if op not in ("matmul", "linear"):
            continue
        graph = record(runtime, op, point, np.random.default_rng(7))
        rows = _core._launches(graph.builder, "cuda_matrix")
        functions = {row["function"] for row in rows if "_matrix16_" in row["function"]}
        if not functions <= seen:
            print(op, point.name, *sorted(functions - seen), flush=True)
            seen |= functions
            if "--list" not in sys.argv:
                run(device, graph)
    print(f"{len(seen)} kernels ran")


def main() -> None:
    device = accel.open_cuda(debug_fill=255)
    runtime, seen = accel.Runtime(device), set()
    for case in () if "--combined" in sys.argv else CASES:
        for point in case.points:
            graph = record(runtime, case.op, point, np.random.default_rng(7))
            plan = graph.builder.compile()
            kernels = {s.kernel for s in plan.selections()}
            if not kernels <= seen:
                print(case.op, point.name, *sorted(kernels - seen), flush=True)
                seen |= kernels
                if "--list" not in sys.argv:
                    run(device, graph, plan)
            plan.close()
    for graph in combined(runtime):
        rows = _core._launches(graph.builder, "cuda", True)
        seen |= {row["function"] for row in rows if row["kernel"] == "combined"}
        print(len(seen), "kernels", flush=True)
        if "--list" not in sys.argv:
            run(device, graph)
    print(f"{len(seen)} kernels ran")


def combined(runtime):
    for dtype in ("f16", "f32"):
        yield pieces.caches(runtime, dtype)
    for kind in pieces.KINDS:
        for size in pieces.sizes(kind):
            yield pieces.products(runtime, kind, size)


if __name__ == "__main__":
    matrix() if "--matrix" in sys.argv else main()
