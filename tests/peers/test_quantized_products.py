"""Int4 and int8 products against other people's kernels and decoders: ONNX Runtime's MatMulNBits,
MLX's quantized_matmul, and GGUF blocks as the `gguf` package dequantizes them.

Two sums of the same products differ by their orders only: ours stays within its derived budget of
the float64 product, theirs within the bound of one chain over K. That ours is no absurd bound is
asserted too: some element uses a hundredth of it.
"""

import accel
import gguf
import mlx.core as mx
import numpy as np
import onnx
import onnxruntime
import pytest
from accel import tensor as T
from conftest import open_runtime
from onnx import TensorProto, helper
from runner import Graph, oracle, run

pytestmark = pytest.mark.peers

U = 2.0**-24
TIGHT = 100
SHAPES = [(1, 96, 33), (7, 256, 64), (17, 1024, 40)]  # M, K, N


def chain_bound(x, w) -> np.ndarray:
    """Of any order of K fused or rounded products: gamma(K + 1) times the sum of magnitudes; one
    more rounding of each weight where a peer rounds it."""
    n = x.shape[1] + 2
    return n * U / (1 - n * U) * (np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T)


def activations(rng, m: int, k: int) -> np.ndarray:
    """Normal rows, and rows of one sign, whose running sums grow and round the most."""
    x = rng.standard_normal((m, k)).astype(np.float32)
    x[1::2] = np.abs(x[1::2])
    return x


