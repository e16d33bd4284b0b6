"""Refusals of attention, form by form."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows


def attend(p, q=None, k=None, v=None, **kw):
    """Decode over f32 caches [16 2 8], with what is named replaced."""
    q = p.f32(4, 8) if q is None else q
    k = k or p.state(accel.F32, 16, 2, 8)
    given = {"lengths": p.u32(1), "scale_name": p.fscalar(), **kw}
    return T.attention(
        q,
        k,
        v or p.state(accel.F32, 16, 2, 8),
        **{n: g for n, g in given.items() if g is not None},
    )


ATTENTION = rows(
    "attention",
    ("q dtype", lambda p: attend(p, q=p.f16(4, 8)), DTYPE, "q", "f16|f32|cast"),
    ("q rank", lambda p: attend(p, q=p.f32(8)), SHAPE, "q", "[8]"),
    (
        "q strided",
        lambda p: attend(p, q=T.transpose(p.f32(8, 4), 0, 1)),
        SHAPE,
        "q",
        "strides|contiguous(q)",
    ),
    (
        "k dtype",
        lambda p: attend(p, k=p.state(accel.BF16, 16, 2, 8)),
        DTYPE,
        "k",
        "bf16|f32 or f16",
    ),
    ("v dtype", lambda p: attend(p, v=p.state(accel.F16, 16, 2, 8)), DTYPE, "v", "f16|f32"),
    (
        "v shape",
        lambda p: attend(p, v=p.state(accel.F32, 16, 4, 8)),
        SHAPE,
        "v",
        "[16 4 8]|[16 2 8]",
    ),
    ("k rank", lambda p: attend(p, k=p.state(accel.F32, 16, 16)), SHAPE, "k", "[16 16]|rank 3"),
    ("head_dim differs", lambda p: attend(p, q=p.f32(4, 16)), SHAPE, "q", "[4 16]|8"),
    (
        "head_dim odd",
        lambda p: attend(
            p, q=p.f32(4, 12), k=p.state(accel.F32, 16, 2, 12), v=p.state(accel.F32, 16, 2, 12)
        ),
        SHAPE,
        "q",
        "[4 12]|multiple of 8",
    ),
    (
        "head_dim large",
        lambda p: attend(
            p, q=p.f32(4, 264), k=p.state(accel.F32, 16, 2, 264), v=p.state(accel.F32, 16, 2, 264)
        ),
        SHAPE,
        "q",
        "264|256",
    ),
    ("heads", lambda p: attend(p, q=p.f32(3, 8)), SHAPE, "q", "[3 8]|2"),
    ("no lengths", lambda p: attend(p, lengths=None), ATTR, "lengths", "None"),
    ("lengths dtype", lambda p: attend(p, lengths=p.f32(1)), DTYPE, "lengths", "f32|u32"),
    ("lengths count", lambda p: attend(p, lengths=p.u32(2)), SHAPE, "lengths", "[2]|1"),
    ("no scale", lambda p: attend(p, scale_name=None), ATTR, "scale_name", "None"),
    ("scale undeclared", lambda p: attend(p, scale_name="s"), ATTR, "scale_name", "'s'|declared"),
    ("scale kind", lambda p: attend(p, scale_name=p.uscalar()), ATTR, "scale_name", "u32|f32"),
    (
        "k stale",
        lambda p: attend(p, k=p.stale(accel.F32, 16, 2, 8)),
        ATTR,
        "k",
        "version 0|1 write ago|version 1",
    ),
    (
        "v stale",
        lambda p: attend(p, v=p.stale(accel.F32, 16, 2, 8)),
        ATTR,
        "v",
        "version 0|1 write ago|version 1",
    ),
    (
        "prefill without base",
        lambda p: attend(p, q=p.f32(3, 4, 8)),
        ATTR,
        "base_name",
        "[3 4 8]|prefill",
    ),
    (
        "base undeclared",
        lambda p: attend(p, q=p.f32(3, 4, 8), base_name="b"),
        ATTR,
        "base_name",
        "'b'|declared",
    ),
    (
        "base kind",
        lambda p: attend(p, q=p.f32(3, 4, 8), base_name=p.fscalar()),
        ATTR,
        "base_name",
        "f32|u32",
    ),
    (
        "base in decode",
        lambda p: attend(p, base_name=p.uscalar()),
        ATTR,
        "base_name",
        "[4 8]|decode",
    ),
    (
        "no q",
        lambda p: T.attention(
            None,
            p.state(accel.F32, 16, 2, 8),
            p.state(accel.F32, 16, 2, 8),
            lengths=p.u32(1),
            scale_name=p.fscalar(),
        ),
        ATTR,
        "q",
        "None",
    ),
    (
        "no k",
        lambda p: T.attention(
            p.f32(4, 8),
            None,
            p.state(accel.F32, 16, 2, 8),
            lengths=p.u32(1),
            scale_name=p.fscalar(),
        ),
        ATTR,
        "k",
        "None",
    ),
    (
        "no v",
        lambda p: T.attention(
            p.f32(4, 8),
            p.state(accel.F32, 16, 2, 8),
            None,
            lengths=p.u32(1),
            scale_name=p.fscalar(),
        ),
        ATTR,
        "v",
        "None",
    ),
    helper=attend,
)


def paged(p, q=None, **kw):
    """Decode over f32 caches [16 2 8] in pages of 4, with what is named replaced."""
    return attend(p, q=q, **{"pages": p.u32(4), "block": 4, **kw})


def batched(p, *shape, **kw):
    """Two sequences, one row each."""
    given = {"lengths": p.u32(2), "pages": p.u32(2, 4), "block": 4, **kw}
    return attend(p, q=p.f32(*(shape or (2, 1, 4, 8))), **given)


def ragged(p, *shape, **kw):
    """Two sequences of five rows together."""
    return batched(p, *(shape or (5, 4, 8)), **{"query_extents": p.u32(2), **kw})


def halves(p, **kw):
    return attend(p, k=p.state(accel.F16, 16, 2, 8), v=p.state(accel.F16, 16, 2, 8), **kw)


PAGES = rows(
    "attention",
    ("q rank 5", lambda p: attend(p, q=p.f32(1, 1, 1, 4, 8)), SHAPE, "q", "[1 1 1 4 8]"),
    (
        "q strided, batched",
        lambda p: attend(
            p,
            q=T.transpose(p.f32(2, 1, 8, 4), 2, 3),
            lengths=p.u32(2),
            pages=p.u32(2, 4),
            block=4,
        ),
        SHAPE,
        "q",
        "strides|contiguous(q)",
    ),
    ("heads, batched", lambda p: batched(p, 2, 1, 3, 8), SHAPE, "q", "[2 1 3 8]|2"),
    ("head_dim, ragged", lambda p: ragged(p, 5, 4, 16), SHAPE, "q", "[5 4 16]|8"),
    ("lengths of a batch", lambda p: batched(p, lengths=p.u32(3)), SHAPE, "lengths", "[3]|2"),
    ("lengths of a ragged", lambda p: ragged(p, lengths=p.u32(3)), SHAPE, "lengths", "[3]|2"),
    (
        "lengths dtype, batched",
        lambda p: batched(p, lengths=p.f32(2)),
        DTYPE,
        "lengths",
        "f32|u32",
    ),
    ("pages dtype", lambda p: paged(p, pages=p.f32(4)), DTYPE, "pages", "f32|u32"),
    (
        "pages of two sequences in decode",
        lambda p: paged(p, pages=p.u32(2, 4)),
        SHAPE,
        "pages",
        "[2 4]|[max_pages] or [1, max_pages]|decode",
    ),
    (
        "pages of rank 3 in a prefill",
        lambda p: paged(p, q=p.f32(3, 4, 8), pages=p.u32(1, 1, 4), base_name=p.uscalar()),
        SHAPE,
        "pages",
        "[1 1 4]|prefill",
    ),
    ("pages of a batch", lambda p: batched(p, pages=p.u32(3, 4)), SHAPE, "pages", "[3 4]|[2, "),
    ("pages of rank 1", lambda p: batched(p, pages=p.u32(8)), SHAPE, "pages", "[8]|batched"),
    ("pages of a ragged", lambda p: ragged(p, pages=p.u32(3, 4)), SHAPE, "pages", "[3 4]|ragged"),
    ("pages without block", lambda p: paged(p, block=0), ATTR, "block", "0|positive|pages"),
    ("negative block", lambda p: paged(p, block=-1), ATTR, "block", "-1|positive"),
    (
        "block without pages",
        lambda p: attend(p, block=4),
        ATTR,
        "block",
        "4|0: pages is None",
    ),
    (
        "base in decode with pages",
        lambda p: paged(p, base_name=p.uscalar()),
        ATTR,
        "base_name",
        "None|decode",
    ),
    ("base of a batch", lambda p: batched(p, base_name=p.uscalar()), ATTR, "base_name", "batched"),
    ("base of a ragged", lambda p: ragged(p, base_name=p.uscalar()), ATTR, "base_name", "ragged"),
    (
        "prefill with pages, without base",
        lambda p: paged(p, q=p.f32(3, 4, 8)),
        ATTR,
        "base_name",
        "prefill",
    ),
    (
        "batched without pages",
        lambda p: batched(p, pages=None, block=0),
        ATTR,
        "pages",
        "None|batched",
    ),
    (
        "ragged without pages",
        lambda p: ragged(p, pages=None, block=0),
        ATTR,
        "pages",
        "None|ragged",
    ),
    ("q axis 1", lambda p: batched(p, 2, 3, 4, 8), SHAPE, "q", "[2 3 4 8]|[B, 1, |is 3"),
    (
        "extents in decode",
        lambda p: paged(p, query_extents=p.u32(1)),
        SHAPE,
        "query_extents",
        "u32[1]|None|[4 8]",
    ),
    (
        "extents of a batch",
        lambda p: batched(p, query_extents=p.u32(2)),
        SHAPE,
        "query_extents",
        "u32[2]|None|[2 1 4 8]",
    ),
    (
        "extents dtype",
        lambda p: ragged(p, query_extents=p.f32(2)),
        DTYPE,
        "query_extents",
        "f32|u32",
    ),
    (
        "extents count",
        lambda p: ragged(p, query_extents=p.u32(3)),
        SHAPE,
        "query_extents",
        "[3]|2",
    ),
    helper=attend,
)

OPTIONS = rows(
    "attention",
    ("window 0", lambda p: attend(p, window=0), ATTR, "window", "0|1 or more"),
    ("window -1", lambda p: attend(p, window=-1), ATTR, "window", "-1|1 or more"),
    ("soft_cap 0", lambda p: attend(p, soft_cap=0.0), ATTR, "soft_cap", "0|positive"),
    ("soft_cap -1", lambda p: attend(p, soft_cap=-1.0), ATTR, "soft_cap", "-1|positive"),
    (
        "soft_cap inf",
        lambda p: attend(p, soft_cap=float("inf")),
        ATTR,
        "soft_cap",
        "inf|finite",
    ),
    (
        "soft_cap nan",
        lambda p: attend(p, soft_cap=float("nan")),
        ATTR,
        "soft_cap",
        "nan|finite",
    ),
    (
        "soft_cap rounds to 0",
        lambda p: attend(p, soft_cap=1e-60),
        ATTR,
        "soft_cap",
        "0|positive",
    ),
    ("sinks dtype", lambda p: attend(p, sinks=p.f16(4)), DTYPE, "sinks", "f16|f32"),
    ("sinks count", lambda p: attend(p, sinks=p.f32(2)), SHAPE, "sinks", "[2]|[4]"),
    ("sinks rank", lambda p: attend(p, sinks=p.f32(4, 1)), SHAPE, "sinks", "[4 1]|[4]"),
    ("operands named", lambda p: halves(p, operands="bf16"), ATTR, "operands", "'bf16'|'f16'"),
    (
        "operands over f32 caches",
        lambda p: attend(p, operands="f16"),
        ATTR,
        "operands",
        "'f16'|None|f32",
    ),
    helper=attend,
)
ATTENTION = [*ATTENTION, *PAGES, *OPTIONS]
