"""Attention beside torch: decode, paged batched decode and causal prefill of SmolLM2's heads.

    python benchmarks/attention.py [part of a row's name]

A pass is a few layers of attention, ours as one plan. They read one pair of caches, which stays in
the caches of the machine where it fits, or eight ("rotated"), as the layers of a model do. Each
round times one side after the other, who goes first alternates, and a ratio is of one round. One
thread is timed by the process's own processor time, which other processes do not lengthen. Two
threads wait for each other, so their time is the clock's; `best` is the ratio of the fastest.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "build/py/py"), str(ROOT / "tests"), str(ROOT / "tests/ops")]

import accel  # noqa: E402
from accel import tensor as T  # noqa: E402
from runner import Graph, judge, oracle, run, scalar_values  # noqa: E402

HEADS, KV_HEADS, DIM = 9, 3, 64
GROUP = HEADS // KV_HEADS
ROUNDS = 24
SETTLE_S = 0.002  # longer than either side's threads spin after their work


@dataclass(frozen=True)
class Shape:
    """One problem of every layer: `tokens` query rows a sequence over `context` positions."""

    name: str
    sequences: int
    tokens: int
    context: int
    block: int = 0  # positions of a page; 0: contiguous
    caches: int = 1  # pairs of K and V that the layers take turns with
    layers: int = 8

    @property
    def operations(self) -> int:
        """Of the positions that are seen."""
        seen = self.context if self.tokens == 1 else self.tokens * (self.tokens + 1) // 2
        return 4 * DIM * self.sequences * HEADS * seen

    def bytes(self, size: int) -> int:
        cache = 2 * self.sequences * self.context * KV_HEADS * DIM * size
        return cache + 2 * 4 * self.sequences * self.tokens * HEADS * DIM


SHAPES = [
    Shape("decode 1024", 1, 1, 1024),
    Shape("decode 4096", 1, 1, 4096),
    Shape("decode 1024 rotated", 1, 1, 1024, caches=8),
    Shape("decode 4096 rotated", 1, 1, 4096, caches=8),
    Shape("prefill 512", 1, 512, 512, layers=1),
    Shape("batched 16x1024 pages of 16", 16, 1, 1024, 16, layers=2),
    Shape("batched 16x1024 pages of 32", 16, 1, 1024, 32, layers=2),
]


# ------------------------------------------------------------------ the two sides


class Ours:
    """A plan of some layers, checked against the oracle when it is made."""

    def __init__(self, shape: Shape, dtype, threads: int):
        rng = np.random.default_rng(7)
        self.shape = shape
        self.runtime = accel.Runtime(accel.open_cpu(threads=threads))
        g = Graph(self.runtime)
        rows, capacity = shape.sequences * shape.tokens, shape.sequences * shape.context
        self.q = [
            rng.standard_normal((rows, HEADS, DIM)).astype(np.float32) for _ in range(shape.layers)
        ]
        self.caches = [
            tuple(rng.standard_normal((capacity, KV_HEADS, DIM)).astype(dtype) for _ in "kv")
            for _ in range(shape.caches)
        ]
        options = self._options(g, rng)
        states = [
            (g.port(f"k{i}", k, "state"), g.port(f"v{i}", v, "state"))
            for i, (k, v) in enumerate(self.caches)
        ]
        for i, q in enumerate(self.q):
            k, v = states[i % shape.caches]
            g.output(f"out{i}", T.attention(g.port(f"q{i}", self._form(q)), k, v, **options))
        self._bind(g)

    def _bind(self, g) -> None:
        plan = g.builder.compile()
        self.outputs = run(self.runtime.device, g, plan)
        judge("budget", self.outputs, oracle(g), self.shape.name)
        buffers = {}
        for port in plan.ports():
            buffer = self.runtime.device.new_buffer(port.dtype, int(np.prod(port.shape)))
            if port.name in g.ports:
                buffer.numpy().reshape(-1)[:] = g.ports[port.name].reshape(-1)
            buffers[port.name] = buffer
        self.plan, self.bound = plan, plan.bind(buffers, scalar_values(g))

    def _form(self, q):
        if self.shape.sequences > 1:
            return q[:, None]
        return q[0] if self.shape.tokens == 1 else q

    def _options(self, g, rng) -> dict:
        shape = self.shape
        lengths = np.full(shape.sequences, shape.context, np.uint32)
        options = {"lengths": g.port("len", lengths), "scale_name": g.scalar("scale", DIM**-0.5)}
        if shape.tokens > 1:
            options["base_name"] = g.scalar("base", 0, "u32")
        self.pages = None
        if shape.block:
            pages = rng.permutation(shape.sequences * shape.context // shape.block)
            self.pages = pages.astype(np.uint32).reshape(shape.sequences, -1)
            options.update(pages=g.port("pages", self.pages), block=shape.block)
        return options

    def gathered(self, cache) -> np.ndarray:
        """[sequences, kv_heads, context, head_dim] of one cache."""
        shape = self.shape
        if self.pages is not None:
            cache = cache.reshape(-1, shape.block, KV_HEADS, DIM)[self.pages.reshape(-1)]
        cache = cache.reshape(shape.sequences, shape.context, KV_HEADS, DIM)
        return np.ascontiguousarray(cache.transpose(0, 2, 1, 3))

    def __call__(self) -> None:
        self.plan.submit(self.bound).wait()


class Torch:
    """One form of torch's attention over the same numbers."""

    def __init__(self, ours: Ours, form: str, dtype):
        self.shape = shape = ours.shape
        self.options = {"is_causal": shape.tokens > 1, "enable_gqa": form == "enable_gqa"}
        queries = [self._query(ours, q, form, dtype) for q in ours.q]
        caches = []
        for pair in ours.caches:
            k, v = (torch.from_numpy(ours.gathered(x)).to(dtype) for x in pair)
            if form == "expanded":
                k, v = (x.repeat_interleave(GROUP, dim=1) for x in (k, v))
            caches.append((k, v))
        self.layers = [(q, *caches[i % len(caches)]) for i, q in enumerate(queries)]
        if dtype == torch.float32:
            self._check(ours)

    @staticmethod
    def _query(ours: Ours, q, form: str, dtype):
        shape = ours.shape
        q = q.reshape(shape.sequences, shape.tokens, HEADS, DIM).transpose(0, 2, 1, 3)
        q = torch.from_numpy(np.ascontiguousarray(q)).to(dtype)
        if form == "grouped rows":  # the heads of a kv head as rows of one head
            q = q.reshape(shape.sequences, KV_HEADS, GROUP, DIM)
        return q

    def _check(self, ours: Ours) -> None:
        got = sdpa(*self.layers[0], **self.options)
        got = got.reshape(-1, HEADS, ours.shape.tokens, DIM).transpose(1, 2)
        want = ours.outputs["out0"].reshape(ours.q[0].shape)
        error = np.abs(got.reshape(want.shape).numpy() - want).max()
        if error > 1e-4:  # of another problem, not of another rounding
            raise SystemExit(f"attention: torch solves another problem, {ours.shape.name}")

    def __call__(self) -> None:
        for q, k, v in self.layers:
            sdpa(q, k, v, **self.options)


