"""Times one operator's rows of tests/ops/cases.py: its `bench` points, or all points without any.

Each point is judged against the oracle before it is timed. A time is one submission and its wait.
"""

import json
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/ops")]

import accel  # noqa: E402
from cases import CASES  # noqa: E402
from runner import judge, oracle, record, run, scalar_values  # noqa: E402

FLUSH = np.zeros(64 << 18, np.float32)  # 64 MiB, beyond the caches


def bytes_of(r) -> int:
    """Bytes of everything the graph reads and writes once."""
    outputs = sum(int(np.prod(shape)) * size(dtype) for dtype, shape in r.outputs.values())
    return sum(a.nbytes for a in r.ports.values()) + outputs


def size(dtype: str) -> int:
    return {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2}.get(dtype, 1)


def times_us(plan, bound, cold: bool) -> list[float]:
    found, budget = [], time.perf_counter() + 1.0
    while len(found) < 20 or (len(found) < 1000 and time.perf_counter() < budget):
        if cold:
            FLUSH.sum()
        begin = time.perf_counter_ns()
        plan.submit(bound).wait()
        found.append((time.perf_counter_ns() - begin) / 1e3)
    return found[len(found) // 5 :]


def time_point(case, point, threads: int, read_gb_s: float) -> None:
    runtime = accel.Runtime(accel.open_cpu(threads=threads))
    r = record(runtime, case.op, point, np.random.default_rng(zlib.crc32(str(point).encode())))
    plan = r.builder.compile()
    judge(case.bound, run(runtime.device, r, plan), oracle(r), f"{case.op} {point}")
    buffers = {}
    for port in plan.ports():
        buffers[port.name] = runtime.device.new_buffer(port.dtype, int(np.prod(port.shape)))
        if port.name in r.ports:
            whole = buffers[port.name].numpy().reshape(-1).view(np.uint8)
            whole[:] = np.ascontiguousarray(r.ports[port.name]).reshape(-1).view(np.uint8)
    bound = plan.bind(buffers, scalar_values(r))
    us = statistics.median(times_us(plan, bound, cold=True))
    gb_s = bytes_of(r) / us / 1e3
    kernel = plan.selections()[0].kernel
    share = 100 * gb_s / read_gb_s
    print(f"  {us:9.1f} us  {gb_s:7.2f} GB/s  {share:5.1f} % of read  {kernel}  {point}")


def probe(threads: int) -> float:
    command = [ROOT / "build/py/bench_probe", str(threads), "300"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)["threads"][-1]["read_gb_s"]


def main(op: str) -> None:
    cases = [case for case in CASES if case.op == op]
    if not cases:
        sys.exit(f"bench: no operator {op!r}; there are {', '.join(sorted({c.op for c in CASES}))}")
    for threads in (1, 2):
        read = probe(threads)
        print(f"{op}: read {read:.1f} GB/s with {threads} thread(s)")
        for case in cases:
            for point in case.bench or case.points:
                time_point(case, point, threads, read)
