"""Two sequences in one ragged step over pages of one pool, each with its own sampling policy."""

from __future__ import annotations

import accel
import numpy as np
from accel import tensor as T

HEADS, DIM, VOCAB, BLOCK, BLOCKS = 4, 16, 50, 8, 6
PADDING = 2**32 - 1  # an id that scatter_rows skips
WIDTH = HEADS * DIM


def step(b: T.Builder, rows: int, sequences: int) -> None:
    """`rows` tokens of `sequences` sequences: embed, attend over the pages, sample the last row."""
    ids, slots = b.input("ids", accel.U32, [rows]), b.input("slots", accel.U32, [rows])
    k = b.state("k", accel.F16, [BLOCKS * BLOCK, HEADS, DIM])
    v = b.state("v", accel.F16, [BLOCKS * BLOCK, HEADS, DIM])
    table = b.weight("table", accel.F32, [VOCAB, WIDTH])
    x = T.gather_rows(table, ids)
    heads = T.reshape(x, [rows, HEADS, DIM])
    kv = T.cast(heads, accel.F16)
    seen = T.attention(
        heads,
        T.scatter_rows(k, kv, slots),
        T.scatter_rows(v, kv, slots),
        lengths=b.input("lengths", accel.U32, [sequences]),
        query_extents=b.input("extents", accel.U32, [sequences]),
        pages=b.input("pages", accel.U32, [sequences, BLOCKS]),
        block=BLOCK,
        scale_name=b.scalar("scale", T.ScalarKind.F32),
    )
    x = x + T.reshape(seen, [rows, WIDTH])
    last = T.gather_rows(x, b.input("last", accel.U32, [sequences]))
    logits = T.matmul(last, table, w_order="nk")
    policy = T.RowSampling(
        b.input("factor", accel.F32, [sequences]), top_k=b.input("top_k", accel.U32, [sequences])
    )
    draws = b.input("draws", accel.F32, [sequences])
    b.output("tokens", T.sample_rows(logits, draws, policy))


runtime = accel.Runtime(accel.open_cpu())
cache = T.PlanCache(runtime)
pool = T.BlockPool(BLOCKS, BLOCK)
prompts = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 7, 1]]
pages = [pool.grow(None, len(p)) for p in prompts]
rng = np.random.default_rng(0)
count = sum(map(len, prompts))
table = rng.standard_normal((VOCAB, WIDTH)).astype(np.float32)
states = {n: np.zeros((BLOCKS * BLOCK, HEADS, DIM), np.float16) for n in ("k", "v")}

slots: list[int] = []
wide = np.full((2, BLOCKS), PADDING, np.uint32)
for row, held, prompt in zip(wide, pages, prompts, strict=True):
    row[: len(held)] = held
    slots += [held[i // BLOCK] * BLOCK + i % BLOCK for i in range(len(prompt))]
tokens = np.zeros(2, np.uint32)
lengths = np.array([len(p) for p in prompts], np.uint32)
plan = cache.compile(lambda b: step(b, count, 2))
fence = plan.submit(
    {
        "ids": np.array(sum(prompts, []), np.uint32),
        "slots": np.array(slots, np.uint32),
        "lengths": lengths,
        "extents": lengths,
        "pages": wide,
        "last": (np.cumsum(lengths) - 1).astype(np.uint32),
        "factor": np.array([1 / 0.7, 0], np.float32),  # the second row is greedy
        "top_k": np.array([10, 0], np.uint32),
        "draws": np.array([T.Stream(7).draw(10), 0], np.float32),
        "table": table,
        "tokens": tokens,
        **states,
    },
    {"scale": DIM**-0.5},
)
assert fence.wait()
print(f"pages {pages}, next tokens {tokens.tolist()}, blocks left {pool.available}")
assert cache.compile(lambda b: step(b, count, 2)) is plan  # recorded again, found by what it says
