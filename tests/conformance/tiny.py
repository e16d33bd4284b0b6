"""A two-layer transformer step with random weights: caches written by operators, every kind of
product, logits out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from accel import F16
from accel import tensor as T
from runner import Graph

PADDING = 2**32 - 1


@dataclass(frozen=True)
class Size:
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    ffn: int = 96
    vocab: int = 101
    capacity: int = 40
    cache: str = "f16"


def weights_of(size: Size, rng) -> dict[str, np.ndarray]:
    """One set of arrays that every plan of a test binds."""

    def matrix(n, k, dtype=np.float32):
        return (rng.standard_normal((n, k)) / np.sqrt(k)).astype(dtype)

    w = {
        "table": matrix(size.vocab, size.hidden) * 4,
        "final": rng.random(size.hidden).astype(np.float32) + 0.5,
    }
    for i in range(size.layers):
        w[f"{i}.norm"] = rng.random(size.hidden).astype(np.float32) + 0.5
        w[f"{i}.norm2"] = rng.random(size.hidden).astype(np.float32) + 0.5
        w[f"{i}.q"] = matrix(size.heads * size.dim, size.hidden, np.float16)
        w[f"{i}.k"] = matrix(size.kv_heads * size.dim, size.hidden)
        w[f"{i}.v"] = matrix(size.kv_heads * size.dim, size.hidden)
        w[f"{i}.o"] = matrix(size.heads * size.dim, size.hidden)  # in kn
        n = size.ffn * size.hidden
        w[f"{i}.gate.codes"] = rng.integers(0, 2**32, n // 8, dtype=np.uint64).astype(np.uint32)
        w[f"{i}.gate.scales"] = (rng.random(n // 32) * 0.03 + 0.01).astype(np.float16)
        w[f"{i}.gate.biases"] = (rng.random(n // 32) * -0.2).astype(np.float16)
        w[f"{i}.up"] = matrix(size.ffn, size.hidden)
        w[f"{i}.down.quants"] = rng.integers(-127, 128, (size.hidden, size.ffn)).astype(np.int8)
        w[f"{i}.down.scales"] = (rng.random(n // 32) * 0.003).astype(np.float16)
    return w


def record(
    runtime, size: Size, w: dict, tokens: int, form: str = "prefill", caches=None, table=(), block=0
) -> Graph:
    """The step over `tokens` tokens in a form of attention; caches are (k, v) arrays, or None.
    With a block, table is the shape of the pages."""
    g = Graph(runtime, f"{form}{tokens}")
    shape = (size.layers, size.capacity, size.kv_heads, size.dim)
    fresh = np.full(shape, np.nan, np.float16 if size.cache == "f16" else np.float32)
    k_array, v_array = caches if caches is not None else (fresh, fresh.copy())
    k, v = g.port("k", k_array, "state"), g.port("v", v_array, "state")
    ids = g.port("ids", np.zeros(tokens, np.uint32))
    slots = g.port("slots", np.zeros(tokens, np.uint32))
    positions = g.port("positions", np.zeros(tokens, np.uint32))
    lengths = g.port("lengths", np.zeros(table[0] if block else 1, np.uint32))
    g.scalar("rope_base", 10000.0)
    g.scalar("scale", 1 / size.dim**0.5)
    options = {}
    if form == "prefill":
        options["base_name"] = g.scalar("base", 0, "u32")
    if block:
        options |= {"pages": g.port("pages", np.zeros(table, np.uint32)), "block": block}
    if form == "ragged":
        options["query_extents"] = g.port("extents", np.zeros(table[0], np.uint32))
    leading = {"decode": [], "batched": [tokens, 1]}.get(form, [tokens])
    query = [*leading, size.heads, size.dim]
    words = g.port("table", w["table"], "weight")
    x = T.gather_rows(words, ids)
    for i in range(size.layers):
        x, k, v = layer(g, size, w, i, x, k, v, (slots, positions, lengths, query), options)
    x = T.rms_norm(x, g.port("final", w["final"], "weight"), eps=1e-5)
    g.output("logits", T.matmul(x, words, w_order="nk"))
    g.written += ["k", "v"]
    return g


def layer(g: Graph, size: Size, w: dict, i: int, x, k, v, shared, options):
    slots, positions, lengths, query = shared
    tokens = x.shape[0]

    def weight(name):
        return g.port(f"{i}.{name}", w[f"{i}.{name}"], "weight")

    def project(h, name, heads):
        return T.reshape(T.matmul(h, weight(name), w_order="nk"), [tokens, heads, size.dim])

    def turn(t):
        return T.rope(t, positions, rotary_dim=size.dim, base_name="rope_base")

    h = T.rms_norm(x, weight("norm"), eps=1e-5)
    q, key, value = (
        turn(project(h, "q", size.heads)),
        turn(project(h, "k", size.kv_heads)),
        project(h, "v", size.kv_heads),
    )
    if size.cache == "f16":
        key, value = T.cast(key, F16), T.cast(value, F16)
    k_next = T.scatter_rows(T.layer_state(k, i), key, slots)
    v_next = T.scatter_rows(T.layer_state(v, i), value, slots)
    seen = T.attention(
        T.reshape(q, query), k_next, v_next, lengths=lengths, scale_name="scale", **options
    )
    x = T.add(x, T.matmul(T.reshape(seen, [tokens, size.heads * size.dim]), weight("o")))
    h = T.rms_norm(x, weight("norm2"), eps=1e-5)
    gate = T.Int4(
        weight("gate.codes"),
        weight("gate.scales"),
        biases=weight("gate.biases"),
        weights=size.ffn * size.hidden,
        group=32,
    )
    middle = T.swiglu(T.int4_matmul(h, gate, w_order="nk"), T.matmul(h, weight("up"), w_order="nk"))
    down = T.Quantized(weight("down.quants"), weight("down.scales"))
    return T.add(x, T.quant_matmul(middle, down, w_order="nk")), k, v


def inputs(ids, base: int, tokens: int) -> dict[str, np.ndarray]:
    """Ports of one call: real tokens first, then padding up to `tokens`."""
    n = len(ids)
    at = np.arange(base, base + n, dtype=np.uint32)
    pad = tokens - n
    return {
        "ids": np.concatenate([np.asarray(ids, np.uint32), np.full(pad, PADDING, np.uint32)]),
        "slots": np.concatenate([at, np.full(pad, PADDING, np.uint32)]),
        "positions": np.concatenate([at, np.arange(base + n, base + tokens, dtype=np.uint32)]),
        "lengths": np.array([base + n], np.uint32),
    }


PROMPT = [3, 41, 7, 92, 18, 60, 5]


def step(runtime, weights: dict, form: str):
    """A step of the model over a filled cache, decode or ragged, and its ports."""
    size, rng = Size(), np.random.default_rng(5)
    shape = (size.layers, size.capacity, size.kv_heads, size.dim)
    caches = tuple(rng.standard_normal(shape).astype(np.float16) for _ in "kv")
    if form == "decode":
        return record(runtime, size, weights, 1, form, caches), inputs([12], 9, 1)
    ports = inputs(PROMPT, 8, len(PROMPT))
    ports["positions"] = np.array([8, 9, 10, 11, 4, 5, 2], np.uint32)
    ports |= {  # three sequences: positions 8 to 11, 4 and 5, 2
        "lengths": np.array([12, 6, 3], np.uint32),
        "extents": np.array([4, 2, 1], np.uint32),
        "pages": np.array([[0, 1], [4, 4], [2, 0]], np.uint32),
        "slots": np.array([8, 9, 10, 11, 36, 37, 18], np.uint32),
    }
    g = record(runtime, size, weights, len(PROMPT), form, caches, (3, 2), 8)
    return g, ports
