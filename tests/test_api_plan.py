"""Plans from Python: compile, submit, prepared bindings, what is refused and how it is named."""

import collections
import collections.abc
import gc
import types

import accel
import numpy as np
import pytest
from accel import tensor as T


@pytest.fixture(scope="module")
def rt():
    return accel.Runtime(accel.open_cpu(threads=1, debug_fill=0xFF))


def record(rt, label="double"):
    """y = (x + x) * f"""
    b = rt.new_builder(label)
    x = b.input("x", accel.F32, [2, 4])
    f = b.scalar("f", T.ScalarKind.F32)
    b.output("y", T.scale(x + x, f))
    return b


@pytest.fixture
def plan(rt):
    plan = record(rt).compile()
    yield plan
    plan.close()


def arrays():
    return np.arange(8, dtype=np.float32).reshape(2, 4), np.zeros((2, 4), np.float32)


def codes(error) -> dict:
    return {p.name: p.code for p in error.problems}


# ---------------------------------------------------------------- compile and reports


def test_reports(plan):
    assert plan.label == "double"
    assert [(p.name, str(p.kind), p.dtype, p.shape, p.layout) for p in plan.ports()] == [
        ("x", "input", accel.F32, (2, 4), "plain"),
        ("y", "output", accel.F32, (2, 4), "plain"),
    ]
    assert [(s.name, s.kind) for s in plan.scalars()] == [("f", T.ScalarKind.F32)]
    picks = plan.selections()
    assert [s.op for s in picks] == ["add", "scale"]
    assert all(isinstance(s, T.KernelSelection) and s.kernel and s.reason for s in picks)
    memory = plan.memory()
    assert isinstance(memory, accel.GraphMemory)
    assert memory.transient_bytes >= 32 and memory.unaliased_bytes >= memory.peak_bytes
    text = plan.explain()
    assert "add" in text and "test_api_plan.py" in text and text == plan.explain()


def test_compile_options(rt):
    stages = []
    plan = record(rt).compile("named", progress=lambda *step: stages.append(step))
    assert plan.label == "named"
    names = list(dict.fromkeys(stage for stage, _, _ in stages))
    assert names == ["check", "select", "plan", "pipelines", "record"]
    assert all(0 <= done <= total for _, done, total in stages)
    assert record(rt, "from the builder").compile(label="").label == "from the builder"
    record(rt).compile(_naive=True, _verify=True).close()


def test_an_exception_of_progress_stops_the_compile(rt):
    class Stop(Exception):
        pass

    def progress(stage, done, total):
        if stage == "plan":
            raise Stop

    gc.collect()
    open_plans = rt.counters()["built"]
    with pytest.raises(Stop):
        record(rt).compile(progress=progress)
    assert rt.counters()["built"] >= open_plans


def test_p26_24_counters_stand_still_after_warm_up(rt, plan):
    x, y = arrays()
    plan.submit({"x": x, "y": y}, {"f": 1}).wait()
    before = rt.counters()
    assert set(before) == {"built", "planned", "pipelines"}
    bound = plan.bind({"x": x, "y": y}, {"f": 1})
    for _ in range(3):
        plan.submit(bound).wait()
    assert rt.counters() == before


# ---------------------------------------------------------------- submit


def test_submit_with_dicts_writes_in_place(plan):
    x, y = arrays()
    fence = plan.submit({"x": x, "y": y}, {"f": 2})
    assert fence.wait() is True and fence.done and fence.wait() is True
    np.testing.assert_array_equal(y, 4 * x)
    stats = fence.stats
    assert 0 < stats.queued_ns <= stats.started_ns <= stats.finished_ns


def test_submit_with_buffers_and_views(rt, plan):
    x, y = arrays()
    source = rt.device.buffer(np.concatenate([np.full(3, 9, np.float32), x.ravel()]))
    result = rt.device.new_buffer(accel.F32, 20, "result")
    plan.submit({"x": source.view(3, 8), "y": result}, {"f": T.f32(0.5)}).wait()
    np.testing.assert_array_equal(result.read()[:8], x.ravel())
    assert not result.read()[8:].any(), "a larger buffer is narrowed"
    as_bytes = rt.device.buffer(np.frombuffer(x.tobytes(), np.uint8))
    plan.submit({"x": as_bytes.view_as(accel.F32, 0, 8), "y": y}, {"f": 1}).wait()
    np.testing.assert_array_equal(y, 2 * x)


