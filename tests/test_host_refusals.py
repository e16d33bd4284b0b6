"""What the calls on the host refuse: class, code, operand or problem, and both values in the text.

A row makes one mistake; the operand is what the error names, or the port, scalar or object that its
one problem names. Operators and declarations have their rows in refusals/.
"""

from types import SimpleNamespace
from typing import NamedTuple

import accel
import numpy as np
import pytest
from accel import quant
from accel import tensor as T

ATTR, BIND, DTYPE = accel.AttrError, accel.BindError, accel.DTypeError
CAPACITY, DEVICE = accel.CapacityError, accel.DeviceError
NAN, INF = float("nan"), float("inf")


class Row(NamedTuple):
    name: str
    call: object
    error: type
    code: str
    operand: str
    words: str


def table(group: str, *entries) -> list[Row]:
    return [Row(f"{group}: {name}", *rest) for name, *rest in entries]


def floats(n: int = 4):
    return np.ones(n, np.float32)


def closed(thing):
    thing.close()
    return thing


def graph(rt, label="plan"):
    b = rt.new_builder(label)
    f = b.scalar("f", T.ScalarKind.F32)
    b.output("y", T.scale(T.silu(b.input("x", accel.F32, [4])), f))
    return b


def bind(e, f=1.0, **given):
    """The plan's right bindings with what is named replaced."""
    return e.plan.bind({"x": floats(), "y": floats(), **given}, {"f": f})


def submit(e, **options):
    return e.plan.submit({"x": floats(), "y": floats()}, {"f": 1.0}, **options).wait()


def far():
    return accel.open_cpu(threads=1)


def of_bytes(e, offset: int, count: int):
    return e.device.new_buffer(accel.F32, 4, "held").view(offset, count)


DEVICES = table(
    "device",
    ("id", lambda e: accel.open_device(b"abc"), ATTR, "attr", "id", "3 bytes|16"),
    ("unknown id", lambda e: accel.open_device(b"x" * 16), DEVICE, "no_adapter", "", "id"),
    ("threads", lambda e: accel.open_cpu(threads=-1), ATTR, "attr", "threads", "-1|[0, 1024]"),
    ("fill", lambda e: accel.open_cpu(debug_fill=256), ATTR, "attr", "debug_fill", "256|[0, 255]"),
    ("fill -1", lambda e: accel.open_cpu(debug_fill=-1), ATTR, "attr", "debug_fill", "-1|[0, 255]"),
    ("lose_at", lambda e: accel.open_cpu(lose_at=0), ATTR, "attr", "lose_at", "0|[1, "),
    (
        "isa",
        lambda e: accel.open_cpu(isa="sse9"),
        accel.UnsupportedError,
        "unsupported",
        "",
        "isa is sse9|must be one|base",
    ),
    (
        "no capability",
        lambda e: accel.open_best(require=["warp"]),
        DEVICE,
        "policy",
        "",
        "cpu|capability 'warp'|metal|cuda",
    ),
    (
        "limit at least",
        lambda e: accel.open_best(limits={"threads": (">=", 9999)}),
        DEVICE,
        "policy",
        "",
        "'threads'|at least 9999",
    ),
    (
        "limit at most",
        lambda e: accel.open_best(limits={"threads": ("<=", 0)}),
        DEVICE,
        "policy",
        "",
        "'threads'|at most 0",
    ),
    (
        "no CPU",
        lambda e: accel.open_best(allow_cpu=False),
        DEVICE,
        "policy",
        "",
        "cpu|allow_cpu is False",
    ),
    ("none", lambda e: accel.open_best(prefer=["metal"]), DEVICE, "no_adapter", "", "no device"),
    (
        "prefer",
        lambda e: accel.open_best(prefer=["vulkan"]),
        ATTR,
        "attr",
        "prefer",
        "'vulkan'|metal, cuda and cpu",
    ),
    ("missing", lambda e: accel.Runtime(None), ATTR, "attr", "device", "missing|open device"),
    (
        "runtime of a closed one",
        lambda e: accel.Runtime(closed(far())),
        BIND,
        "lifetime",
        "device",
        "closed|open",
    ),
    (
        "queue of a closed one",
        lambda e: closed(far()).new_queue("q"),
        BIND,
        "lifetime",
        "device",
        "closed|open",
    ),
    (
        "closed under a runtime",
        lambda e: e.device.close(),
        BIND,
        "lifetime",
        None,
        "live children|none to close",
    ),
)

