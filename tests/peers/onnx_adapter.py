"""How each ONNX operator is written with ours. One function an operator; they take the case and an
empty graph and give the results in ONNX's order."""

from __future__ import annotations

import accel
import numpy as np
from accel import tensor as T
from onnx_cases import BF16, Case, Excluded, Net

F32 = np.dtype("f4")
FLOATS = "arithmetic is on f32 and f16 (CONTRACT 9)"
ROWS = "works along the last axis (CONTRACT 11, 17)"


def _float(case: Case, *indices: int) -> None:
    for i in indices:
        case.need(case.ins[i].dtype in (F32, np.dtype("f2")), f"{case.ins[i].dtype.name}: {FLOATS}")


# ---------------------------------------------------------------- elementwise


def _binary(op):
    def adapter(case: Case, net: Net):
        _float(case, 0, 1)
        return net.run(op(net.array(case.ins[0]), net.array(case.ins[1])))

    return adapter


def _unary(op):
    def adapter(case: Case, net: Net):
        _float(case, 0)
        return net.run(op(net.array(case.ins[0])))

    return adapter


def gelu(case: Case, net: Net):
    form = "tanh" if case.attrs.get("approximate") == b"tanh" else "erf"
    return net.run(T.gelu(net.array(case.ins[0]), form=form))


def swish(case: Case, net: Net):
    case.need(case.attrs.get("alpha", 1.0) == 1.0, "silu has no factor inside (CONTRACT 9)")
    return net.run(T.silu(net.array(case.ins[0])))


def swiglu(case: Case, net: Net):
    gate, value = net.array(case.ins[0]), net.array(case.ins[1])
    alpha = case.attrs.get("alpha", 1.0)
    if alpha == 1.0:
        return net.run(T.swiglu(gate, value))
    inner = T.sigmoid(T.scale(gate, net.f32(alpha)))
    return net.run(gate * inner * value)


def clip(case: Case, net: Net):
    _float(case, 0)
    low = case.ins[1] if case.given(1) else -np.inf
    high = case.ins[2] if case.given(2) else np.inf
    case.need(float(low) <= float(high), "clamp refuses low > high (CONTRACT E7)")
    return net.run(T.clamp(net.array(case.ins[0]), low=float(low), high=float(high)))


def cast(case: Case, net: Net):
    x, want = case.ins[0], case.outs[0].dtype
    pairs = {(F32, np.dtype("f2")), (np.dtype("f2"), F32), (BF16, F32)}
    clause = "cast converts f32 to f16, f16 to f32, bf16 to f32 (CONTRACT 9)"
    case.need((x.dtype, want) in pairs, f"{x.dtype.name} to {want.name}: {clause}")
    return net.run(T.cast(net.array(x), accel.F16 if want == np.dtype("f2") else accel.F32))


# ---------------------------------------------------------------- movement


def _computed(x, net: Net):
    """A view of an input is no output (CONTRACT 6); times one it is a computed value."""
    if x.dtype != accel.F32:
        raise Excluded("an output that only copies an input is refused (CONTRACT 6)")
    return T.scale(T.contiguous(x), net.f32(1.0))


def transpose(case: Case, net: Net):
    x = net.array(case.ins[0])
    perm = case.attrs.get("perm") or list(range(len(x.shape)))[::-1]
    return net.run(_computed(T.permute(x, perm), net))


def reshape(case: Case, net: Net):
    shape = case.outs[0].shape
    return net.run(T.reshape(_computed(net.array(case.ins[0]), net), shape))


def expand(case: Case, net: Net):
    return net.run(T.contiguous(T.broadcast(net.array(case.ins[0]), case.outs[0].shape)))


def tile(case: Case, net: Net):
    x = net.array(case.ins[0])
    for axis, times in enumerate(case.ins[1].tolist()):
        x = T.concat(*[x] * times, axis=axis) if times > 1 else x
    return net.run(x)


def concat(case: Case, net: Net):
    return net.run(T.concat(*[net.array(x) for x in case.ins], axis=case.attrs["axis"]))


def slice_(case: Case, net: Net):
    x = net.array(case.ins[0])
    starts, ends = case.ins[1].tolist(), case.ins[2].tolist()
    axes = case.ins[3].tolist() if case.given(3) else range(len(starts))
    steps = case.ins[4].tolist() if case.given(4) else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        case.need(step == 1, "slice has unit steps (CONTRACT 8)")
        low, high, _ = np.s_[start:end].indices(x.shape[axis])
        case.need(high > low, "a dimension is positive (CONTRACT 1)")
        x = T.slice(x, axis, low, high)
    return net.run(_computed(x, net))