def test_p26_33_prepared_bindings_give_the_bits_of_the_dicts(plan):
    x, y = arrays()
    bound = plan.bind({"x": x, "y": y}, {"f": 3})
    assert isinstance(bound, T.Bindings) and bound.plan is plan
    plan.submit(bound).wait()
    np.testing.assert_array_equal(y, 6 * x)
    bound.scalars["f"] = 1.5
    plan.submit(bound).wait()
    np.testing.assert_array_equal(y, 3 * x)
    other = np.zeros_like(y)
    bound["y"] = other
    plan.submit(bound).wait()
    np.testing.assert_array_equal(other, 3 * x)
    bound.update({"y": y, "x": other}, {"f": T.f32(1)})
    plan.submit(bound).wait()
    np.testing.assert_array_equal(y, 6 * x)


def test_scalars_take_numbers(plan):
    x, y = arrays()
    for value in (2, 2.0, np.float32(2), np.int64(2), np.float16(2), T.f32(2)):
        plan.submit({"x": x, "y": y}, {"f": value}).wait()
        np.testing.assert_array_equal(y, 4 * x)
    plan.submit({"x": x, "y": y}, {"f": float("nan")}).wait()
    assert np.isnan(y).all()


# ---------------------------------------------------------------- problems


def bad_set(rt):
    x, y = arrays()
    return {"x": x.astype(np.float64), "y": rt.device.new_buffer(accel.F32, 4), "z": y}, {
        "f": True,
        "g": 1.0,
    }


EXPECTED = {"x": "dtype", "y": "too_small", "z": "unknown", "f": "kind", "g": "unknown"}


def test_bind_reports_all_problems_together(rt, plan):
    with pytest.raises(accel.BindError) as caught:
        plan.bind(*bad_set(rt))
    error = caught.value
    assert codes(error) == EXPECTED
    assert error.code == "several" and isinstance(error, ValueError)
    lines = str(error).splitlines()
    assert lines == sorted(lines) and len(lines) == 5
    assert isinstance(error.problems[0], accel.Problem)
    assert "numpy.float32" in str(error) and "astype" in str(error)


def test_p26_23_submit_delivers_the_same_problems_by_its_fence(rt, plan):
    fence = plan.submit(*bad_set(rt))
    assert fence.done
    for _ in range(2):
        with pytest.raises(accel.BindError) as caught:
            fence.wait()
        assert codes(caught.value) == EXPECTED


def test_p26_23_everything_unbound_is_listed(plan):
    with pytest.raises(accel.BindError) as caught:
        plan.bind({})
    assert codes(caught.value) == {"x": "unbound", "y": "unbound", "f": "unbound"}
    assert caught.value.code == "unbound"
    assert "input x" in str(caught.value) and "output y" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "scalar f is a bool"),
        (1e39, r"1e\+39 .* finite"),
        (-(2**200), "finite"),
        (T.u32(1), "scalar f is u32 and must be f32"),
    ],
)
def test_numbers_refused_for_an_f32_scalar(plan, value, words):
    x, y = arrays()
    with pytest.raises(accel.BindError, match=words) as caught:
        plan.bind({"x": x, "y": y}, {"f": value})
    assert caught.value.code == "kind"


@pytest.mark.parametrize("value", [True, 1.0, -1, 2**32, 2**70, np.float32(1), T.f32(1)])
def test_numbers_refused_for_a_u32_scalar(rt, value):
    b = rt.new_builder("prefill")
    k = b.state("k", accel.F32, [4, 1, 8])
    v = b.state("v", accel.F32, [4, 1, 8])
    base, scale = b.scalar("base", T.ScalarKind.U32), b.scalar("scale", T.ScalarKind.F32)
    q, lengths = b.input("q", accel.F32, [2, 1, 8]), b.input("lengths", accel.U32, [1])
    out = T.attention(q, k, v, lengths=lengths, scale_name=scale, base_name=base)
    b.output("out", out)
    plan = b.compile()
    given = {
        "k": np.zeros((4, 1, 8), np.float32),
        "v": np.zeros((4, 1, 8), np.float32),
        "q": np.zeros((2, 1, 8), np.float32),
        "lengths": np.array([2], np.uint32),
        "out": np.zeros((2, 1, 8), np.float32),
    }
    with pytest.raises(accel.BindError) as caught:
        plan.bind(given, {"base": value, "scale": 1.0})
    assert codes(caught.value) == {"base": "kind"}
    assert plan.submit(given, {"base": np.uint8(0), "scale": 1}).wait()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda p, x, y: p.submit({"x": [1.0], "y": y}, {"f": 1}),
            "submit: x is a list and",
        ),
        (lambda p, x, y: p.bind({"x": None, "y": y}, {"f": 1}), "bind: x is None"),
        (lambda p, x, y: p.bind([("x", x)], {}), "bind: bindings is a list and must be a dict"),
        (lambda p, x, y: p.bind({1: x}, {}), "a key of bindings is an int"),
        (
            lambda p, x, y: p.bind({"x": x, "y": y}, {"f": "1"}),
            "bind: f is a str and must",
        ),
        (lambda p, x, y: p.bind({"x": x, "y": y}, {"f": 1j}), "bind: f is a complex"),
        (lambda p, x, y: p.submit({"x": x}, {}, queue=3), "submit: queue is an int"),
        (lambda p, x, y: p.submit({"x": x}, {}, after=3), "submit: after is an int"),
        (lambda p, x, y: p.submit({"x": x}, {}, after="f"), "submit: after is a str"),
        (lambda p, x, y: p.submit({"x": x}, {}, after=np.array(3)), "after is a ndarray and"),
        (lambda p, x, y: p.submit({"x": x}, {}, after=[3]), "an entry of after is an int"),
        (
            lambda p, x, y: p.submit(p.bind({"x": x, "y": y}, {"f": 1}), {"f": 2}),
            "scalars is given and must be None with prepared Bindings",
        ),
    ],
)
def test_wrong_python_types_raise_at_the_call(plan, call, words):
    with pytest.raises(TypeError, match=words):
        call(plan, *arrays())