BUFFERS = table(
    "buffer",
    ("count", lambda e: e.device.new_buffer(accel.F32, 0), ATTR, "attr", "count", "0|positive"),
    (
        "count -4",
        lambda e: e.device.new_buffer(accel.F32, -4),
        ATTR,
        "attr",
        "count",
        "-4|positive",
    ),
    (
        "too large",
        lambda e: e.device.new_buffer(accel.F32, 2**50),
        CAPACITY,
        "too_large",
        "",
        f"{2**50}|f32|at most|max_bytes",
    ),
    (
        "bytes beyond 64 bits",
        lambda e: e.device.new_buffer(accel.F32, 2**62),
        CAPACITY,
        "too_large",
        "",
        f"{2**62}|f32|at most",
    ),
    (
        "view beyond the end",
        lambda e: bind(e, x=of_bytes(e, 1, 4)),
        BIND,
        "too_small",
        "x",
        "[1, +4)|4 elements",
    ),
    (
        "view before the start",
        lambda e: bind(e, x=of_bytes(e, -1, 4)),
        BIND,
        "too_small",
        "x",
        "[-1, +4)|4 elements",
    ),
    (
        "view whose end wraps",
        lambda e: bind(e, x=of_bytes(e, 2**63 - 2, 4)),
        BIND,
        "too_small",
        "x",
        f"{2**63 - 2}|4 elements",
    ),
    (
        "view whose bytes wrap",
        lambda e: bind(e, x=of_bytes(e, 2**62, 4)),
        BIND,
        "too_small",
        "x",
        f"{2**62}|4 elements",
    ),
    (
        "view of a closed one",
        lambda e: bind(e, x=accel.BufferView(closed(e.buffer(4)), accel.F32, 0, 4)),
        BIND,
        "lifetime",
        "x",
        "closed buffer|open",
    ),
    (
        "view of another dtype",
        lambda e: bind(e, x=e.buffer(4).view_as(accel.U32, 0, 4)),
        BIND,
        "dtype",
        "x",
        "u32|f32",
    ),
    (
        "access of a closed one",
        lambda e: closed(e.buffer(4)).access(len),
        BIND,
        "lifetime",
        None,
        "held is closed|open",
    ),
    (
        "write of another count",
        lambda e: e.buffer(4).write(floats(3)),
        BIND,
        "too_small",
        None,
        "3|4",
    ),
    (
        "write beyond the end",
        lambda e: e.device.queue.write_buffer(e.buffer(4), 3, floats(2)),
        BIND,
        "too_small",
        "buffer",
        "4 elements|2 from offset 3",
    ),
    (
        "of f64",
        lambda e: e.device.buffer(np.ones(4)),
        BIND,
        "dtype",
        "array",
        "float64[4]|f32, f16, bf16",
    ),
    (
        "strided with copy=False",
        lambda e: e.device.from_dlpack(np.ones(8, np.float32)[::2], copy=False),
        BIND,
        "layout",
        "x",
        "strided|copy=True",
    ),
)