# ------------------------------------------------------------------ time


def once_us(side, layers: int) -> float:
    """A pass, after one that wakes the threads and fills the caches; for one layer."""
    clock = time.process_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    side()
    begin = clock()
    side()
    spent = (clock() - begin) / 1e3
    time.sleep(SETTLE_S)
    return spent / layers


def rounds(sides: list, n: int = ROUNDS) -> list[list[float]]:
    """Times of a layer of each side, a list a round."""
    found = []
    for i in range(n):
        order = range(len(sides)) if i % 2 else reversed(range(len(sides)))
        times = {j: once_us(sides[j], sides[j].shape.layers) for j in order}
        found.append([times[j] for j in range(len(sides))])
    return found


def faster(ours: Ours, dtype) -> tuple[str, Torch]:
    """The faster of torch's two ways to share a head of the cache."""
    forms = ["enable_gqa", "expanded"]
    sides = [Torch(ours, form, dtype) for form in forms]
    times = rounds(sides, 7)
    i = 0 if statistics.median(a / b for a, b in times) < 1 else 1
    return forms[i], sides[i]


def peers(ours: Ours, dtype, threads: int):
    """(label, side, how many of it make one of ours)."""
    shape = ours.shape
    for kind in ("float32",) if dtype == np.float32 else ("float32", "float16", "bfloat16"):
        form, side = faster(ours, getattr(torch, kind))
        yield f"torch {kind} {form}", side, 1
    if shape.tokens == 1:
        yield "torch float32 grouped rows", Torch(ours, "grouped rows", torch.float32), 1
    if shape.sequences > 1:
        # Over as many caches, so that both read the same memory.
        n = shape.sequences
        single = Shape("one", 1, 1, shape.context, caches=n, layers=n)
        yield "single decode rotated", Ours(single, dtype, threads), shape.sequences


