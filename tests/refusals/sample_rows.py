"""Refusals of sample_rows."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows

ROWS, VOCAB = 3, 8


def choose(p, logits=0, draws=0, factor=0, penalties=None, bias=None, **fields):
    """Three rows over eight tokens, with what is named replaced; 0 stands for the right operand.

    penalties and bias are dicts of fields to replace.
    """

    def or_right(value, right):
        return right() if value is not None and type(value) is int else value

    given = {"factor": or_right(factor, lambda: p.f32(ROWS)), **fields}
    if bias is not None:
        right = {"ids": p.u32(ROWS, 2), "values": p.f32(ROWS, 2)}
        given["bias"] = T.RowBias(**{**right, **bias})
    if penalties is not None:
        right = {
            "history": p.state(accel.U32, ROWS, 5),
            "counts": p.state(accel.U32, ROWS, VOCAB),
            "filled": p.u32(ROWS),
            **{n: p.f32(ROWS) for n in ("repetition", "presence", "frequency")},
        }
        given["penalties"] = T.RowPenalties(**{**right, **penalties})
    x = or_right(logits, lambda: p.f32(ROWS, VOCAB))
    d = or_right(draws, lambda: p.f32(ROWS))
    return T.sample_rows(x, d, T.RowSampling(**given))


def shared(p):
    both = p.state(accel.U32, ROWS, VOCAB)
    return {"history": both, "counts": both}


def penalise(p, **fields):
    return choose(p, penalties=fields)


H, C, N = "policy.penalties.history", "policy.penalties.counts", "policy.penalties.filled"

SAMPLE_ROWS = rows(
    "sample_rows",
    ("no logits", lambda p: choose(p, logits=None), ATTR, "logits", "None|f32"),
    ("no draws", lambda p: choose(p, draws=None), ATTR, "draws", "None|f32"),
    ("no factor", lambda p: choose(p, factor=None), ATTR, "policy.factor", "None|f32"),
    (
        "no policy",
        lambda p: T.sample_rows(p.f32(3, 8), p.f32(3), None),
        ATTR,
        "policy",
        "None|RowSampling",
    ),
    (
        "f16 logits",
        lambda p: choose(p, logits=p.f16(3, 8)),
        DTYPE,
        "logits",
        "f16|f32|cast(logits, f32)",
    ),
    ("one row", lambda p: choose(p, logits=p.f32(8)), SHAPE, "logits", "[8]|[rows, vocab]"),
    ("draws dtype", lambda p: choose(p, draws=p.u32(3)), DTYPE, "draws", "u32|f32"),
    ("draws count", lambda p: choose(p, draws=p.f32(2)), SHAPE, "draws", "[2]|[3]|[3 8]"),
    ("draws rank", lambda p: choose(p, draws=p.f32(3, 1)), SHAPE, "draws", "[3 1]|[3]"),
    ("factor count", lambda p: choose(p, factor=p.f32(4)), SHAPE, "policy.factor", "[4]|[3]"),
    ("factor dtype", lambda p: choose(p, factor=p.f16(3)), DTYPE, "policy.factor", "f16|f32"),
    ("top_k dtype", lambda p: choose(p, top_k=p.f32(3)), DTYPE, "policy.top_k", "f32|u32"),
    ("top_k count", lambda p: choose(p, top_k=p.u32(1)), SHAPE, "policy.top_k", "[1]|[3]"),
    ("top_p dtype", lambda p: choose(p, top_p=p.u32(3)), DTYPE, "policy.top_p", "u32|f32"),
    ("top_p count", lambda p: choose(p, top_p=p.f32(5)), SHAPE, "policy.top_p", "[5]|[3]"),
    (
        "no bias ids",
        lambda p: choose(p, bias={"ids": None}),
        ATTR,
        "policy.bias.ids",
        "None|u32",
    ),
    (
        "no bias values",
        lambda p: choose(p, bias={"values": None}),
        ATTR,
        "policy.bias.values",
        "None|f32",
    ),
    (
        "bias ids dtype",
        lambda p: choose(p, bias={"ids": p.f32(3, 2)}),
        DTYPE,
        "policy.bias.ids",
        "f32|u32",
    ),
    (
        "bias ids rank",
        lambda p: choose(p, bias={"ids": p.u32(3)}),
        SHAPE,
        "policy.bias.ids",
        "[3]|[3, slots]",
    ),
    (
        "bias ids rows",
        lambda p: choose(p, bias={"ids": p.u32(2, 2)}),
        SHAPE,
        "policy.bias.ids",
        "[2 2]|[3, slots]",
    ),
    (
        "bias values shape",
        lambda p: choose(p, bias={"values": p.f32(3, 3)}),
        SHAPE,
        "policy.bias.values",
        "[3 3]|[3 2]",
    ),
    ("no history", lambda p: penalise(p, history=None), ATTR, H, "None|u32"),
    ("no counts", lambda p: penalise(p, counts=None), ATTR, C, "None|u32"),
    ("no filled", lambda p: penalise(p, filled=None), ATTR, N, "None|u32"),
    (
        "no presence",
        lambda p: penalise(p, presence=None),
        ATTR,
        "policy.penalties.presence",
        "None|f32",
    ),
    (
        "history dtype",
        lambda p: penalise(p, history=p.state(accel.F32, 3, 5)),
        DTYPE,
        H,
        "f32|u32",
    ),
    (
        "history rows",
        lambda p: penalise(p, history=p.state(accel.U32, 4, 5)),
        SHAPE,
        H,
        "[4 5]|[3, entries]",
    ),
    (
        "flat history",
        lambda p: penalise(p, history=p.state(accel.U32, 16)),
        SHAPE,
        H,
        "[16]|multiple of 3",
    ),
    ("stale history", lambda p: penalise(p, history=p.stale(accel.U32, 3, 5)), ATTR, H, "1 write"),
    (
        "counts dtype",
        lambda p: penalise(p, counts=p.state(accel.F32, 3, 8)),
        DTYPE,
        C,
        "f32|u32",
    ),
    (
        "counts shape",
        lambda p: penalise(p, counts=p.state(accel.U32, 3, 9)),
        SHAPE,
        C,
        "[3 9]|[3 8]",
    ),
    ("stale counts", lambda p: penalise(p, counts=p.stale(accel.U32, 3, 8)), ATTR, C, "1 write"),
    ("counts are the history", lambda p: penalise(p, **shared(p)), ATTR, C, "state of history"),
    ("filled dtype", lambda p: penalise(p, filled=p.f32(3)), DTYPE, N, "f32|u32"),
    ("filled count", lambda p: penalise(p, filled=p.u32(2)), SHAPE, N, "[2]|[3]"),
    (
        "frequency count",
        lambda p: penalise(p, frequency=p.f32(1)),
        SHAPE,
        "policy.penalties.frequency",
        "[1]|[3]",
    ),
    (
        "strided logits",
        lambda p: choose(p, logits=T.transpose(p.f32(8, 3), 0, 1)),
        SHAPE,
        "logits",
        "strides|contiguous(logits)",
    ),
    (
        "another builder",
        lambda p: choose(p, draws=p.other(3)),
        ATTR,
        "draws",
        "'other'|'rows'",
    ),
    helper=choose,
)
