"""What every operator refuses alike (CONTRACT 5.4): for each operand a missing one, every dtype it
does not take, another builder and a strided value. The rows are made from one valid call each."""

from typing import NamedTuple

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, Row

DTYPES = ("f32", "f16", "bf16", "i32", "u32", "i8", "u8")
CASTS = {("f16", "f32"), ("bf16", "f32"), ("f32", "f16")}


class Spec(NamedTuple):
    """A valid call: its operands as text, in order, and the call over a dict of them.

    An operand's text is its dtypes, the first of which is used, and its extents: "f32|f16 4 8". A
    leading "state" makes it a state, "-" an operand that may be left out.
    """

    operands: dict
    call: object
    packs: bool = False
    views: bool = False


def dtype_of(name: str):
    return getattr(accel, name.upper())


def parts(text: str):
    """(kind, dtypes, shape) of an operand's text."""
    words = text.removeprefix("-").split()
    kind = words.pop(0) if words[0] == "state" else "tensor"
    return kind, words[0].split("|"), [int(w) for w in words[1:]]


def make(p, text: str, dtype: str = "", builder=None):
    kind, dtypes, shape = parts(text)
    b = builder or p.b
    declare = b.state if kind == "state" else b.input
    return declare(p.name(), dtype_of(dtype or dtypes[0]), shape)


def strided(p, text: str):
    """A value of the same dtype and shape that is no contiguous run from the start."""
    _, dtypes, shape = parts(text)
    dtype = dtype_of(dtypes[0])
    if len(shape) == 1:
        return T.slice(p.b.input(p.name(), dtype, [shape[0] + 1]), 0, 1, shape[0] + 1)
    *outer, r, c = shape
    turned = p.b.input(p.name(), dtype, [*outer, c, r])
    return T.transpose(turned, -2, -1)


def call(p, op: str, **given):
    """The valid call of an operator with what is named replaced."""
    spec = SPECS[op]
    names = spec.operands
    operands = {n: given[n] if n in given else make(p, text) for n, text in names.items()}
    return spec.call(p, operands)


def unary(op: str, dtypes="f32|f16", packs=True, **keywords):
    def of(p, o):
        return getattr(T, op)(o["x"], **keywords)

    return Spec({"x": f"{dtypes} 4 8"}, of, packs)


def binary(op: str, x="x", y="y"):
    def of(p, o):
        return getattr(T, op)(o[x], o[y])

    return Spec({x: "f32|f16 4 8", y: "f32 4 8"}, of, True)


def int4(op: str, *shape):
    def of(p, o):
        w = T.Int4(o["w.codes"], o["w.scales"], o["w.zeros"], 128)
        return getattr(T, op)(o["a"], w)

    a = " ".join(map(str, shape))
    planes = {"w.codes": "u32 16", "w.scales": "f16|bf16|f32 1", "w.zeros": "f16 1"}
    return Spec({"a": f"f32 {a}", **planes}, of)


def grouped(op: str):
    def of(p, o):
        return getattr(T, op)(o["x"], o["w"], o["counts"], bias=o["bias"])

    operands = {"x": "f32 3 8", "w": "f32|f16|bf16 2 8 4", "counts": "u32 2", "bias": "-f32 2 4"}
    return Spec(operands, of)


def policy(p, o):
    o = {n.removeprefix("policy."): v for n, v in o.items()}
    bias = T.RowBias(o["bias.ids"], o["bias.values"])
    names = ("history", "counts", "filled", "repetition", "presence", "frequency")
    penalties = T.RowPenalties(*(o["penalties." + n] for n in names))
    rows = T.RowSampling(o["factor"], o["top_k"], o["top_p"], bias, penalties)
    return T.sample_rows(o["logits"], o["draws"], rows)


def rotate(p, o):
    return T.rope(o["x"], o["positions"], rotary_dim=4, frequencies=o["frequencies"])


def attend(p, o):
    return T.attention(
        *(o[n] for n in "qkv"),
        lengths=o["lengths"],
        pages=o["pages"],
        query_extents=o["query_extents"],
        sinks=o["sinks"],
        block=4,
        scale_name=p.fscalar(),
    )


def named(op: str, *names, **keywords):
    """The call with operands by position, and the last ones by the keywords that are True."""

    def of(p, o):
        positional = [o[n] for n in names]
        return getattr(T, op)(*positional, **{k: o[k] for k in keywords})

    return of


