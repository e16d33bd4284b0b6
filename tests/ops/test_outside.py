"""Operators against formulas and packages that share nothing with this library."""

import gguf
import numpy as np
import pytest
from accel import quant
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, oracle, run, within


def attention(q, k, v, length, base, scale):
    """Softmax over an explicit mask, all heads at once; q [S, H, D], caches [capacity, G, D]."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x[:length].astype(np.float64), group, axis=1) for x in (k, v))
    scores = np.einsum("shd,jhd->hsj", q.astype(np.float64), k) * scale
    hidden = np.arange(length)[None, :] > base + np.arange(len(q))[:, None]
    scores[:, hidden] = -np.inf
    scores -= scores.max(-1, keepdims=True)
    weights = np.exp(scores)
    return np.einsum("hsj,jhd->shd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_attention_equals_masked_softmax(dtype, isa, rng):
    q = rng.standard_normal((9, 6, 32)).astype(np.float32)
    k, v = (rng.standard_normal((200, 2, 32)).astype(dtype) for _ in range(2))
    g = Graph(open_runtime(isa))
    out = T.attention(
        g.port("q", q),
        g.port("k", k, "state"),
        g.port("v", v, "state"),
        lengths=g.port("len", np.array([150], np.uint32)),
        scale_name=g.scalar("scale", 0.25),
        base_name=g.scalar("base", 141, "u32"),
    )
    g.output("out", out)
    budget = oracle(g)["out"][1]
    want = attention(q, k, v, 150, 141, 0.25)
    within(run(open_runtime(isa).device, g)["out"], want, budget, "attention")


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_p26_15_rope_is_a_complex_product(pairing, isa, rng):
    x = rng.standard_normal((50, 40)).astype(np.float32)
    positions = rng.integers(0, 5000, 50).astype(np.uint32)
    g = Graph(open_runtime(isa))
    base = g.scalar("base", 10000.0)
    t = T.rope(
        g.port("x", x), g.port("p", positions), rotary_dim=32, pairing=pairing, base_name=base
    )
    g.output("out", t)
    f = np.exp(-2 * np.arange(16) / 32 * np.log(10000.0)).astype(np.float32)
    angle = (positions[:, None].astype(np.float32) * f).astype(np.float64)
    first, second = (
        (slice(0, 16), slice(16, 32)) if pairing == "halves" else (slice(0, 32, 2), slice(1, 32, 2))
    )
    turned = (x[:, first] + 1j * x[:, second].astype(np.float64)) * np.exp(1j * angle)
    want = x.astype(np.float64)
    want[:, first], want[:, second] = turned.real, turned.imag
    within(run(open_runtime(isa).device, g)["out"], want, oracle(g)["out"][1], "rope")


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_products_over_gguf_blocks_equal_the_packages_weights(name, isa, rng):
    """Nibble order, scales and offsets, seen through a product, bit for bit."""
    kind = gguf.GGMLQuantizationType[name]
    n, k = 24, 96
    blocks = gguf.quants.quantize(rng.standard_normal((n, k)).astype(np.float32), kind)
    weight = gguf.quants.dequantize(blocks, kind).astype(np.float32).reshape(n, k)
    planes, error = quant.gguf_planes(int(kind), blocks.reshape(-1).view(np.uint8), [n, k])
    assert error == 0
    runtime, x = open_runtime(isa), rng.standard_normal((3, k)).astype(np.float32)
    g, h = Graph(runtime), Graph(runtime)
    g.output("out", product(g, g.port("x", x), planes))
    h.output("out", T.matmul(h.port("x", x), h.port("w", weight, "weight"), w_order="nk"))
    got = run(runtime.device, g)["out"]
    equal_bits(got, run(runtime.device, h)["out"], name)
    spoiled = weight[:, ::-1].copy()
    with pytest.raises(AssertionError):
        equal_bits(got, run(runtime.device, h, ports={"w": spoiled})["out"], "a wrong order")


def product(g: Graph, x, planes):
    if isinstance(planes, quant.Int8Planes):
        w = T.Quantized(g.port("q", planes.quants, "weight"), g.port("s", planes.scales, "weight"))
        return T.quant_matmul(x, w, w_order="nk")
    name = "zeros" if planes.zeros is not None else "biases"
    third = {name: g.port(name, getattr(planes, name), "weight")}
    codes, scales = g.port("c", planes.codes, "weight"), g.port("s", planes.scales, "weight")
    w = T.Int4(codes, scales, weights=planes.weights, group=planes.group, **third)
    return T.int4_matmul(x, w, w_order="nk")
