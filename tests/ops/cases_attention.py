"""Rows of attention: its four forms, paged or not, what a row sees, and its options.

Caches hold numbers only where a position of some sequence lives; all other rows are NaN, which no
result may see.
"""

from __future__ import annotations

import zlib

import numpy as np
from case import BUDGET, Case, In, P, Scalar

NOWHERE = 2**32 - 1  # a page out of range


def ids(*values):
    return ("list", values)


def _contiguous_points():
    for dtype in ("f32", "f16"):
        for heads, kv, dim, cap, length in [
            (1, 1, 8, 1, 1),
            (4, 2, 16, 40, 33),
            (9, 3, 64, 300, 127),
            (9, 3, 64, 300, 128),
            (2, 1, 256, 150, 129),
            (4, 4, 40, 260, 257),
            (2, 2, 8, 16, 99),
            (2, 1, 24, 500, 500),
        ]:
            cache = In((cap, kv, dim), dtype, ("cache", length), "state")
            yield P(
                In((heads, dim)),
                cache,
                cache,
                lengths=In((1,), "u32", ids(length)),
                scale_name=Scalar("f32", 1 / dim**0.5),
                name=f"decode-{dtype}-h{heads}k{kv}d{dim}-{length}of{cap}",
            )
        for s, heads, kv, dim, cap, length, base in [
            (1, 4, 2, 16, 40, 33, 32),
            (5, 4, 2, 16, 40, 5, 0),
            (7, 2, 1, 64, 300, 140, 133),
            (130, 3, 3, 8, 300, 130, 0),
            (33, 2, 1, 32, 300, 289, 256),
            (4, 2, 2, 16, 40, 38, 36),
            (4, 2, 2, 16, 64, 4, 2**32 - 2),
        ]:
            cache = In((cap, kv, dim), dtype, ("cache", length), "state")
            yield P(
                In((s, heads, dim)),
                cache,
                cache,
                lengths=In((1,), "u32", ids(length)),
                scale_name=Scalar("f32", 1 / dim**0.5),
                base_name=Scalar("u32", base),
                name=f"prefill-{dtype}-s{s}h{heads}k{kv}d{dim}-{length}of{cap}-at{base}",
            )
        cache = In((20, 2, 16), dtype, ("cache", 0), "state")
        yield P(
            In((4, 16)),
            cache,
            cache,
            lengths=In((1,), "u32", ids(0)),
            scale_name=Scalar("f32", 0.25),
            name=f"decode-{dtype}-empty",
            trivial=True,
        )
        cache = In((300, 1, 64), dtype, ("cache", 300), "state")
        yield P(
            In((2, 64), data="large_scores"),
            cache,
            cache,
            lengths=In((1,), "u32", ids(300)),
            scale_name=Scalar("f32", 4.0),
            name=f"decode-{dtype}-peaked",
        )


# ------------------------------------------------------------------ pages