SPECS = {
    **{op: binary(op) for op in ("add", "sub", "mul")},
    **{op: unary(op) for op in ("silu", "exp", "tanh", "sigmoid", "softplus", "gelu")},
    "clamp": unary("clamp", low=0.0, high=1.0),
    "scale": Spec({"x": "f32|f16 4 8"}, lambda p, o: T.scale(o["x"], p.fscalar()), True),
    "swiglu": binary("swiglu", "gate", "value"),
    "softmax": unary("softmax", "f32", False),
    "log_softmax": unary("log_softmax", "f32", False),
    "l2_norm": unary("l2_norm", "f32", False, eps=1e-5),
    "top_k": unary("top_k", "f32", False, k=2),
    "rms_norm": Spec(
        {"x": "f32|f16 4 8", "gain": "f32 8"},
        lambda p, o: T.rms_norm(o["x"], o["gain"], eps=1e-5),
    ),
    "rope": Spec({"x": "f32 4 8", "positions": "u32 4", "frequencies": "-f32 2"}, rotate),
    "gather_rows": Spec(
        {"table": "f32|f16|bf16 8 4", "ids": "u32 2"}, named("gather_rows", "table", "ids")
    ),
    "quant_gather_rows": Spec(
        {"table.quants": "i8 8 32", "table.scales": "f16 8", "ids": "u32 2"},
        lambda p, o: T.quant_gather_rows(
            T.Quantized(o["table.quants"], o["table.scales"]), o["ids"]
        ),
    ),
    "scatter_rows": Spec(
        {"state": "state f32|f16|bf16|u32 4 2", "rows": "f32 3 2", "ids": "u32 3"},
        named("scatter_rows", "state", "rows", "ids"),
    ),
    "take": Spec({"x": "f32|f16|u32 4 8", "ids": "u32 4"}, named("take", "x", "ids")),
    "matmul": Spec({"x": "f32|f16 2 8", "w": "f32|f16|bf16 8 4"}, named("matmul", "x", "w")),
    "linear": Spec(
        {"x": "f32|f16 2 8", "w": "f32|f16|bf16 8 4", "bias": "-f32 4"},
        named("linear", "x", "w", "bias"),
    ),
    "quant_matmul": Spec(
        {"x": "f32|f16 2 32", "w.quants": "i8 32 4", "w.scales": "f16 4"},
        lambda p, o: T.quant_matmul(o["x"], T.Quantized(o["w.quants"], o["w.scales"])),
    ),
    "int4_matvec": int4("int4_matvec", 32),
    "int4_matmul": int4("int4_matmul", 2, 32),
    "grouped_matvec": grouped("grouped_matvec"),
    "grouped_matmul": grouped("grouped_matmul"),
    "attention": Spec(
        {
            "q": "f32 5 4 8",
            "k": "state f32|f16 16 2 8",
            "v": "state f32 16 2 8",
            "lengths": "u32 2",
            "pages": "-u32 2 4",
            "query_extents": "-u32 2",
            "sinks": "-f32 4",
        },
        attend,
    ),
    "linear_attention": Spec(
        {
            "q": "f32 5 2 8",
            "k": "f32 5 2 8",
            "v": "f32 5 2 6",
            "state": "state f32 3 2 6 8",
            "alpha": "f32 5 2",
            "beta": "f32 5 2",
            "query_extents": "u32 3",
        },
        named("linear_attention", *"qkv", "state", alpha=True, beta=True, query_extents=True),
    ),
    "causal_conv1d": Spec(
        {
            "x": "f32 5 8",
            "w": "f32 8 4",
            "state": "state f32 2 3 8",
            "query_extents": "u32 2",
            "bias": "-f32 8",
        },
        named("causal_conv1d", "x", "w", "state", query_extents=True, bias=True),
    ),
    "argmax": Spec({"logits": "f32 4 8"}, named("argmax", "logits")),
    "top_k_mask": Spec({"weights": "f32 4 8"}, lambda p, o: T.top_k_mask(o["weights"], 2)),
    "top_p_mask": Spec({"weights": "f32 4 8"}, lambda p, o: T.top_p_mask(o["weights"], 0.5)),
    "sample_categorical": Spec(
        {"weights": "f32 4 8", "draws": "f32 4"}, named("sample_categorical", "weights", "draws")
    ),
    "sample_rows": Spec(
        {
            "logits": "f32 3 8",
            "draws": "f32 3",
            "policy.factor": "f32 3",
            "policy.top_k": "-u32 3",
            "policy.top_p": "-f32 3",
            "policy.bias.ids": "u32 3 2",
            "policy.bias.values": "f32 3 2",
            "policy.penalties.history": "state u32 3 5",
            "policy.penalties.counts": "state u32 3 8",
            "policy.penalties.filled": "u32 3",
            "policy.penalties.repetition": "f32 3",
            "policy.penalties.presence": "f32 3",
            "policy.penalties.frequency": "f32 3",
        },
        policy,
    ),
    "route": Spec({"ids": "u32 4 2"}, lambda p, o: T.route(o["ids"], experts=8)),
    "combine": Spec(
        {"y": "f32 8 5", "inverse": "u32 8", "weights": "f32 4 2"},
        named("combine", "y", "inverse", "weights"),
    ),
    "concat": Spec(
        {f"xs[{i}]": "f32|f16|bf16|i32|u32|i8|u8 4 8" for i in range(3)},
        lambda p, o: T.concat(*o.values(), axis=0),
        views=True,
    ),
    "contiguous": Spec(
        {"x": "f32|f16|bf16|i32|u32|i8|u8 4 8"}, lambda p, o: T.contiguous(o["x"]), views=True
    ),
    "cast": Spec({"x": "f32 4 8"}, lambda p, o: T.cast(o["x"], accel.F16), True),
}
# The pairs of these have rows of their own.
PAIRED = {("matmul", "w"), ("linear", "w"), ("cast", "x")}
# A plane of a weight is not cast: its dtype follows the other plane's.
UNCAST = {"w.zeros"}