class Items(collections.abc.Mapping):
    """A mapping that is no dict."""

    def __init__(self, **items):
        self.items_ = items

    def __getitem__(self, name):
        return self.items_[name]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


@pytest.mark.parametrize("kind", [dict, Items, lambda **i: types.MappingProxyType(i)])
def test_any_mapping_holds_bindings(plan, kind):
    x, y = arrays()
    assert plan.submit(kind(x=x, y=y), kind(f=1)).wait()
    np.testing.assert_array_equal(y, 2 * x)
    bound = plan.bind(kind(x=x, y=y), kind(f=2))
    bound.update(kind(x=x + 1), kind(f=3))
    assert plan.submit(bound).wait()
    np.testing.assert_array_equal(y, 6 * (x + 1))
    packed = plan.pack(kind(x=x, y=y))
    assert set(packed) == {"x", "y"} and packed["x"] is x
    with pytest.raises(TypeError, match="a key of bindings is an int"):
        plan.bind(types.MappingProxyType({1: x}))


@pytest.mark.parametrize("kind", [list, tuple, collections.deque])
def test_after_is_any_sequence(plan, kind):
    x, y = arrays()
    first = plan.submit({"x": x, "y": y}, {"f": 1})
    first.wait()
    assert plan.submit({"x": x, "y": y}, {"f": 1}, after=kind([first])).wait()


def test_the_text_of_compile_names_its_options():
    options = T.Builder.compile.__doc__
    for name in ("label", "max_in_flight", "pool", "fuse", "pack", "progress"):
        assert f"{name}=" in options


def test_a_number_wider_than_f64_is_rounded_once(plan):
    wide = np.longdouble
    if np.finfo(wide).nmant <= 52:
        pytest.skip("long double is f64 here")
    x, y = arrays()
    for value in (wide("1e400"), wide("-1e400"), wide("3.5e38")):
        with pytest.raises(accel.BindError, match="rounds to a finite f32") as caught:
            plan.bind({"x": x, "y": y}, {"f": value})
        assert codes(caught.value) == {"f": "kind"}
        with pytest.raises(accel.AttrError, match="finite f32"):
            T.f32(value)
    for value in (wide("inf"), np.float32("inf"), np.float64("inf"), float("inf")):
        assert T.f32(value).f32 == float("inf")
        assert plan.bind({"x": x, "y": y}, {"f": value}) is not None
    assert np.isnan(T.f32(wide("nan")).f32)
    half, least = wide(1) + wide(2) ** -24, wide(2) ** -60
    assert T.f32(half).f32 == 1, "halfway: to even"
    assert T.f32(half + least).f32 == 1 + 2.0**-23
    assert T.f32(half - least).f32 == 1
    assert T.f32(-(half + least)).f32 == -(1 + 2.0**-23)
    three = wide(1) + wide(2) ** -23 + wide(2) ** -24
    assert (T.f32(three - least).f32, T.f32(three).f32) == (1 + 2.0**-23, 1 + 2.0**-22)