SUBMIT = table(
    "submit",
    ("dtype", lambda e: bind(e, x=e.buffer(4, accel.U32)), BIND, "dtype", "x", "input x|u32|f32"),
    (
        "too small",
        lambda e: bind(e, x=e.buffer(3)),
        BIND,
        "too_small",
        "x",
        "3 elements|4 (f32[4])",
    ),
    ("unknown port", lambda e: bind(e, z=floats()), BIND, "unknown", "z", "z|port of plan plan"),
    (
        "unknown scalar",
        lambda e: e.plan.bind({"x": floats(), "y": floats()}, {"f": 1.0, "g": 2.0}),
        BIND,
        "unknown",
        "g",
        "scalar g|plan plan",
    ),
    (
        "scalar unbound",
        lambda e: e.plan.bind({"x": floats(), "y": floats()}, {}),
        BIND,
        "unbound",
        "f",
        "scalar f|unbound|f32",
    ),
    (
        "port unbound",
        lambda e: e.plan.bind({"x": floats()}, {"f": 1.0}),
        BIND,
        "unbound",
        "y",
        "output y|unbound|f32[4]",
    ),
    ("scalar kind", lambda e: bind(e, f=T.u32(1)), BIND, "kind", "f", "scalar f is u32|f32"),
    ("scalar beyond f32", lambda e: bind(e, f=1e39), BIND, "kind", "f", "1e+39|finite f32"),
    ("scalar bool", lambda e: bind(e, f=True), BIND, "kind", "f", "bool|number"),
    (
        "another device",
        lambda e: bind(e, x=far().new_buffer(accel.F32, 4)),
        BIND,
        "foreign",
        "x",
        "another device|plan's device",
    ),
    (
        "overlap of one element",
        lambda e: (lambda b: bind(e, x=b.view(0, 4), y=b.view(3, 4)))(e.buffer(8)),
        BIND,
        "overlap",
        "y",
        "output y|4 bytes|input x",
    ),
    (
        "closed plan",
        lambda e: closed(graph(e.rt, "gone").compile()).submit({}).wait(),
        BIND,
        "lifetime",
        "plan",
        "plan gone|closed|open",
    ),
    (
        "bindings of another plan",
        lambda e: e.plan.submit(
            graph(e.rt).compile().bind({"x": floats(), "y": floats()}, {"f": 1.0})
        ).wait(),
        BIND,
        "foreign",
        "bindings",
        "another plan|plan plan",
    ),
    (
        "closed queue",
        lambda e: submit(e, queue=closed(e.device.new_queue("q"))),
        BIND,
        "lifetime",
        "queue",
        "queue q is closed|open",
    ),
    (
        "queue of another device",
        lambda e: submit(e, queue=far().new_queue("far")),
        BIND,
        "foreign",
        "queue",
        "queue far|another device|plan's",
    ),
    (
        "timeout",
        lambda e: e.plan.submit({"x": floats(), "y": floats()}, {"f": 1.0}).wait(-1),
        ATTR,
        "attr",
        "timeout",
        "-1|0 or more",
    ),
)


def mixed_ranges(e):
    b = e.rt.new_builder("mixed")
    s = b.state("s", accel.F32, [2, 4, 2])
    b.output("y", T.silu(T.read_state(s)))
    rows, ids = b.input("r", accel.F32, [1, 2]), b.input("i", accel.U32, [1])
    T.scatter_rows(T.layer_state(s, 1), rows, ids)
    return b.compile()


def without_output(e):
    b = e.rt.new_builder("idle")
    T.silu(b.input("x", accel.F32, [4]))
    return b.compile()


def late_builder():
    rt = accel.Runtime(far())
    b = graph(rt)
    rt.close()
    return b


def viewed_only(e):
    """An input that only a view without a reader uses."""
    b = graph(e.rt)
    T.reshape(b.input("a", accel.F32, [4]), [2, 2])
    return b.compile()


def read_only(e):
    b = graph(e.rt)
    T.read_state(b.state("a", accel.F32, [4]))
    return b.compile()


def scalar_unused(e):
    b = graph(e.rt)
    b.scalar("a", T.ScalarKind.U32)
    return b.compile()


def vast(e):
    b = e.rt.new_builder("vast")
    b.output("y", T.silu(b.input("x", accel.F32, [2**33])))
    return b.compile()


