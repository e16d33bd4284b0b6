"""A serving loop over pages: ragged steps of any mix of prefill chunks and decode rows, one policy
a row, blocks from a pool. What a real server does, on the two-layer model of tiny.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import accel
import numpy as np
import tiny
from accel import tensor as T
from placing import submit_arrays
from runner import Graph, scalar_values
from tiny import PADDING, Size

# Ports that each step fills anew.
STEP = ("ids", "slots", "positions", "lengths", "extents", "pages", "last")
STEP += ("factor", "top_k", "top_p", "draws")


@dataclass
class Request:
    prompt: list[int]
    max_new: int
    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    arrival: int = 0
    # What the loop fills in.
    tokens: list[int] = field(default_factory=list)
    logits: list[bytes] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    done: int = 0  # positions that are in the cache
    preempted: int = 0

    def ids(self) -> list[int]:
        return self.prompt + self.tokens

    def finished(self) -> bool:
        return len(self.tokens) == self.max_new

    def fresh(self) -> Request:
        return Request(
            list(self.prompt), self.max_new, self.seed, self.temperature, self.top_k, self.top_p
        )


class TinyModel:
    """The two-layer model of tiny.py as a server sees it."""

    vocab = Size.vocab
    eps = 1e-5

    def __init__(self, size: Size, w: dict):
        self.size, self.w = size, w

    def caches(self, capacity: int) -> dict[str, np.ndarray]:
        """Nothing that a sequence did not write itself may reach a result: NaN everywhere."""
        s = self.size
        dtype = np.float16 if s.cache == "f16" else np.float32
        return {n: np.full((s.layers, capacity, s.kv_heads, s.dim), np.nan, dtype) for n in "kv"}

    def scalars(self, g: Graph) -> None:
        g.scalar("rope_base", 10000.0)
        g.scalar("scale", 1 / self.size.dim**0.5)

    def embed(self, g: Graph, ids):
        self.table = g.port("table", self.w["table"], "weight")
        return T.gather_rows(self.table, ids)

    def layers(self, g: Graph, x, k, v, shared, options):
        query = [x.shape[0], self.size.heads, self.size.dim]
        for i in range(self.size.layers):
            x, k, v = tiny.layer(g, self.size, self.w, i, x, k, v, (*shared, query), options)
        return x

    def head(self, g: Graph, x):
        x = T.rms_norm(x, g.port("final", self.w["final"], "weight"), eps=self.eps)
        return T.matmul(x, self.table, w_order="nk")


def record(builder, model, capacity: int, tokens: int, batch: int, block: int, pages: int) -> Graph:
    """One ragged step: `tokens` rows of `batch` sequences, the last row of each sampled."""
    g = Graph(None, builder=builder)
    k, v = (g.port(n, a, "state") for n, a in model.caches(capacity).items())
    rows = {n: g.port(n, np.zeros(tokens, np.uint32)) for n in ("ids", "slots", "positions")}
    lengths = g.port("lengths", np.zeros(batch, np.uint32))
    options = {
        "query_extents": g.port("extents", np.zeros(batch, np.uint32)),
        "pages": g.port("pages", np.zeros((batch, pages), np.uint32)),
        "block": block,
    }
    model.scalars(g)
    x = model.embed(g, rows["ids"])
    x = model.layers(g, x, k, v, (rows["slots"], rows["positions"], lengths), options)
    logits = model.head(g, T.gather_rows(x, g.port("last", np.zeros(batch, np.uint32))))
    policy = T.RowSampling(
        g.port("factor", np.zeros(batch, np.float32)),
        top_k=g.port("top_k", np.zeros(batch, np.uint32)),
        top_p=g.port("top_p", np.zeros(batch, np.float32)),
    )
    g.output("logits", logits)
    g.output("tokens", T.sample_rows(logits, g.port("draws", np.zeros(batch, np.float32)), policy))
    g.written += ["k", "v"]
    return g


class Server:
    """Serves requests with `batch` rows at once over `blocks` blocks of `block` positions."""

    def __init__(self, runtime, model, batch: int, blocks: int, block: int, buckets):
        self.runtime, self.model = runtime, model
        self.batch, self.block, self.blocks = batch, block, blocks
        self.pool = T.BlockPool(blocks, block)
        self.buckets = T.Buckets(*buckets)
        self.cache = T.PlanCache(runtime)
        self.states = model.caches(blocks * block)
        self.graphs: dict[int, Graph] = {}
        self.exhausted = 0

    def plan(self, tokens: int):
        capacity = self.blocks * self.block

        def recorded(builder):
            self.graphs[tokens] = record(
                builder, self.model, capacity, tokens, self.batch, self.block, self.blocks
            )

        if tokens not in self.graphs:
            self.cache.compile(recorded)
        return self.cache.compile(recorded), self.graphs[tokens]

    def grow(self, r: Request, positions: int) -> bool:
        try:
            r.pages = self.pool.grow(r.pages, positions)
        except accel.CapacityError as e:
            assert e.code == "exhausted"
            self.exhausted += 1
            return False
        return True

    def release(self, r: Request) -> None:
        for page in r.pages:
            for state in self.states.values():
                state[:, page * self.block : (page + 1) * self.block] = np.nan
        self.pool.free(r.pages)
        r.pages, r.done = [], 0

    def step(self, active: list[Request], rng) -> None:
        """One submission: a decode row or a chunk of the prompt for each active request."""
        budget = self.buckets.sizes()[-1]
        work = []
        for i, r in enumerate(active):
            left = len(r.ids()) - r.done
            count = min(left, budget - (len(active) - i - 1), int(rng.integers(1, 12)))
            if count < 1 or not self.grow(r, r.done + count):
                continue
            budget -= count
            work.append((r, count))
        if not work:  # nobody fits: the youngest gives its blocks back and starts over
            victim = active[-1]
            self.release(victim)
            victim.preempted += 1
            return
        self.submit(work)

    def submit(self, work: list[tuple[Request, int]]) -> None:
        total = sum(n for _, n in work)
        bucket = self.buckets.for_length(total)
        plan, g = self.plan(bucket)
        ports = {k: v for k, v in g.ports.items() if k not in self.states}
        for name in STEP:
            ports[name] = ports[name].copy()
        for name in ("ids", "slots"):
            ports[name][:] = PADDING
        ports["last"][:] = PADDING
        ports["pages"][:] = PADDING
        at = 0
        for b, (r, n) in enumerate(work):
            positions = np.arange(r.done, r.done + n)
            pages = np.asarray(r.pages)
            ports["ids"][at : at + n] = r.ids()[r.done : r.done + n]
            ports["slots"][at : at + n] = (
                pages[positions // self.block] * self.block + positions % self.block
            )
            ports["positions"][at : at + n] = positions
            ports["lengths"][b], ports["extents"][b] = r.done + n, n
            ports["pages"][b, : len(pages)] = pages
            ports["last"][b] = at + n - 1
            ports["factor"][b] = 1 / r.temperature if r.temperature else 0
            ports["top_k"][b], ports["top_p"][b] = r.top_k, r.top_p
            ports["draws"][b] = T.Stream(r.seed).draw(r.done + n)
            at += n
        logits = np.zeros((self.batch, self.model.vocab), np.float32)
        tokens = np.zeros(self.batch, np.uint32)
        bindings = {**ports, **self.states, "logits": logits, "tokens": tokens}
        assert submit_arrays(self.runtime.device, plan, bindings, scalar_values(g))
        for b, (r, n) in enumerate(work):
            r.done += n
            if r.done == len(r.ids()):
                r.tokens.append(int(tokens[b]))
                r.logits.append(logits[b].tobytes())

    def serve(self, requests: list[Request], rng) -> int:
        """Runs all of them to their end; gives the number of steps."""
        waiting = sorted(requests, key=lambda r: r.arrival)
        active: list[Request] = []
        steps = 0
        while waiting or active:
            while waiting and len(active) < self.batch and waiting[0].arrival <= steps:
                active.append(waiting.pop(0))
            if active:
                rng.shuffle(active)
                self.step(active, rng)
            for r in [r for r in active if r.finished()]:
                self.release(r)
                active.remove(r)
            steps += 1
            assert steps < 100_000, "the loop makes no progress"
        return steps