def split(case: Case, net: Net):
    x, axis = net.array(case.ins[0]), case.attrs.get("axis", 0)
    at, parts = 0, []
    for out in case.outs:
        size = out.shape[axis]
        case.need(size > 0, "a dimension is positive (CONTRACT 1)")
        parts.append(_computed(T.slice(x, axis, at, at + size), net))
        at += size
    return net.run(*parts)


def gather(case: Case, net: Net):
    x, ids = case.ins[0], case.ins[1]
    axis = case.attrs.get("axis", 0) % x.ndim
    ids = np.where(ids < 0, ids + x.shape[axis], ids).astype(np.uint32)
    moved = [axis] + [i for i in range(x.ndim) if i != axis]
    table = T.contiguous(T.permute(net.array(x), moved)) if axis else net.array(x)
    rest = [x.shape[i] for i in moved[1:]]
    rows = T.gather_rows(T.reshape(table, [x.shape[axis], int(np.prod(rest))]), net.array(ids))
    rows = T.reshape(rows, [*ids.shape, *rest])
    n = ids.ndim  # the index axes go to the place of the gathered one
    order = [*range(n, n + axis), *range(n), *range(n + axis, n + len(rest))]
    moved = T.permute(rows, order)
    return net.run(rows if order == sorted(order) else T.contiguous(moved))


def tensor_scatter(case: Case, net: Net):
    cache, update = case.ins[0], case.ins[1]
    axis = case.attrs.get("axis", -2) % cache.ndim
    case.need(axis == cache.ndim - 2, "rows are the last axis (CONTRACT 7)")
    batch, size, width = cache.shape[0], cache.shape[axis], cache.shape[-1]
    inner = int(np.prod(cache.shape[1:axis], initial=1))
    count = update.shape[axis]
    at = case.ins[2].reshape(batch, 1, 1) + np.arange(count).reshape(1, 1, count)
    if case.attrs.get("mode", b"linear") == b"circular":
        at = at % size
    base = (np.arange(batch * inner) * size).reshape(batch, inner, 1)
    ids = (base + at).astype(np.uint32)
    state = net.state_of(cache.reshape(-1, width))
    net.writes(T.scatter_rows(state, net.array(update.reshape(-1, width)), net.array(ids.ravel())))
    net.run()
    return [net.results[state.name].reshape(cache.shape)]


# ---------------------------------------------------------------- rows


def _last_axis(case: Case, net: Net, op):
    """op over `axis`, moved to the end and back."""
    x = net.array(case.ins[0])
    rank = len(x.shape)
    axis = case.attrs.get("axis", -1) % rank
    if axis == rank - 1:
        return net.run(op(x))
    y = op(T.contiguous(T.transpose(x, axis, rank - 1)))
    return net.run(T.contiguous(T.transpose(y, axis, rank - 1)))


def softmax(case: Case, net: Net):
    return _last_axis(case, net, T.softmax)


def log_softmax(case: Case, net: Net):
    return _last_axis(case, net, T.log_softmax)