def traced_twice(e):
    path = str(e.folder / "t.json")
    with e.plan.trace(path), e.plan.trace(path):
        pass


PLANS = table(
    "plan",
    ("mixed ranges", mixed_ranges, ATTR, "attr", "s", "s[8:16]|s[0:16]|written|equal or disjoint"),
    ("no output", without_output, ATTR, "attr", "graph", "'idle'|output|state write"),
    ("unused input", viewed_only, ATTR, "attr", "a", "input|'a' is unused|must be used"),
    ("unused state", read_only, ATTR, "attr", "a", "state|'a' is unused|must be used"),
    ("unused scalar", scalar_unused, ATTR, "attr", "a", "scalar|'a' is unused|must be used"),
    (
        "indices beyond 32 bits",
        vast,
        accel.UnsupportedError,
        "unsupported",
        "",
        "silu|silu_f32 indexes in 32 bits|silu_f16",
    ),
    ("closed runtime", lambda e: late_builder().compile(), BIND, "lifetime", "runtime", "closed"),
    (
        "max_in_flight",
        lambda e: graph(e.rt).compile(max_in_flight=0),
        ATTR,
        "attr",
        "max_in_flight",
        "0|positive",
    ),
    (
        "closed pool",
        lambda e: graph(e.rt).compile(pool=closed(e.device.new_transient_pool("p"))),
        BIND,
        "lifetime",
        None,
        "pool p|closed|open",
    ),
    (
        "pool of another device",
        lambda e: graph(e.rt).compile(pool=far().new_transient_pool("far")),
        BIND,
        "foreign",
        None,
        "pool far|another device",
    ),
    ("open runtime", lambda e: e.rt.close(), BIND, "lifetime", "runtime", "open plan|none"),
    (
        "map",
        lambda e: e.plan.memory_map(str(e.folder / "m.txt")),
        ATTR,
        "attr",
        "path",
        "m.txt|.json or .svg",
    ),
    ("traced twice", traced_twice, ATTR, "attr", "plan", "plan plan|traced|must not"),
    ("pack unknown", lambda e: e.plan.pack({"z": floats()}), BIND, "unknown", "z", "z|plan plan"),
    (
        "closed cache",
        lambda e: closed(T.PlanCache(e.rt)).compile(lambda b: None),
        BIND,
        "lifetime",
        None,
        "cache|closed|open",
    ),
    ("cache without runtime", lambda e: T.PlanCache(None), ATTR, "attr", "runtime", "missing"),
)

INT4 = quant.int4_quantize(np.linspace(0, 1, 100, dtype=np.float32))


def widened(**given):
    o = {"codes": INT4.codes, "scales": INT4.scales, "zeros": INT4.zeros, "weights": 100, **given}
    return quant.int4_dequantize(*(o[n] for n in ("codes", "scales", "zeros", "weights")))


def with_value(value, n=8, at=3):
    w = floats(n)
    w[at] = value
    return w


Q4_0 = np.zeros(18, np.uint8)