def table_of(name, lengths, block, pages, capacity, bad=()):
    """Pages in no order for each sequence, NOWHERE beyond its length and at the `bad` (sequence,
    page), and the rows of the cache that are written."""
    free = np.random.default_rng(zlib.crc32(name.encode())).permutation(-(-capacity // block))
    table, written, taken = np.full((len(lengths), pages), NOWHERE, np.uint32), [], 0
    for b, length in enumerate(lengths):
        for i in range(min(-(-length // block), pages)):
            page = free[taken]
            taken += 1
            rows = np.arange(page * block, page * block + min(block, length - i * block))
            if (b, i) not in bad:
                table[b, i] = page
                written += rows[rows < capacity].tolist()
    return table, tuple(written)


def paged(form, dtype, heads, dim, cap, block, pages, lengths, *, extents=(), rows=1, base=0,
          bad=(), flat=False, tag="", trivial=False, **options):  # fmt: skip
    """One paged call; heads are (query heads, kv heads). Options go through as they are."""
    n = ",".join(map(str, lengths))
    name = f"{form}-{dtype}-h{heads[0]}k{heads[1]}d{dim}-{n}of{cap}-{pages}x{block}{tag}"
    table, written = table_of(name, lengths, block, pages, cap, bad)
    q = {
        "decode": (heads[0], dim),
        "prefill": (rows, heads[0], dim),
        "batched": (len(lengths), 1, heads[0], dim),
        "ragged": (rows, heads[0], dim),
    }[form]
    cache = In((cap, heads[1], dim), dtype, ("cache_at", written), "state")
    if form == "prefill":
        options["base_name"] = Scalar("u32", base)
    if form == "ragged":
        options["query_extents"] = In((len(extents),), "u32", ids(*extents))
        name += f"-rows{rows}of" + ",".join(map(str, extents))
    return P(
        In(q),
        cache,
        cache,
        lengths=In((len(lengths),), "u32", ids(*lengths)),
        scale_name=Scalar("f32", 1 / dim**0.5),
        pages=In((pages,) if flat else table.shape, "u32", ids(*table.ravel().tolist())),
        block=block,
        name=name,
        trivial=trivial,
        **options,
    )


def _paged_points():
    for dtype in ("f32", "f16"):
        for block, pages, cap in [(1, 300, 310), (16, 20, 330), (128, 4, 600), (200, 3, 700)]:
            yield paged("decode", dtype, (4, 2), 16, cap, block, pages, [290], flat=block == 16)
            yield paged(
                "prefill", dtype, (3, 1), 24, cap, block, pages, [150], rows=30, base=120,
                flat=block == 1,
            )  # fmt: skip
            yield paged("batched", dtype, (6, 3), 8, cap, block, pages, [33, 1, 129, 0])
            yield paged(
                "ragged", dtype, (4, 2), 16, cap, block, pages, [7, 140, 16, 60],
                extents=[7, 9, 0, 1], rows=17,
            )  # fmt: skip
        # The length is clamped to what the pages reach; the last block leaves the cache.
        yield paged("decode", dtype, (2, 1), 256, 150, 64, 2, [500])
        yield paged("decode", dtype, (2, 2), 40, 100, 64, 2, [120])
        # Pages out of range, a whole block of them, and nothing else.
        bad = [(0, i) for i in range(0, 20, 3)] + [(1, i) for i in range(8, 16)]
        yield paged("batched", dtype, (4, 2), 32, 900, 16, 20, [300, 260], bad=bad, tag="-bad")
        yield paged("ragged", dtype, (4, 2), 32, 900, 16, 20, [300, 260], bad=bad, tag="-bad",
                    extents=[40, 3], rows=43)  # fmt: skip
        every = [(0, i) for i in range(3)]
        yield paged("decode", dtype, (2, 1), 8, 60, 16, 3, [40], bad=every, tag="-nowhere",
                    trivial=True)  # fmt: skip
        # Tokens that stand before their sequence, rows past the sum, a sum past the rows.
        yield paged("ragged", dtype, (2, 1), 16, 80, 8, 4, [3, 30, 0], extents=[5, 4, 2], rows=20)
        yield paged("ragged", dtype, (2, 1), 16, 80, 8, 4, [9, 30], extents=[5, 20], rows=11)
        yield paged("ragged", dtype, (2, 1), 16, 80, 8, 4, [9, 30], extents=[0, 0], rows=3,
                    trivial=True)  # fmt: skip
        yield paged("ragged", dtype, (2, 2), 16, 80, 8, 4, [9], extents=[2**32 - 1], rows=3,
                    trivial=True)  # fmt: skip
        # Many rows of one sequence among single ones, over several blocks.
        yield paged("ragged", dtype, (3, 1), 8, 900, 32, 20, [290, 1, 300, 140],
                    extents=[1, 1, 150, 1], rows=153)  # fmt: skip
        yield paged("prefill", dtype, (2, 2), 16, 40, 8, 5, [38], rows=4, base=36, tag="-past")
        yield paged("prefill", dtype, (2, 2), 16, 40, 8, 5, [4], rows=4, base=2**32 - 2)


# ------------------------------------------------------------------ options


def _options():
    sinks = {"sinks": In((4,), "f32", ids(-3.0, 0.5, 4.0, 200.0))}
    for window in (1, 5, 16, 127, 128, 129, 1000, 2**40):
        yield f"-window{window}", {"window": window}
    for cap in (0.5, 30.0):
        yield f"-cap{cap}", {"soft_cap": cap}
    yield "-sinks", sinks
    yield "-all", {"window": 60, "soft_cap": 2.0, **sinks}


def _option_points():
    for dtype in ("f32", "f16"):
        for tag, options in _options():
            yield paged("ragged", dtype, (4, 2), 16, 700, 16, 24, [290, 150, 40],
                        extents=[20, 1, 40], rows=63, tag=tag, **options)  # fmt: skip
        for tag, options in [*_options()][-3:]:
            yield paged("decode", dtype, (4, 2), 16, 700, 128, 3, [290], tag=tag, **options)
            yield paged("prefill", dtype, (4, 4), 8, 700, 16, 24, [200], rows=150, base=50,
                        tag=tag, **options)  # fmt: skip
            yield paged("batched", dtype, (4, 1), 64, 700, 16, 24, [0, 290, 3], tag=tag, **options)
        # So many pages that no device keeps a part of each block at once.
        yield paged("prefill", dtype, (2, 1), 16, 300, 2**20, 400, [290], rows=2, base=288,
                    tag="-reach")  # fmt: skip
        # Rows whose windows lie beyond the length see nothing; bad pages meet a window.
        yield paged("prefill", dtype, (4, 2), 16, 40, 8, 5, [38], rows=9, base=36, tag="-past",
                    window=3)  # fmt: skip
        yield paged("ragged", dtype, (4, 2), 16, 400, 16, 20, [300], rows=40, extents=[40],
                    bad=[(0, i) for i in range(0, 20, 3)], tag="-bad-window", window=70,
                    sinks=In((4,)))  # fmt: skip
    for tag, options in [("", {}), *_options()]:
        more = {"operands": "f16", **options}
        yield paged("ragged", "f16", (4, 2), 24, 700, 16, 24, [290, 150, 40],
                    extents=[20, 1, 40], rows=63, tag=f"-narrow{tag}", **more)  # fmt: skip
    for heads, tag in [((4, 2), "-narrow"), ((2, 2), "-narrow-unshared")]:
        yield paged("decode", "f16", heads, 64, 300, 16, 20, [280], tag=tag, operands="f16")


ATTENTION = Case(
    "attention",
    BUDGET,
    tuple(_contiguous_points()) + tuple(_paged_points()) + tuple(_option_points()),
)
