"""Pieces of a decode step that one launch does (cpp/plan/combine.cc), for every weight and ring."""

import numpy as np
from accel import BF16, F16
from accel import tensor as T
from runner import Graph

F32, U32 = np.float32, np.uint32

KINDS = ("f16", "bf16", "f32", "int8", "int4_f16", "int4_bf16", "int4_f32")
# K, columns of q, of k and v, of gate and up: between them every ring of one row. Columns that end
# inside a tile, and K with a tail where the weight allows one.
FLOAT = [(64, 70, 3, 40), (576, 40, 37, 70), (1544, 21, 9, 33), (2056, 19, 17, 24),
         (2056, 1030, 700, 2070), (72, 6000, 1500, 8200)]  # fmt: skip
GROUPED = [(64, 70, 3, 40), (576, 40, 37, 70), (704, 33, 9, 33), (2048, 1030, 700, 2070),
           (8192, 70, 19, 2050), (128, 6000, 1500, 16390)]  # fmt: skip


def sizes(kind: str):
    return GROUPED if kind.startswith("int") else FLOAT


def bf16(x):
    """The bits of a bf16 near x."""
    return (x.astype(F32).view(U32) >> 16).astype(np.uint16)


class Weights:
    """Products of one row by weights of one kind, each with arrays of its own."""

    def __init__(self, graph: Graph, kind: str, rng):
        self.graph, self.kind, self.rng, self.n = graph, kind, rng, 0

    def port(self, array):
        self.n += 1
        if array.dtype == np.uint16:  # the bits of bf16
            name = f"w{self.n}"
            self.graph.ports[name] = array
            return self.graph.builder.weight(name, BF16, array.shape)
        return self.graph.port(f"w{self.n}", array, "weight")

    def gain(self, width: int):
        return self.port(self.rng.uniform(0.5, 1.5, width).astype(F32))

    def planes(self, count: int):
        scales = self.rng.uniform(0.01, 0.2, count // 32)
        offsets = self.rng.uniform(-1, 1, count // 32)
        scales[::5] = 0
        dtype = self.kind.split("_")[1]
        return [bf16(a) if dtype == "bf16" else a.astype(dtype.replace("f", "float"))
                for a in (scales, offsets)]  # fmt: skip

    def product(self, x, n: int):
        k, rng = x.shape[-1], self.rng
        if self.kind == "int8":
            quants = self.port(rng.integers(-127, 128, (n, k), np.int8))
            w = T.Quantized(quants, self.port((rng.random(n * k // 32) * 0.1).astype(np.float16)))
            return T.quant_matmul(x, w, w_order="nk")
        if self.kind.startswith("int4"):
            codes = rng.integers(0, 2**32, n * k // 8, dtype=np.uint64).astype(U32)
            scales, biases = (self.port(a) for a in self.planes(n * k))
            w = T.Int4(self.port(codes), scales, biases=biases, weights=n * k, group=32)
            return T.int4_matmul(x, w, w_order="nk")
        w = rng.standard_normal((n, k)).astype(F32)
        w = bf16(w) if self.kind == "bf16" else w.astype(self.kind.replace("f", "float"))
        return T.matmul(x, self.port(w), w_order="nk")


def products(runtime, kind: str, size, data: str = "normal") -> Graph:
    """A norm with q, k and v; one with gate, up and swiglu; products with a residual, whose operand
    stands first and second; a norm with one product."""
    k, q_width, k_width, ffn = size
    rng = np.random.default_rng(k + ffn)
    g = Graph(runtime, f"{kind} {size}")
    w = Weights(g, kind, rng)
    x = rng.standard_normal((1, k)).astype(F32)
    if data == "special":
        x[0, ::7] = 0
        x[0, 3] = np.nan
    if data == "large":
        x *= np.float32(1e19)  # squares beyond f32
    x = g.port("x", x)
    h = T.rms_norm(x, w.gain(k), eps=1e-5)
    for i, n in enumerate((q_width, k_width, k_width)):
        g.output(f"{'qkv'[i]}", w.product(h, n))
    h = T.rms_norm(x, w.gain(k), eps=1e-5)
    middle = T.swiglu(w.product(h, ffn), w.product(h, ffn))
    g.output("middle", middle)
    up = g.port("up", rng.standard_normal((1, k)).astype(F32))
    left = T.add(x, w.product(up, k))
    g.output("left", left)
    right = T.add(w.product(left, k), up)
    g.output("right", right)
    g.output("head", w.product(T.rms_norm(right, w.gain(k), eps=1e-5), ffn))
    return g


def caches(runtime, dtype: str, heads: int = 9, kv: int = 3, width: int = 64) -> Graph:
    """Rope of q and k, and what is written to both caches."""
    rng = np.random.default_rng(heads)
    g = Graph(runtime, f"caches {dtype}")
    state = np.zeros((2, 40, kv, width), np.float16 if dtype == "f16" else F32)
    k_state, v_state = g.port("keys", state, "state"), g.port("values", state, "state")
    at = g.port("at", np.array([17], U32))
    g.scalar("base", 10000.0)
    rows = [rng.standard_normal((1, n, width)).astype(F32) for n in (heads, kv, kv)]
    q, k, v = (g.port(name, a) for name, a in zip("qkv", rows, strict=True))
    options = {"rotary_dim": width, "base_name": "base"}
    k, written = T.rope(k, at, **options), []
    for s, x in ((k_state, k), (v_state, v)):
        x = T.cast(x, F16) if dtype == "f16" else x
        written.append(T.scatter_rows(T.layer_state(s, 1), x, at))
    g.output("turned", T.rope(q, at, **options))
    for s in written:
        g.writes(s)
    return g