def ours(build, x, arrays: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Result, float64 value and budget of `build(graph, x, ports)`."""
    runtime = open_runtime(None, 2)
    g = Graph(runtime)
    ports = {name: g.port(name, a, "weight") for name, a in arrays.items()}
    g.output("out", build(g.port("x", x), ports))
    value, budget = oracle(g)["out"]
    return run(runtime.device, g)["out"], value, budget


def judge(got, value, budget, peer, x, w) -> None:
    # The reference sums weights that are not rounded to f32; dense ones are.
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    gross = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T
    assert (np.abs(value - exact) <= 3 * U * gross).all()
    used = np.abs(got - value) / budget
    assert used.max() <= 1
    # A worst case grows with K, an error of random numbers with its root.
    if x.shape[1] <= 512:
        assert used.max() >= 1 / TIGHT, f"the bound is {1 / used.max():.0f} times the largest error"
    assert (np.abs(got.astype(np.float64) - peer) <= budget + chain_bound(x, w)).all()


# ------------------------------------------------------------------ ONNX Runtime


def mat_mul_nbits(x, blocks, scales, zeros, bits: int, shape) -> np.ndarray:
    _, k, n = shape
    inputs = [("x", x), ("b", blocks), ("s", scales)] + (
        [("z", zeros)] if zeros is not None else []
    )
    node = helper.make_node(
        "MatMulNBits",
        [name for name, _ in inputs],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=32,
    )
    kinds = {np.dtype("f4"): TensorProto.FLOAT, np.dtype("u1"): TensorProto.UINT8}
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info(name, kinds[a.dtype], a.shape) for name, a in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [x.shape[0], n])],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))[0]


def packed_words(codes: np.ndarray) -> np.ndarray:
    """u32 words of eight codes, low nibble first."""
    flat = codes.reshape(-1, 8).astype(np.uint32)
    return (flat << (4 * np.arange(8, dtype=np.uint32))).sum(1, dtype=np.uint32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int4_against_onnx_runtime(shape, rng):
    m, k, n = shape
    x = activations(rng, m, k)
    codes = rng.integers(0, 16, (n, k), dtype=np.uint8)
    blocks = k // 32
    scales = (rng.random((n, blocks)) * 0.1 + 0.01).astype(np.float32)
    zeros = rng.integers(0, 16, (n, blocks), dtype=np.uint8)
    pairs = codes.reshape(n, blocks, 16, 2)
    blob = (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)
    even = np.concatenate([zeros, np.zeros((n, blocks % 2), np.uint8)], 1).reshape(n, -1, 2)
    packed_zeros = (even[..., 0] | even[..., 1] << 4).astype(np.uint8)
    peer = mat_mul_nbits(x, blob, scales.ravel(), packed_zeros.ravel(), 4, shape)
    w = (codes - np.repeat(zeros, 32, 1).astype(np.float32)) * np.repeat(scales, 32, 1)

    def build(t, p):
        bundle = T.Int4(p["codes"], p["scales"], p["zeros"], weights=n * k, group=32)
        return T.int4_matmul(t, bundle, w_order="nk")

    planes = {
        "codes": packed_words(codes),
        "scales": scales.ravel(),
        "zeros": zeros.ravel().astype(np.float32),
    }
    judge(*ours(build, x, planes), peer, x, w.astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8_against_onnx_runtime(shape, rng):
    m, k, n = shape
    x = activations(rng, m, k)
    quants = rng.integers(-127, 128, (n, k)).astype(np.int8)
    scales = (rng.random((n, k // 32)) * 0.01).astype(np.float16)
    blob = (quants.astype(np.int16) + 128).astype(np.uint8).reshape(n, k // 32, 32)
    peer = mat_mul_nbits(x, blob, scales.astype(np.float32).ravel(), None, 8, shape)
    w = quants * np.repeat(scales.astype(np.float32), 32, 1)

    def build(t, p):
        return T.quant_matmul(t, T.Quantized(p["quants"], p["scales"]), w_order="nk")

    judge(*ours(build, x, {"quants": quants, "scales": scales.ravel()}), peer, x, w)


# ------------------------------------------------------------------ MLX


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("shape", [(1, 128, 33), (7, 256, 64), (17, 1024, 40)], ids=str)
def test_int4_against_mlx(shape, group, rng):
    m, k, n = shape
    x = activations(rng, m, k)
    w = rng.standard_normal((n, k)).astype(np.float32)
    codes, scales, biases = mx.quantize(mx.array(w), group_size=group, bits=4)
    peer = mx.quantized_matmul(mx.array(x), codes, scales, biases, True, group, 4)
    dense = np.array(mx.dequantize(codes, scales, biases, group, 4))

    def build(t, p):
        bundle = T.Int4(p["codes"], p["scales"], biases=p["biases"], weights=n * k, group=group)
        return T.int4_matmul(t, bundle, w_order="nk")

    planes = {
        "codes": np.array(codes).ravel(),
        "scales": np.array(scales).ravel(),
        "biases": np.array(biases).ravel(),
    }
    judge(*ours(build, x, planes), np.array(peer), x, dense)


# ------------------------------------------------------------------ GGUF


def gguf_blocks(kind, n: int, k: int, rng) -> np.ndarray:
    return gguf.quants.quantize(rng.standard_normal((n, k)).astype(np.float32), kind)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_against_the_gguf_package(shape, name, rng):
    m, k, n = shape
    kind = gguf.GGMLQuantizationType[name]
    x = activations(rng, m, k)
    blocks = gguf_blocks(kind, n, k, rng)
    w = gguf.quants.dequantize(blocks, kind)
    planes, error = accel.quant.gguf_planes(name, blocks.ravel(), (n, k))
    assert error == 0

    def int8(t, p):
        return T.quant_matmul(t, T.Quantized(p["quants"], p["scales"]), w_order="nk")

    def int4(t, p):
        bundle = T.Int4(
            p["codes"], p["scales"], p.get("zeros"), biases=p.get("biases"), weights=n * k, group=32
        )
        return T.int4_matmul(t, bundle, w_order="nk")

    if name == "Q8_0":
        arrays = {"quants": planes.quants.reshape(n, k), "scales": planes.scales}
    else:
        given = {f: getattr(planes, f) for f in ("codes", "scales", "zeros", "biases")}
        arrays = {f: a for f, a in given.items() if a is not None}
    peer = x.astype(np.float64) @ w.astype(np.float64).T
    judge(*ours(int8 if name == "Q8_0" else int4, x, arrays), peer, x, w)


def test_the_packages_are_the_ones_named():
    assert onnx.__version__ == "1.23.2" and onnxruntime.__version__ == "1.32.0"
