"""The oracle of attention against a masked softmax that shares nothing with it."""

import accel
import numpy as np
import pytest
from accel import _core
from cases_attention import ATTENTION
from conftest import open_runtime, tables
from runner import equal_bits, oracle, record, scalar_bits
from test_rows import generator


def positions(ports, keywords, rows):
    """Sequence and position of each row, -1 where it has none; and each sequence's length."""
    pages, block = ports.get("pages"), keywords.get("block", 0)
    reach = pages.shape[-1] * block if block else len(ports["x1"])
    lengths = np.minimum(ports["lengths"].astype(np.int64), reach)
    if "query_extents" in ports:
        n = ports["query_extents"].astype(np.int64)
        begin = np.concatenate([[0], np.cumsum(n)])
        at = np.arange(rows)
        owner = np.searchsorted(begin, at, side="right") - 1
        none = owner >= len(n)
        owner[none] = 0
        place = lengths[owner] - n[owner] + at - begin[owner]
        place[none] = -1
        return owner, place, lengths
    if "base_name" in keywords:
        return np.zeros(rows, int), keywords["base_name"].value + np.arange(rows), lengths
    return np.arange(rows), lengths - 1, lengths


def reference(ports: dict, keywords: dict) -> np.ndarray:
    q = ports["x0"].astype(np.float64)
    shape = q.shape if q.ndim < 4 else (q.shape[0], *q.shape[2:])
    q = q.reshape(-1, *q.shape[-2:])
    k, v = ports["x1"].astype(np.float64), ports["x2"].astype(np.float64)
    out, block = np.zeros_like(q), keywords.get("block", 0)
    owner, place, lengths = positions(ports, keywords, len(q))
    group, scale = q.shape[1] // k.shape[1], np.float64(np.float32(keywords["scale_name"].value))
    for i, (b, p) in enumerate(zip(owner, place, strict=True)):
        j = np.arange(max(0, min(lengths[b], p + 1)))
        j = j[j > p - (keywords.get("window") or 2**60)]
        at = j
        if block:
            at = ports["pages"].reshape(len(lengths), -1)[b, j // block].astype(np.int64)
            at = at * block + j % block
        at = at[at < len(k)]
        if not len(at):
            continue
        scores = np.einsum("hd,jhd->hj", q[i], np.repeat(k[at], group, axis=1)) * scale
        if cap := keywords.get("soft_cap"):
            cap = np.float64(np.float32(cap))
            scores = cap * np.tanh(scores / cap)
        if "sinks" in ports:
            scores = np.concatenate([scores, ports["sinks"].astype(np.float64)[:, None]], axis=1)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights = (weights / weights.sum(1, keepdims=True))[:, : len(at)]
        out[i] = np.einsum("hj,jhd->hd", weights, np.repeat(v[at], group, axis=1))
    return out.reshape(shape)


@pytest.mark.parametrize("point", ATTENTION.points, ids=str)
def test_the_oracle_is_a_masked_softmax(point):
    r = record(open_runtime(tables()[-1]), "attention", point, generator(ATTENTION, point))
    values, budget = oracle(r)["out0"]
    want = reference(r.ports, point.keywords)
    assert values.shape == want.shape
    # Both are float64; budgets are of f32 arithmetic, 2^29 times as coarse.
    slack = np.where(np.isfinite(budget), np.maximum(budget * 1e-6, 1e-12), 0)
    assert np.isfinite(values).all() and (np.abs(values - want) <= slack).all()
    assert (budget[want != 0] > 0).all()


def walk(r, backend: str) -> np.ndarray:
    """The row of a backend, in its order."""
    contents = {
        name: np.ascontiguousarray(a).reshape(-1).view(np.uint8) for name, a in r.ports.items()
    }
    results = _core.oracle(r.builder, contents, scalar_bits(r), level="fma", backend=backend)
    return results["out0"][0]


@pytest.mark.parametrize("point", ATTENTION.points, ids=str)
def test_the_order_of_the_gpus(point):
    """Within the budget; where no row sees into a second block, the bits of the CPU's order."""
    r = record(open_runtime(tables()[-1]), "attention", point, generator(ATTENTION, point))
    values, budget = oracle(r)["out0"]
    got = walk(r, "metal")
    assert (np.abs(got - values) <= budget).all()
    equal_bits(walk(r, "cuda"), got, f"{point}: metal and cuda")
    block, pages = point.keywords.get("block", 0), r.ports.get("pages")
    reach = pages.shape[-1] * block if block else len(r.ports["x1"])
    if np.minimum(r.ports["lengths"].astype(np.int64), reach).max() <= 128:
        equal_bits(got, walk(r, "cpu"), f"{point}: one block")


def test_the_oracle_knows_its_backends():
    r = record(open_runtime(None), "attention", ATTENTION.points[0], np.random.default_rng(0))
    with pytest.raises(accel.AttrError, match="backend is 'tpu' and must be cpu, metal"):
        walk(r, "tpu")
