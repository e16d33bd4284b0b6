"""Products by weights of f16 and bf16 in 'nk': a row has the same bits whatever M, so whatever tile
of matrix units it lies in where a device has them (cpp/ops/product_matrix.cc)."""

import numpy as np
import pytest
from accel import tensor as T
from conftest import by_device, open_runtime
from runner import Graph, dtype_of, equal_bits, run
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