QUANT = table(
    "quant",
    *[
        (
            f"{f.__name__} of {value}",
            lambda e, f=f, value=value: f(with_value(value)),
            ATTR,
            "attr",
            "w",
            f"w[3]|{value}|finite",
        )
        for f in (quant.int8_quantize, quant.int4_quantize)
        for value in (NAN, INF, -INF)
    ],
    *[
        (
            f"{f.__name__} of nothing",
            lambda e, f=f: f(floats(0)),
            ATTR,
            "attr",
            "w",
            "empty|weights",
        )
        for f in (quant.int8_quantize, quant.int4_quantize)
    ],
    *[
        (
            f"{f.__name__} of f64",
            lambda e, f=f: f(np.ones(4)),
            DTYPE,
            "dtype",
            "w",
            "float64[4]|f32",
        )
        for f in (quant.int8_quantize, quant.int4_quantize)
    ],
    (
        "int8 scale",
        lambda e: quant.int8_quantize(with_value(1e30, 40, 33)),
        ATTR,
        "attr",
        "w",
        "block 1|[1, 1.00000002e+30]|65504",
    ),
    (
        "int4 scale",
        lambda e: quant.int4_quantize(with_value(-1e30, 200, 130)),
        ATTR,
        "attr",
        "w",
        "scale of block 1|[-1.00000002e+30, 1]|65504",
    ),
    (
        "int4 zero",
        lambda e: quant.int4_quantize(np.full(4, 1e6, np.float32)),
        ATTR,
        "attr",
        "w",
        "zero of block 0|[1000000, 1000000]|65504",
    ),
    *[
        (
            f"group {group}",
            lambda e, group=group: quant.int4_quantize(floats(), group),
            ATTR,
            "attr",
            "group",
            f"{group}|32, 64 or 128",
        )
        for group in (0, 16, 48, 256)
    ],
    ("weights", lambda e: widened(weights=-1), ATTR, "attr", "weights", "-1|positive"),
    ("codes", lambda e: widened(codes=INT4.codes[1:]), ATTR, "attr", "codes", "12|13"),
    ("scales", lambda e: widened(scales=INT4.scales[1:]), ATTR, "attr", "scales", "0|1"),
    ("zeros", lambda e: widened(zeros=INT4.zeros[1:]), ATTR, "attr", "zeros", "0|1"),
    (
        "codes dtype",
        lambda e: widened(codes=INT4.codes.view(np.int32)),
        DTYPE,
        "dtype",
        "codes",
        "int32[13]|u32",
    ),
    (
        "scales dtype",
        lambda e: widened(scales=floats(1)),
        DTYPE,
        "dtype",
        "scales",
        "float32[1]|f16",
    ),
    (
        "int8 scales",
        lambda e: quant.int8_dequantize(np.ones(33, np.int8), np.ones(1, np.float16)),
        ATTR,
        "attr",
        "scales",
        "1|2",
    ),
    ("bound", lambda e: quant.int8_bound(floats(4), floats(3)), ATTR, "attr", "scales", "3|4"),
    (
        "int4 bound",
        lambda e: quant.int4_bound(floats(4), floats(4), floats(3)),
        ATTR,
        "attr",
        "zeros",
        "3|4",
    ),
    (
        "type",
        lambda e: quant.gguf_planes("IQ4_NL", Q4_0, (1, 32)),
        ATTR,
        "attr",
        "type",
        "'IQ4_NL'|Q4_0",
    ),
    *[
        (
            f"type {number}",
            lambda e, number=number: quant.gguf_planes(number, Q4_0, (1, 32)),
            ATTR,
            "attr",
            "type",
            f"{number}|[0, {2**32 - 1}]",
        )
        for number in (2**32 + 2, -1)
    ],
    (
        "row length",
        lambda e: quant.gguf_planes("Q4_0", Q4_0, (1, 31)),
        ATTR,
        "attr",
        "shape",
        "[1 31]|multiple of 32|Q4_0",
    ),
    (
        "bytes",
        lambda e: quant.gguf_planes("Q4_0", Q4_0[1:], (1, 32)),
        ATTR,
        "attr",
        "blocks",
        "17 bytes|1 times 18|Q4_0[1 32]",
    ),
    (
        "threads",
        lambda e: quant.gguf_planes("Q4_0", Q4_0, (1, 32), -1),
        ATTR,
        "attr",
        "threads",
        "-1|[0, 4096]",
    ),
)


def scalars(prefix="s", n=0, cap=4, **options):
    return T.SamplingOptions(**{"repetition": 1.5, **options}).scalars(prefix, n, cap)


