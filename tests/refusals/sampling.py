"""Refusals of the samplers."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows


def options(**kw):
    return T.SamplingOptions(**kw)


SAMPLERS = [
    *rows(
        "argmax",
        ("dtype", lambda p: T.argmax(p.f16(8)), DTYPE, "logits", "f16|f32|cast"),
        (
            "strided",
            lambda p: T.argmax(T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            "logits",
            "strides|contiguous(logits)",
        ),
    ),
    *rows(
        "sample_categorical",
        (
            "dtype",
            lambda p: T.sample_categorical(p.f16(8), p.f32(1)),
            DTYPE,
            "weights",
            "f16|f32|cast",
        ),
        (
            "draws dtype",
            lambda p: T.sample_categorical(p.f32(8), p.f16(1)),
            DTYPE,
            "draws",
            "f16|f32",
        ),
        (
            "draws count",
            lambda p: T.sample_categorical(p.f32(3, 8), p.f32(2)),
            SHAPE,
            "draws",
            "2|3",
        ),
        ("no draws", lambda p: T.sample_categorical(p.f32(8), None), ATTR, "draws", "None"),
    ),
    *rows(
        "top_k_mask",
        ("zero", lambda p: T.top_k_mask(p.f32(300), 0), ATTR, "k", "0"),
        ("negative", lambda p: T.top_k_mask(p.f32(300), -1), ATTR, "k", "-1"),
        ("beyond the vocabulary", lambda p: T.top_k_mask(p.f32(8), 9), ATTR, "k", "9|8"),
        ("beyond 128", lambda p: T.top_k_mask(p.f32(300), 129), ATTR, "k", "129|128|exact"),
        (
            "exact, beyond the vocabulary",
            lambda p: T.top_k_mask(p.f32(300), 301, exact=True),
            ATTR,
            "k",
            "301|300",
        ),
        ("no k", lambda p: T.top_k_mask(p.f32(8), None), ATTR, "k", "None"),
        ("dtype", lambda p: T.top_k_mask(p.f16(8), 2), DTYPE, "weights", "f16|f32|cast"),
    ),
    *rows(
        "top_p_mask",
        ("zero", lambda p: T.top_p_mask(p.f32(8), 0.0), ATTR, "p", "0"),
        ("negative", lambda p: T.top_p_mask(p.f32(8), -0.5), ATTR, "p", "-0.5"),
        ("above one", lambda p: T.top_p_mask(p.f32(8), 1.5), ATTR, "p", "1.5"),
        ("nan", lambda p: T.top_p_mask(p.f32(8), float("nan")), ATTR, "p", "nan"),
        ("no p", lambda p: T.top_p_mask(p.f32(8), None), ATTR, "p", "None"),
        ("dtype", lambda p: T.top_p_mask(p.f16(8), 0.5), DTYPE, "weights", "f16|f32|cast"),
    ),
]


def draw(p, logits=None, options=None, prefix="s", declare=True, **kw):
    """sample() with its scalars declared."""
    if declare:
        T.declare_sampling_scalars(p.b, options, prefix)
    logits = p.f32(300) if logits is None else logits
    return T.sample(logits, options=options, prefix=prefix, **kw)


HOT = {"temperature": 0.7}
PENALTY = {"repetition": 1.2}


def history(p):
    return p.state(accel.U32, 16)


SAMPLE = rows(
    "sample",
    (
        "nan temperature",
        lambda p: draw(p, options=options(temperature=float("nan")), declare=False),
        ATTR,
        "temperature",
        "nan|finite",
    ),
    (
        "infinite temperature",
        lambda p: draw(p, options=options(temperature=float("inf")), declare=False),
        ATTR,
        "temperature",
        "inf|finite",
    ),
    (
        "negative temperature",
        lambda p: draw(p, options=options(temperature=-1), declare=False),
        ATTR,
        "temperature",
        "-1|0 or more",
    ),
    (
        "tiny temperature",
        lambda p: draw(p, options=options(temperature=1e-4), declare=False),
        ATTR,
        "temperature",
        "0.0001|0 for greedy",
    ),
    (
        "negative top_k",
        lambda p: draw(p, options=options(top_k=-1), declare=False),
        ATTR,
        "top_k",
        "-1|0 or more",
    ),
    (
        "top_k beyond 128",
        lambda p: draw(p, options=options(**HOT, top_k=129), declare=False),
        ATTR,
        "top_k",
        "129|128|exact",
    ),
    (
        "nan top_p",
        lambda p: draw(p, options=options(top_p=float("nan")), declare=False),
        ATTR,
        "top_p",
        "nan|[0, 1]",
    ),
    (
        "top_p above one",
        lambda p: draw(p, options=options(top_p=1.5), declare=False),
        ATTR,
        "top_p",
        "1.5|[0, 1]",
    ),
    (
        "nan presence",
        lambda p: draw(p, options=options(presence=float("nan")), declare=False),
        ATTR,
        "presence",
        "nan|finite",
    ),
    (
        "infinite frequency",
        lambda p: draw(p, options=options(frequency=float("inf")), declare=False),
        ATTR,
        "frequency",
        "inf|finite",
    ),
    (
        "negative repetition",
        lambda p: draw(p, options=options(repetition=-1), declare=False),
        ATTR,
        "repetition",
        "-1|0 or more",
    ),
    (
        "no options",
        lambda p: T.sample(p.f32(8), prefix="s"),
        ATTR,
        "options",
        "None|SamplingOptions",
    ),
    ("no prefix", lambda p: T.sample(p.f32(8), options=options()), ATTR, "prefix", "''"),
    (
        "no logits",
        lambda p: T.sample(None, p.f32(1), options=options(**HOT), prefix="s"),
        ATTR,
        "logits",
        "None",
    ),
    (
        "penalty without history",
        lambda p: draw(p, options=options(**PENALTY), counts=p.state(accel.U32, 300)),
        ATTR,
        "history",
        "None|penalty",
    ),
    (
        "penalty without counts",
        lambda p: draw(p, options=options(**PENALTY), history=history(p)),
        ATTR,
        "counts",
        "None|penalty",
    ),
    (
        "history without a penalty",
        lambda p: draw(p, options=options(), history=history(p)),
        ATTR,
        "history",
        "penalty",
    ),
    (
        "counts without a penalty",
        lambda p: draw(p, options=options(), counts=p.state(accel.U32, 300)),
        ATTR,
        "counts",
        "penalty",
    ),
    (
        "draws when greedy",
        lambda p: draw(p, options=options(), draws=p.f32(1)),
        ATTR,
        "draws",
        "temperature is 0",
    ),
    (
        "no draws",
        lambda p: draw(p, options=options(**HOT)),
        ATTR,
        "draws",
        "None|temperature is not 0",
    ),
    (
        "logits rank",
        lambda p: draw(p, p.f32(2, 3, 4), options=options()),
        SHAPE,
        "logits",
        "[2 3 4]|[rows, vocab]",
    ),
    (
        "top_k beyond the vocabulary",
        lambda p: draw(p, p.f32(8), options=options(**HOT, top_k=9), draws=p.f32(1)),
        ATTR,
        "top_k",
        "9|8",
    ),
    (
        "penalty of two rows",
        lambda p: draw(
            p,
            p.f32(2, 300),
            options=options(**PENALTY),
            history=history(p),
            counts=p.state(accel.U32, 300),
        ),
        SHAPE,
        "logits",
        "[2 300]|one row",
    ),
    (
        "counts dtype",
        lambda p: draw(
            p, options=options(**PENALTY), history=history(p), counts=p.state(accel.F32, 300)
        ),
        DTYPE,
        "counts",
        "f32|u32",
    ),
    (
        "counts count",
        lambda p: draw(
            p, options=options(**PENALTY), history=history(p), counts=p.state(accel.U32, 299)
        ),
        SHAPE,
        "counts",
        "[299]|300",
    ),
    (
        "history dtype",
        lambda p: draw(
            p,
            options=options(**PENALTY),
            history=p.state(accel.F32, 16),
            counts=p.state(accel.U32, 300),
        ),
        DTYPE,
        "history",
        "f32|u32",
    ),
    helper=draw,
)

DRAWS_COUNT = rows(
    "sample_categorical",
    (
        "draws count of sample",
        lambda p: draw(p, p.f32(3, 8), options=options(**HOT), draws=p.f32(2)),
        SHAPE,
        "draws",
        "2|3",
    ),
    helper=draw,
)