def probe(threads: int) -> dict:
    """The probe's rates; of one thread, as ours, for its processor time."""
    command = [ROOT / "build/py/bench_probe", str(threads), "200"]
    begin, before = time.perf_counter(), os.times().children_user + os.times().children_system
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    spent = os.times().children_user + os.times().children_system - before
    share = min(1.0, spent / (time.perf_counter() - begin)) if threads == 1 else 1.0
    found = json.loads(result.stdout)["threads"][-1]
    return {key: found[key] / share for key in ("read_gb_s", "fma_gop_s")}


def row(shape: Shape, name: str, size: int, times: list, ceiling: dict, peer: str) -> dict:
    us = statistics.median(t[0] for t in times)
    gb_s, gflop_s = shape.bytes(size) / us / 1e3, shape.operations / us / 1e3
    share = max(gflop_s / ceiling["fma_gop_s"], gb_s / ceiling["read_gb_s"])
    return {
        "name": f"attention {shape.name} {name}",
        "us": us,
        "gb_s": gb_s,
        "gflop_s": gflop_s,
        "percent": 100 * share,
        "ratio": statistics.median(t[1] / t[0] for t in times),
        "best": min(t[1] for t in times) / min(t[0] for t in times),
        "peer": peer,
    }


def measured(threads: int, select: str = ""):
    torch.set_num_threads(threads)
    for shape in SHAPES:
        for name, dtype in (("f32", np.float32), ("f16", np.float16)):
            if select not in f"{shape.name} {name}":
                continue
            ceiling, ours = probe(threads), Ours(shape, dtype, threads)
            for peer, side, times_one in peers(ours, dtype, threads):
                times = [[a, b * times_one] for a, b in rounds([ours, side])]
                yield row(shape, name, np.dtype(dtype).itemsize, times, ceiling, peer)


def rows(threads: int) -> list[dict]:
    """A row a shape, cache type and peer: us, GB/s and GFLOP/s of one layer; percent of the probe's
    read bandwidth or multiply-add rate, whichever is nearer; ratio: the peer's time over ours.
    """
    return list(measured(threads))


def main() -> None:
    for threads in (1, 2):
        for r in measured(threads, " ".join(sys.argv[1:])):
            numbers = f"{r['us']:9.1f} us {r['gb_s']:6.1f} GB/s {r['gflop_s']:6.1f} GFLOP/s"
            shares = f"{r['percent']:6.1f} % {r['ratio']:5.2f} x ({r['best']:5.2f})"
            print(f"{threads}t {numbers} {shares}  {r['name']} | {r['peer']}", flush=True)


if __name__ == "__main__":
    main()