SAMPLING = table(
    "sampling",
    ("prefix", lambda e: scalars(""), ATTR, "attr", "prefix", "''|name"),
    ("capacity", lambda e: scalars(cap=0), ATTR, "attr", "history_cap", "0|positive"),
    ("n", lambda e: scalars(n=5), ATTR, "attr", "n", "5|[0, 4]"),
    ("n -1", lambda e: scalars(n=-1), ATTR, "attr", "n", "-1|[0, 4]"),
    (
        "capacity beyond u32",
        lambda e: scalars(n=2**32 + 3, cap=2**33),
        ATTR,
        "attr",
        "history_cap",
        f"{2**33}|{2**32 - 1}",
    ),
    ("options first", lambda e: scalars("", top_k=-1), ATTR, "attr", "top_k", "-1|0 or more"),
    *[
        (
            f"{name} {value}",
            lambda e, o={name: value}: T.SamplingOptions(**o).validate(),
            ATTR,
            "attr",
            name,
            f"{value}|{must}",
        )
        for name, value, must in (
            ("temperature", NAN, "finite"),
            ("temperature", INF, "finite"),
            ("temperature", -1, "0 or more"),
            ("temperature", 9.9e-4, "0 for greedy"),
            ("top_k", -1, "0 or more"),
            ("top_k", 129, "at most 128"),
            ("top_p", NAN, "[0, 1]"),
            ("top_p", 1.5, "[0, 1]"),
            ("top_p", -0.5, "[0, 1]"),
            ("repetition", NAN, "finite"),
            ("presence", INF, "finite"),
            ("frequency", -INF, "finite"),
            ("repetition", -1, "0 or more"),
        )
        if value != 9.9e-4
    ],
    (
        "temperature below the least",
        lambda e: T.SamplingOptions(temperature=9.9e-4).validate(),
        ATTR,
        "attr",
        "temperature",
        "0.00099|0 for greedy, or 0.001",
    ),
    ("seed", lambda e: T.Stream(-1), ATTR, "attr", "seed", "-1|[0, 2^64)"),
    ("step", lambda e: T.Stream(1).draw(2**64), ATTR, "attr", "step", f"{2**64}|[0, 2^64)"),
    ("root", lambda e: T.derive(-1, 0), ATTR, "attr", "root", "-1|[0, 2^64)"),
    ("seq", lambda e: T.derive(0, 2**64), ATTR, "attr", "seq", f"{2**64}|[0, 2^64)"),
    ("u32", lambda e: T.u32(2**32), ATTR, "attr", "value", f"{2**32}|{2**32 - 1}"),
    ("f32", lambda e: T.f32(1e39), ATTR, "attr", "value", "1e+39|finite f32"),
)

ALL = [*DEVICES, *BUFFERS, *SUBMIT, *PLANS, *QUANT, *SAMPLING]


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    device = accel.open_cpu(threads=1)
    rt = accel.Runtime(device)

    def buffer(count, dtype=accel.F32):
        return device.new_buffer(dtype, count, "held")

    plan = graph(rt).compile()
    folder = tmp_path_factory.mktemp("refused")
    return SimpleNamespace(device=device, rt=rt, plan=plan, buffer=buffer, folder=folder)


def check(row: Row, e) -> None:
    with pytest.raises(row.error) as caught:
        row.call(e)
    error = caught.value
    assert type(error) is row.error and error.code == row.code, repr(error)
    if row.error is BIND:
        (problem,) = error.problems
        assert problem.code == row.code
        assert row.operand in (None, problem.name) or row.operand in problem.message
    elif row.operand is not None:
        assert error.operand == row.operand
    for word in row.words.split("|"):
        assert word in str(error), f"{word!r} is not in {error}"


@pytest.mark.parametrize("row", ALL, ids=[row.name for row in ALL])
def test_refused_with_class_code_operand_and_values(env, row):
    check(row, env)
    assert bind(env) is not None, "and nothing has changed"


def test_too_large_carries_its_numbers(env):
    with pytest.raises(CAPACITY) as caught:
        env.device.new_buffer(accel.F32, 2**50)
    error = caught.value
    assert error.requested == 2**52 and 0 < error.free <= error.limit
    assert str(error.limit) in str(error)


def test_rows_are_told_apart():
    names = [row.name for row in ALL]
    assert len(names) == len(set(names))