def must_be(dtypes: list) -> str:
    return dtypes[0] if len(dtypes) == 1 else ", ".join(dtypes[:-1]) + " or " + dtypes[-1]


def missing(op: str, name: str) -> Row:
    def f(p):
        return call(p, op, **{name: None})

    return Row(f"{op}: {name} is None", f, ATTR, op, name, ["None", "must be"], SPECS[op].call)


def wrong_dtype(op: str, name: str, text: str, dtype: str) -> Row:
    def f(p):
        return call(p, op, **{name: make(p, text, dtype)})

    kind, dtypes, _ = parts(text)
    words = [f"{name} is {dtype} and must be {must_be(dtypes)}"]
    castable = kind == "tensor" and name not in UNCAST
    if castable and any((dtype, d) in CASTS for d in dtypes):
        words.append(f"cast({name}, ")
    return Row(f"{op}: {name} is {dtype}", f, DTYPE, op, name, words, SPECS[op].call)


def of_another(op: str, name: str, text: str) -> Row:
    def f(p):
        other = p.b_runtime.new_builder("other")
        return call(p, op, **{name: make(p, text, builder=other)})

    words = [f"{name} is of builder 'other' and must be of builder 'rows'"]
    return Row(f"{op}: {name} of another builder", f, ATTR, op, name, words, SPECS[op].call)


def not_contiguous(op: str, name: str, text: str) -> Row:
    def f(p):
        return call(p, op, **{name: strided(p, text)})

    _, dtypes, shape = parts(text)
    extents = " ".join(map(str, shape))
    words = [f"{name} is {dtypes[0]}[{extents}]", "strides", "offset", f"contiguous({name})"]
    return Row(f"{op}: {name} is strided", f, SHAPE, op, name, words, SPECS[op].call)


def rows_of(op: str) -> list[Row]:
    spec, found = SPECS[op], []
    for i, (name, text) in enumerate(spec.operands.items()):
        kind, dtypes, shape = parts(text)
        # A sole operand that is None has no builder: those calls raise, in test_op_errors.
        if not text.startswith("-") and len(spec.operands) > 1:
            found.append(missing(op, name))
        if (op, name) not in PAIRED:
            found += [wrong_dtype(op, name, text, d) for d in DTYPES if d not in dtypes]
        if i:
            found.append(of_another(op, name, text))
        if kind == "tensor" and not spec.views and not (spec.packs and len(shape) == 1):
            found.append(not_contiguous(op, name, text))
    return found


EVERY = [row for op in SPECS for row in rows_of(op)]
