"""Products by weights of f16 and bf16 in 'nk': a row has the same bits whatever M, so whatever tile
of matrix units it lies in where a device has them (cpp/ops/product_matrix.cc)."""

import numpy as np
import pytest
from accel import tensor as T
from cases import CASES
from conftest import by_device, open_runtime
from runner import Graph, dtype_of, equal_bits, judge, oracle, record, run
from test_rows import generator
from values import NUMPY

PAIRS = [(x, w) for x in ("f32", "f16") for w in ("f16", "bf16")]


def product(runtime, x, w, bias):
    g = Graph(runtime)
    g.ports["w"] = w
    weight = g.builder.weight("w", dtype_of("f16" if w.dtype == np.float16 else "bf16"), w.shape)
    g.output("out", T.linear(g.port("x", x), weight, g.port("b", bias), w_order="nk"))
    return run(runtime.device, g)["out"]


@pytest.mark.parametrize(("dx", "dw"), PAIRS)
def test_rows_of_every_tile_have_the_same_bits(dx, dw, isa, rng):
    runtime, k = open_runtime(isa), 328  # two chunks, and one that ends inside a step
    m, n = by_device(isa, (512, 4096), (70, 33))
    x = rng.standard_normal((m, k)).astype(NUMPY[dx])
    x[1, ::9], x[3, 5], x[5, 7] = 0, np.inf, np.nan
    w = rng.standard_normal((n, k)).astype(NUMPY[dw])
    bias = rng.standard_normal(n).astype(np.float32)
    want = product(runtime, x, w, bias)
    for rows in (1, 2, 8, 9, 16, 17, 32, 33, 64, 70):
        got = product(runtime, x[:rows], w, bias)
        equal_bits(got, want[:rows], f"{rows} rows of {m}")
    for at in (4, m - 1):
        equal_bits(product(runtime, x[at : at + 1], w, bias), want[at : at + 1], f"row {at}")


POINTS = [
    (case, point)
    for case in CASES
    if case.op in ("matmul", "linear")
    for point in case.points
    if point.keywords["w_order"] == "nk"
]


@pytest.mark.parametrize(("case", "point"), POINTS, ids=[f"{c.op}-{p}" for c, p in POINTS])
def test_the_walk_of_matrix16_is_within_the_bound_of_matrix16(case, point):
    """What it makes of specials, subnormals and sums that overflow too, without a GPU."""
    r = record(open_runtime(None), case.op, point, generator(case, point))
    r.backend = "cuda_matrix"
    walk = {name: values for name, (values, _) in oracle(r, "fma").items()}
    judge(case.bound, walk, oracle(r), f"{case.op} {point}")


def test_matrix16_has_a_bound_of_its_own():
    """Products that no matrix unit takes keep the bound of lane16."""
    bounds = {}
    for k in (56, 64, 128, 4096):
        g = Graph(open_runtime(None))
        x, w = (np.ones((1, k), np.float16) for _ in "xw")
        g.output("out", T.matmul(g.port("x", x), g.port("w", w, "weight"), w_order="nk"))
        bounds[k] = []
        for g.backend in ("cuda", "cuda_matrix"):
            values, budget = oracle(g)["out"]
            bounds[k].append(float(budget[0, 0]) / float(values[0, 0]) * 2**24)
    lanes, units = np.array(list(bounds.values())).T
    # r roundings are r / (1 - r u) times u: above r, and below r + 1 while r * r is below 1 / u.
    assert np.floor(lanes).tolist() == [9, 9, 13, 261]
    assert np.floor(units).tolist() == [9, 80, 160, 191]