def rms_normalization(case: Case, net: Net):
    x, gain = case.ins
    axis = case.attrs.get("axis", -1) % x.ndim
    width = int(np.prod(x.shape[axis:]))
    rows = T.reshape(net.array(x), [x.size // width, width])
    eps = case.attrs.get("epsilon", 1e-5)
    return net.run(T.rms_norm(rows, net.array(gain.reshape(-1)), eps=eps))


def arg_max(case: Case, net: Net):
    _float(case, 0)
    last = case.attrs.get("select_last_index", 0)
    case.need(not last, "the lowest index among equals wins (CONTRACT 17)")
    x = net.array(case.ins[0])
    rank = len(x.shape)
    axis = case.attrs.get("axis", 0) % rank
    order = [i for i in range(rank) if i != axis] + [axis]
    x = x if axis == rank - 1 else T.contiguous(T.permute(x, order))
    return net.run(T.argmax(x))


def top_k(case: Case, net: Net):
    case.need(case.ins[0].dtype == F32, f"{case.ins[0].dtype.name}: top_k takes f32 (CONTRACT E7)")
    case.need(case.attrs.get("largest", 1) == 1, "the largest come first (CONTRACT E7)")
    axis = case.attrs.get("axis", -1) % case.ins[0].ndim
    case.need(axis == case.ins[0].ndim - 1, f"top_k {ROWS}")
    return net.run(*T.top_k(net.array(case.ins[0]), int(case.ins[1][0])))


# ---------------------------------------------------------------- products


def mat_mul(case: Case, net: Net):
    x, w = case.ins
    _float(case, 0, 1)
    x = x.reshape(1, -1) if x.ndim == 1 else x
    w = w.reshape(-1, 1) if w.ndim == 1 else w
    lead = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    left = np.broadcast_to(x, (*lead, *x.shape[-2:])).reshape(-1, *x.shape[-2:])
    right = np.broadcast_to(w, (*lead, *w.shape[-2:])).reshape(-1, *w.shape[-2:])
    parts = [T.matmul(net.array(a), net.array(b)) for a, b in zip(left, right, strict=True)]
    return net.run(T.concat(*parts, axis=0) if len(parts) > 1 else parts[0])


def gemm(case: Case, net: Net):
    a, b = net.array(case.ins[0]), net.array(case.ins[1])
    if case.attrs.get("transA"):
        a = T.contiguous(T.transpose(a, 0, 1))
    y = T.matmul(a, b, w_order="nk" if case.attrs.get("transB") else "kn")
    if case.attrs.get("alpha", 1.0) != 1.0:
        y = T.scale(y, net.f32(case.attrs["alpha"]))
    if case.given(2):
        bias = net.array(case.ins[2])
        if case.attrs.get("beta", 1.0) != 1.0:
            bias = T.scale(bias, net.f32(case.attrs["beta"]))
        y = y + bias
    return net.run(y)


# ---------------------------------------------------------------- sequence operators


def rotary_embedding(case: Case, net: Net):
    """By slice, mul, sub, add and concat: the tables are random numbers, not rotations."""
    x = case.ins[0]
    if x.ndim == 4:
        tokens = x.transpose(0, 2, 1, 3)
    else:
        tokens = x.reshape(*x.shape[:2], case.attrs["num_heads"], -1)
    batch, length, heads, dim = tokens.shape
    tables = []
    for t in case.ins[1:3]:
        rows = t[case.ins[3]] if case.given(3) else t
        # One row of the table for all heads of its token.
        flat = rows.reshape(batch * length, 1, rows.shape[-1])
        shape = [batch * length, heads, rows.shape[-1]]
        tables.append(T.contiguous(T.broadcast(net.array(flat), shape)))
    cos, sin = tables
    v = net.array(tokens.reshape(batch * length, heads, dim))
    rotary = case.attrs.get("rotary_embedding_dim") or dim
    half = rotary // 2

    def part(start: int, end: int):
        return T.contiguous(T.slice(v, 2, start, end))

    if case.attrs.get("interleaved"):
        pairs = T.reshape(part(0, rotary), [batch * length, heads, half, 2])
        a, b = (
            T.reshape(T.contiguous(T.slice(pairs, 3, i, i + 1)), [batch * length, heads, half])
            for i in (0, 1)
        )
    else:
        a, b = part(0, half), part(half, rotary)
    real, imag = T.sub(cos * a, sin * b), sin * a + cos * b
    if case.attrs.get("interleaved"):
        one = [batch * length, heads, half, 1]
        both = T.concat(T.reshape(real, one), T.reshape(imag, one), axis=3)
        rotated = T.reshape(both, [batch * length, heads, rotary])
    else:
        rotated = T.concat(real, imag, axis=2)
    if rotary < dim:
        rotated = T.concat(rotated, part(rotary, dim), axis=2)
    (y,) = net.run(rotated)
    y = y.reshape(tokens.shape)
    return [y.transpose(0, 2, 1, 3) if x.ndim == 4 else y.reshape(x.shape)]


def _token_major(x: np.ndarray, heads: int | None) -> np.ndarray:
    """[batch, tokens, heads, dim] of ONNX's [batch, heads, tokens, dim] or [batch, tokens, all]."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    return x.reshape(*x.shape[:2], heads, -1)


def _check_attention(case: Case) -> None:
    narrow = case.ins[0].dtype == BF16
    case.need(not narrow, "bf16: q is f32, caches are f32 or f16 (CONTRACT 15)")
    case.need(not case.given(3), "attention takes no mask (CONTRACT 15)")
    case.need("qk_matmul_output" not in case.out_names, "scores are no result (CONTRACT 15)")
    case.need(case.attrs.get("right_window_size", -1) == -1, "a window looks back (CONTRACT E5)")


def attention(case: Case, net: Net):
    """A causal case is a prefill over its sequence's page; in others every query row is a sequence
    of the batched form, with its own length."""
    _check_attention(case)
    attrs = case.attrs
    q = _token_major(case.ins[0], attrs.get("q_num_heads"))
    k = _token_major(case.ins[1], attrs.get("kv_num_heads"))
    v = _token_major(case.ins[2], attrs.get("kv_num_heads"))
    case.need(k.shape[-1] == v.shape[-1], "k and v have one shape (CONTRACT 15)")
    case.need(q.shape[-1] % 8 == 0, "head_dim is a multiple of 8 (CONTRACT 15)")
    batch, rows, heads, dim = q.shape
    past = case.ins[4].shape[2] if case.given(4) else 0
    length = past + k.shape[1]
    states = []
    for new, at in ((k, 4), (v, 5)):
        # Caches hold f32 or f16; bf16 is widened exactly.
        dtype = np.dtype("f2") if new.dtype == np.dtype("f2") else F32
        cache = np.full((batch, length, *new.shape[2:]), np.nan, dtype)
        if past:
            cache[:, :past] = case.ins[at].transpose(0, 2, 1, 3)
        state = net.state_of(cache.reshape(-1, *new.shape[2:]))
        ids = np.arange(batch).reshape(-1, 1) * length + past + np.arange(new.shape[1])
        rows_in = net.array(new.astype(dtype).reshape(-1, *new.shape[2:]))
        states.append(T.scatter_rows(state, rows_in, net.array(ids.astype(np.uint32).ravel())))
        net.writes(states[-1])
    filled = case.ins[6] if case.given(6) else np.full(batch, length)
    offset = filled - rows if case.given(6) else np.full(batch, past)
    seen = np.repeat(filled, rows)
    if attrs.get("is_causal"):
        seen = np.minimum(seen, (offset.reshape(-1, 1) + np.arange(rows) + 1).ravel())
    window = attrs.get("left_window_size", -1)
    case.need(window < 0 or attrs.get("is_causal"), "a window ends at its row (CONTRACT E5)")
    options = {
        "scale_name": net.f32(attrs.get("scale", dim**-0.5)),
        "block": length,
        "window": window + 1 if window >= 0 else None,
        "soft_cap": attrs.get("softcap") or None,
    }
    if attrs.get("is_causal") and (offset >= 0).all():
        parts = [
            T.attention(
                net.array(q[b].astype(F32)),
                *states,
                lengths=net.array(np.array([filled[b]], np.uint32)),
                pages=net.array(np.array([b], np.uint32)),
                base_name=net.u32(offset[b]),
                **options,
            )
            for b in range(batch)
        ]
        y = T.concat(*parts, axis=0) if batch > 1 else parts[0]
    else:
        y = T.attention(
            net.array(q.astype(F32).reshape(batch * rows, 1, heads, dim)),
            *states,
            lengths=net.array(np.maximum(seen, 0).astype(np.uint32)),
            pages=net.array(np.repeat(np.arange(batch, dtype=np.uint32), rows).reshape(-1, 1)),
            **options,
        )
    (out,) = net.run(y)
    out = out.reshape(batch, rows, heads, dim)
    got = [out.transpose(0, 2, 1, 3) if case.ins[0].ndim == 4 else out.reshape(batch, rows, -1)]
    for state in states[: len(case.outs) - 1]:
        cache = net.results[state.name].reshape(batch, length, -1, dim)
        got.append(cache.transpose(0, 2, 1, 3))
    return got


def linear_attention(case: Case, net: Net):
    attrs = case.attrs
    heads, kv_heads = attrs["q_num_heads"], attrs["kv_num_heads"]
    rule = attrs.get("update_rule", b"gated_delta").decode()
    batch, tokens, _ = case.ins[0].shape
    times = heads // kv_heads

    def flat(i: int, count: int):
        """[batch * tokens, heads, width]; a KV head serves `times` query heads."""
        x = case.ins[i].astype(F32).reshape(batch * tokens, count, -1)
        return np.repeat(x, heads // count, axis=1) if count != heads else x

    q, k, v = flat(0, heads), flat(1, kv_heads), flat(2, kv_heads)
    scale = attrs.get("scale") or k.shape[-1] ** -0.5
    state = np.zeros((batch, heads, v.shape[-1], k.shape[-1]), F32)
    if case.given(3):
        state[:] = np.repeat(case.ins[3], times, axis=1).transpose(0, 1, 3, 2)
    alpha, beta = np.ones((batch * tokens, heads), F32), np.ones((batch * tokens, heads), F32)
    if case.given(4):
        alpha = np.exp(flat(4, kv_heads))
        alpha = alpha[..., 0] if alpha.shape[-1] == 1 else alpha
    if case.given(5):
        beta = np.broadcast_to(flat(5, case.ins[5].shape[-1])[..., 0], beta.shape)
    y, after = T.linear_attention(
        net.array(q),
        net.array(k),
        net.array(v),
        net.state_of(state),
        alpha=net.array(alpha),
        beta=net.array(beta),
        query_extents=net.array(np.full(batch, tokens, np.uint32)),
        decay_first=True,
        rule="delta" if "delta" in rule else "add",
    )
    net.writes(after)
    (out,) = net.run(T.scale(y, net.f32(scale)))
    present = net.results[after.name].reshape(state.shape)[:, ::times].transpose(0, 1, 3, 2)
    want = case.outs[1].dtype
    return [out.reshape(batch, tokens, -1), present.astype(want)]


def causal_conv(case: Case, net: Net):
    x, w = case.ins[0].astype(F32), case.ins[1].astype(F32)
    case.need(w.shape[2] >= 2, "the kernel has two taps or more (CONTRACT E7)")
    batch, channels, tokens = x.shape
    state = np.zeros((batch, w.shape[2] - 1, channels), F32)
    if case.given(3):
        state[:] = case.ins[3].transpose(0, 2, 1)
    y, after = T.causal_conv1d(
        net.array(x.transpose(0, 2, 1).reshape(-1, channels)),
        net.array(w.reshape(channels, -1)),
        net.state_of(state),
        query_extents=net.array(np.full(batch, tokens, np.uint32)),
        bias=net.array(case.ins[2].astype(F32)) if case.given(2) else None,
    )
    net.writes(after)
    if case.attrs.get("activation", b"none") in (b"silu", b"swish"):
        y = T.silu(y)
    (out,) = net.run(y)
    present = net.results[after.name].reshape(state.shape).transpose(0, 2, 1)
    want = case.outs[1].dtype
    return [out.reshape(batch, tokens, channels).transpose(0, 2, 1), present.astype(want)]


ADAPTERS = {
    "Add": _binary(T.add),
    "ArgMax": arg_max,
    "Attention": attention,
    "Cast": cast,
    "CastLike": cast,
    "CausalConvWithState": causal_conv,
    "Clip": clip,
    "Concat": concat,
    "Exp": _unary(T.exp),
    "Expand": expand,
    "Gather": gather,
    "Gelu": gelu,
    "Gemm": gemm,
    "LinearAttention": linear_attention,
    "LogSoftmax": log_softmax,
    "MatMul": mat_mul,
    "Mul": _binary(T.mul),
    "RMSNormalization": rms_normalization,
    "Reshape": reshape,
    "RotaryEmbedding": rotary_embedding,
    "Sigmoid": _unary(T.sigmoid),
    "Slice": slice_,
    "Softmax": softmax,
    "Softplus": _unary(T.softplus),
    "Split": split,
    "Squeeze": reshape,
    "Sub": _binary(T.sub),
    "SwiGLU": swiglu,
    "Swish": swish,
    "Tanh": _unary(T.tanh),
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Unsqueeze": reshape,
}

# Operators of ONNX near to ours that no adapter can be written for, and the clause that says so.
UNMAPPED = {
    "BitCast": "bits are not read as another dtype inside a graph (CONTRACT 9)",
    "CumSum": "no running sum is a result (CONTRACT 2)",
    "DequantizeLinear": "weights are dequantised inside the products (CONTRACT 13)",
    "Div": "no division by a tensor (CONTRACT 9, E7)",
    "DynamicQuantizeLinear": "activations are rounded inside the products (CONTRACT E11)",
    "Einsum": "products are rank 2 by rank 2 (CONTRACT 12)",
    "FlexAttention": "attention takes no score function (CONTRACT 15)",
    "GatherElements": "gathers take whole rows (CONTRACT 10)",
    "GatherND": "gathers take whole rows (CONTRACT 10)",
    "LayerNormalization": "rows are normalised by their root mean square (CONTRACT 11, E7)",
    "MatMulInteger": "integer sums serve float activations only (CONTRACT E11)",
    "Max": "no maximum of tensors (CONTRACT 9, E7)",
    "Min": "no minimum of tensors (CONTRACT 9, E7)",
    "Pow": "no power (CONTRACT 9, E7)",
    "QuantizeLinear": "weights are quantised on the host (CONTRACT 19)",
    "ReduceMax": "no reduction is a result (CONTRACT 11)",
    "ReduceMean": "no reduction is a result (CONTRACT 11)",
    "ReduceSum": "no reduction is a result (CONTRACT 11)",
    "ScatterElements": "scatters write whole rows of a state (CONTRACT 7)",
    "ScatterND": "scatters write whole rows of a state and reduce nothing (CONTRACT 7)",
    "Trilu": "attention masks by position (CONTRACT 15)",
    "Where": "no selection by a mask (CONTRACT 9)",
}