def test_p26_33_a_failed_assignment_changes_nothing(rt, plan):
    x, y = arrays()
    bound = plan.bind({"x": x, "y": y}, {"f": 1})
    failures = [
        lambda: bound.__setitem__("x", x.astype(np.float64)),
        lambda: bound.__setitem__("x", rt.device.new_buffer(accel.F32, 3)),
        lambda: bound.__setitem__("nothing", x),
        lambda: bound.__setitem__("y", x),  # overlaps x
        lambda: bound.scalars.__setitem__("f", T.u32(1)),
        lambda: bound.scalars.__setitem__("f", False),
        lambda: bound.scalars.__setitem__("g", 1.0),
        lambda: bound.update({"x": np.ones((2, 4), np.float32), "nothing": y}, {"f": 9}),
        lambda: bound.update({"x": np.ones((2, 4), np.float32)}, {"f": True}),
        lambda: bound.update({"x": np.ones((4, 2), np.float32).T}, {"f": 9}),
    ]
    for failure in failures:
        with pytest.raises(accel.BindError):
            failure()
        y[:] = -1
        plan.submit(bound).wait()
        np.testing.assert_array_equal(y, 2 * x)


def test_update_reports_all_problems_together(plan):
    x, y = arrays()
    bound = plan.bind({"x": x, "y": y}, {"f": 1})
    with pytest.raises(accel.BindError) as caught:
        bound.update({"x": x.astype(np.float16), "q": x}, {"f": True, "g": 1})
    assert codes(caught.value) == {"x": "dtype", "q": "unknown", "f": "kind", "g": "unknown"}


def test_overlap_between_a_read_and_a_written_port(plan):
    x, _ = arrays()
    with pytest.raises(accel.BindError) as caught:
        plan.bind({"x": x, "y": x}, {"f": 1})
    assert codes(caught.value) == {"y": "overlap"}


def test_p26_33_bindings_of_another_plan(rt, plan):
    x, y = arrays()
    other = record(rt).compile()
    fence = plan.submit(other.bind({"x": x, "y": y}, {"f": 1}))
    with pytest.raises(accel.BindError) as caught:
        fence.wait()
    assert caught.value.code == "foreign"


def test_a_buffer_of_another_device(plan):
    _, y = arrays()
    foreign = accel.open_cpu(threads=1).new_buffer(accel.F32, 8)
    with pytest.raises(accel.BindError) as caught:
        plan.bind({"x": foreign, "y": y}, {"f": 1})
    assert codes(caught.value) == {"x": "foreign"}


def test_a_fence_of_another_device_orders_nothing_here(rt, plan):
    x, y = arrays()
    there = record(accel.Runtime(accel.open_cpu(threads=1))).compile()
    foreign = there.submit({"x": x, "y": y}, {"f": 1})
    refused = plan.submit({"x": x, "y": y}, {"f": 1}, after=[foreign])
    with pytest.raises(accel.BindError, match="after holds a fence of another device") as caught:
        refused.wait()
    assert caught.value.code == "foreign"
    assert foreign.wait()
    assert plan.submit({"x": x, "y": y}, {"f": 1}).wait()


def test_p26_33_a_buffer_closed_after_bind_is_found_at_submit(rt, plan):
    x, y = arrays()
    buffer = rt.device.buffer(x)
    bound = plan.bind({"x": buffer, "y": y}, {"f": 1})
    buffer.close()
    with pytest.raises(accel.BindError) as caught:
        plan.submit(bound).wait()
    assert codes(caught.value) == {"x": "lifetime"}


# ---------------------------------------------------------------- closing


def test_a_closed_plan_comes_before_other_problems(rt):
    plan = record(rt).compile()
    plan.close()
    plan.close()
    assert plan.closed
    for bindings in ({}, {"x": np.ones(3)}):
        with pytest.raises(accel.BindError, match="closed") as caught:
            plan.submit(bindings).wait()
        assert caught.value.code == "lifetime"
    with pytest.raises(accel.BindError, match="closed"):
        plan.bind({})


def test_p26_25_runtime_close_counts_open_plans():
    rt = accel.Runtime(accel.open_cpu(threads=1))
    plans = [record(rt).compile() for _ in range(2)]
    with pytest.raises(accel.BindError, match="2 open plans") as caught:
        rt.close()
    assert caught.value.code == "lifetime" and not rt.closed
    builder = record(rt)
    del plans
    rt.close()
    rt.close()
    assert rt.closed
    with pytest.raises(accel.BindError, match="runtime is closed"):
        builder.compile()


def test_a_missing_device_is_refused():
    with pytest.raises(accel.AttrError, match="device is missing"):
        accel.Runtime(None)
    with pytest.raises(TypeError, match="device is an int and must be a Device"):
        accel.Runtime(1)


def test_objects_hold_references_upwards():
    plan = record(accel.Runtime(accel.open_cpu(threads=1))).compile()
    gc.collect()
    x, y = arrays()
    plan.submit({"x": x, "y": y}, {"f": 1}).wait()
    np.testing.assert_array_equal(y, 2 * x)
    assert plan.runtime.device.info.backend == "cpu"
