"""Properties 4, 5, 23, 24, 25 and 33 on plans: several submissions in flight, transient pools,
bindings, counters, closing."""

import gc
import threading

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T

N = 256


@pytest.fixture
def rt():
    return accel.Runtime(accel.open_cpu(threads=1, debug_fill=0xFF))


def record(rt, steps=3, width=N, label="plan"):
    """y = f * x * w^steps for the given w; transients all the way."""
    b = rt.new_builder(label)
    x, w = b.input("x", accel.F32, [width, width]), b.weight("w", accel.F32, [width, width])
    f = b.scalar("f", T.ScalarKind.F32)
    y = x
    for _ in range(steps):
        y = T.matmul(y, w)
    b.output("y", T.scale(y, f))
    return b


def given(value=1.0, width=N):
    eye = np.eye(width, dtype=np.float32)
    return {"x": eye * np.float32(value), "w": eye, "y": np.zeros((width, width), np.float32)}


def code_of(fence):
    try:
        fence.wait()
    except accel.Error as e:
        return e.code
    return "ran"


def want(value, width=N):
    return np.eye(width, dtype=np.float32) * np.float32(value)


# ---------------------------------------------------------------- E8


def slow(rt, **options):
    """A plan that takes a while, so that submissions pile up."""
    return record(rt, steps=60).compile(**options)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_p26_04_submissions_beyond_max_in_flight_are_refused(rt, limit):
    plan = slow(rt, max_in_flight=limit)
    sets = [given(i + 1) for i in range(limit)]
    fences = [plan.submit(s, {"f": 2.0}) for s in sets]
    late = plan.submit(given(), {"f": 1.0})
    assert late.done
    with pytest.raises(accel.BindError) as caught:
        late.wait()
    assert caught.value.code == "in_flight"
    words = f"has {limit} submission{'s' if limit > 1 else ''} in flight and may have at most"
    assert words in str(caught.value) and f"{limit} (max_in_flight)" in str(caught.value)
    for i, (s, fence) in enumerate(zip(sets, fences, strict=True)):
        assert fence.wait()
        np.testing.assert_array_equal(s["y"], want(2 * (i + 1)))
    assert plan.submit(sets[0], {"f": 1.0}).wait()


def test_each_submission_has_its_own_transients_on_its_own_queue(rt):
    plan = record(rt, steps=6).compile(max_in_flight=4)
    queues = [rt.device.new_queue(str(i)) for i in range(4)]
    sets = [given(i + 1) for i in range(4)]
    for turn in range(5):
        fences = [
            plan.submit(s, {"f": turn + 1}, queue=q) for s, q in zip(sets, queues, strict=True)
        ]
        assert all(fence.wait() for fence in fences)
        for i, s in enumerate(sets):
            np.testing.assert_array_equal(s["y"], want((i + 1) * (turn + 1)))
            s["y"][:] = 0


def test_memory_is_per_instance_and_instances_are_made_on_demand(rt):
    one, many = record(rt).compile(), record(rt).compile(max_in_flight=3)
    assert one.memory() == many.memory() and one.memory().transient_bytes > 0
    pool = rt.device.new_transient_pool("count")
    plan = slow(rt, max_in_flight=3, pool=pool)
    assert pool.graphs == 1
    for _ in range(3):
        assert plan.submit(given(), {"f": 1.0}).wait()
    assert pool.graphs == 1, "one at a time needs one instance"
    fences = [plan.submit(given(i), {"f": 1.0}) for i in range(3)]
    assert pool.graphs == 3
    assert all(f.wait() for f in fences)
    plan.close()
    assert pool.graphs == 0


def test_one_prepared_set_may_be_in_flight_in_two_instances(rt):
    plan = slow(rt, max_in_flight=2)
    s = given(3)
    bound = plan.bind(s, {"f": 1.0})
    first = plan.submit(bound)
    bound.scalars["f"] = 5.0
    other = np.zeros_like(s["y"])
    bound["y"] = other
    second = plan.submit(bound)
    assert first.wait() and second.wait()
    np.testing.assert_array_equal(s["y"], want(3))
    np.testing.assert_array_equal(other, want(15))


def test_an_instance_that_finds_no_memory_fails_its_fence_alone(rt):
    plan = slow(rt, max_in_flight=2)
    s = given(2)
    first = plan.submit(s, {"f": 1.0})
    _core._fail_allocation(1)
    try:
        second = plan.submit(given(), {"f": 1.0})
    finally:
        _core._fail_allocation(0)
    with pytest.raises(accel.CapacityError, match="plan plan: the arena of the transients") as e:
        second.wait()
    assert e.value.code == "out_of_memory" and e.value.requested > 0
    third = plan.submit(given(), {"f": 1.0})
    assert first.wait() and third.wait()
    np.testing.assert_array_equal(s["y"], want(2))


@pytest.mark.threads
@pytest.mark.parametrize("limit", [1, 3])
def test_p26_04_racing_threads_get_results_or_a_clean_refusal(rt, limit):
    plan = record(rt, steps=2, width=16).compile(max_in_flight=limit)
    wrong, outcomes = [], []

    def work(me):
        s = given(me, 16)
        bound = plan.bind(s, {"f": 1.0})
        for turn in range(1, 101):
            bound.scalars["f"] = turn
            s["y"][:] = 0
            code = code_of(plan.submit(bound))
            outcomes.append(code)
            if code == "ran" and not np.array_equal(s["y"], want(me * turn, 16)):
                wrong.append((me, turn))

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert set(outcomes) <= {"ran", "in_flight"} and "ran" in outcomes


def test_p26_04_two_submits_in_a_tight_loop_never_mix(rt):
    plan = record(rt, steps=2, width=16).compile()
    for turn in range(200):
        a, b = given(1, 16), given(2, 16)
        first, second = plan.submit(a, {"f": 1.0}), plan.submit(b, {"f": 1.0})
        codes = code_of(first), code_of(second)
        assert codes[0] == "ran" and codes[1] in ("ran", "in_flight"), turn
        np.testing.assert_array_equal(a["y"], want(1, 16))
        np.testing.assert_array_equal(b["y"], want(2, 16) * (codes[1] == "ran"))


# ---------------------------------------------------------------- E9


def test_a_pool_is_as_large_as_its_largest_graph(rt):
    pool = rt.device.new_transient_pool("shared")
    assert (pool.bytes, pool.graphs, pool.label) == (0, 0, "shared")
    assert pool.device is rt.device and not pool.closed
    small, large = record(rt, width=32), record(rt, width=64)
    alone = [b.compile().memory() for b in (small, large)]
    plans = [small.compile(pool=pool)]
    assert pool.bytes == alone[0].transient_bytes and pool.graphs == 1
    plans.append(large.compile(pool=pool))
    assert pool.bytes == alone[1].transient_bytes and pool.graphs == 2
    plans.append(record(rt, width=32).compile(pool=pool))
    assert pool.bytes == alone[1].transient_bytes, "the maximum, not the sum"
    assert [p.memory() for p in plans] == [alone[0], alone[1], alone[0]]
    for _ in range(2):
        for plan, width in zip(plans, (32, 64, 32), strict=True):
            s = given(3, width)
            assert plan.submit(s, {"f": 2.0}).wait()
            np.testing.assert_array_equal(s["y"], want(6, width))
    plans[1].close()
    assert pool.graphs == 2 and pool.bytes == alone[1].transient_bytes, "it never shrinks"


def test_growth_leaves_prepared_bindings_of_earlier_graphs_valid(rt):
    pool = rt.device.new_transient_pool()
    plan = record(rt, width=32).compile(pool=pool)
    s = given(2, 32)
    bound = plan.bind(s, {"f": 1.0})
    plan.submit(bound).wait()
    keep = []
    for width in (48, 64, 96, 160, 320):
        keep.append(record(rt, width=width).compile(pool=pool))
        s["y"][:] = 0
        assert plan.submit(bound).wait()
        np.testing.assert_array_equal(s["y"], want(2, 32))
        bound["x"] = s["x"].copy()
    other = given(5, 320)
    assert keep[-1].submit(other, {"f": 1.0}).wait()
    np.testing.assert_array_equal(other["y"], want(5, 320))


def test_p26_03_closing_a_pool_with_open_graphs_is_refused(rt):
    pool = rt.device.new_transient_pool("p")
    plans = [record(rt, width=32).compile(pool=pool) for _ in range(2)]
    with pytest.raises(accel.BindError, match="pool p has 2 open graphs and must have none") as e:
        pool.close()
    assert e.value.code == "lifetime" and not pool.closed
    s = given(1, 32)
    assert plans[0].submit(s, {"f": 1.0}).wait()
    plans[0].close()
    with pytest.raises(accel.BindError, match="1 open graph and"):
        pool.close()
    del plans
    gc.collect()
    assert pool.graphs == 0
    pool.close()
    pool.close()
    assert pool.closed and pool.bytes == 0
    with pytest.raises(accel.BindError, match="pool p is closed and must be open") as e:
        record(rt).compile(pool=pool)
    assert e.value.code == "lifetime"


def test_p26_03_a_device_counts_its_pools():
    device = accel.open_cpu(threads=1)
    pool = device.new_transient_pool("p")
    with pytest.raises(accel.BindError, match="1 live children .*1 transient pools") as caught:
        device.close()
    assert caught.value.code == "lifetime" and not device.closed
    pool.close()
    second = device.new_transient_pool()
    del second
    device.close()
    with pytest.raises(accel.BindError, match="closed"):
        device.new_transient_pool()
    with pytest.raises(TypeError, match="label is an int"):
        accel.open_cpu(threads=1).new_transient_pool(3)


def test_two_graphs_of_a_pool_on_two_queues_clash_or_are_ordered(rt):
    pool = rt.device.new_transient_pool("p")
    first = slow(rt, label="first", pool=pool)
    last = record(rt, label="last").compile(pool=pool)
    one, two = rt.device.new_queue("one"), rt.device.new_queue("two")
    long, short = given(2), given(3)
    met = False
    for _ in range(20):
        long["y"][:] = 0
        running = first.submit(long, {"f": 1.0}, queue=one)
        while not met and not running.done:
            met = clashes(last, short, two)
        code = code_of(running)  # whichever starts second is refused
        assert code in ("ran", "in_flight")
        np.testing.assert_array_equal(long["y"], want(2) * (code == "ran"))
        met = met or code == "in_flight"
        if met:
            break
    assert met, "the two queues never met"
    # By after=, and on one queue, nothing clashes.
    for queues in ((one, two), (one, one), (None, None)):
        long["y"][:], short["y"][:] = 0, 0
        running = first.submit(long, {"f": 1.0}, queue=queues[0])
        after = last.submit(short, {"f": 1.0}, queue=queues[1], after=[running])
        assert running.wait() and after.wait()
        np.testing.assert_array_equal(long["y"], want(2))
        np.testing.assert_array_equal(short["y"], want(3))


def clashes(plan, bindings, queue):
    """Submits beside what runs: a clean refusal by the fence, or a result."""
    bindings["y"][:] = 0
    fence = plan.submit(bindings, {"f": 1.0}, queue=queue)
    try:
        fence.wait()
    except accel.BindError as e:
        assert e.code == "in_flight" and "pool p is executing one of its graphs" in str(e)
        assert "after=" in str(e) and not bindings["y"].any()
        return True
    np.testing.assert_array_equal(bindings["y"], want(3))
    return False


def test_compiling_into_a_pool_that_executes_is_refused(rt):
    pool = rt.device.new_transient_pool("p")
    plan = slow(rt, pool=pool)
    builders = [record(rt, width=320), record(rt, width=32)]
    bytes_before, met = pool.bytes, False
    for _ in range(20):
        running = plan.submit(given(), {"f": 1.0})
        while not met and not running.done:
            try:
                builders[1].compile(pool=pool).close()
            except accel.BindError as e:
                assert e.code == "in_flight"
                assert "pool p is executing one of its graphs and must be idle" in str(e)
                met = True
        assert running.wait()
        if met:
            break
    assert met and pool.bytes == bytes_before
    grown = builders[0].compile(pool=pool)
    assert pool.bytes > bytes_before
    s = given(4, 320)
    assert grown.submit(s, {"f": 1.0}).wait()
    np.testing.assert_array_equal(s["y"], want(4, 320))


def test_a_failed_growth_changes_nothing(rt):
    pool = rt.device.new_transient_pool("p")
    plan = record(rt, width=32).compile(pool=pool)
    before = pool.bytes
    counted = rt.counters()["planned"]
    failures = 0
    for nth in range(1, 10):
        _core._fail_allocation(nth)
        try:
            record(rt, width=64).compile(pool=pool).close()
        except accel.CapacityError as e:
            failures += 1
            assert e.code == "out_of_memory"
            assert pool.graphs == 1 and pool.bytes == before
        else:
            break
        finally:
            _core._fail_allocation(0)
    assert failures >= 1 and rt.counters()["planned"] > counted
    s = given(1, 32)
    assert plan.submit(s, {"f": 1.0}).wait()
    plan.close()
    gc.collect()
    rt.close()  # no failed compile is counted


def test_options_change_no_bit(rt):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((64, 64)).astype(np.float32)
    w = rng.standard_normal((64, 64)).astype(np.float32)
    results = []
    for options in (
        {},
        {"max_in_flight": 3},
        {"pool": rt.device.new_transient_pool()},
        {"fuse": False},
        {"_naive": True},
    ):
        plan = record(rt, width=64).compile(**options)
        out = np.zeros((64, 64), np.float32)
        plan.submit({"x": x, "w": w, "y": out}, {"f": 0.5}).wait()
        assert np.abs(out).max() > 1
        results.append(out.tobytes())
    assert len(set(results)) == 1


# ---------------------------------------------------------------- 5, 23, 24, 25


def test_p26_05_plans_are_identical_from_run_to_run(rt):
    texts, pictures = set(), set()
    for _ in range(3):
        plan = record(rt).compile()
        texts.add(plan.explain())
        pictures.add(plan.to_dot())
        assert plan.explain() == plan.explain()
    assert len(texts) == 1 and len(pictures) == 1


def test_p26_23_a_bad_submit_changes_nothing(rt):
    plan = record(rt, width=16).compile()
    s = given(3, 16)
    bound = plan.bind(s, {"f": 2.0})
    plan.submit(bound).wait()
    bad = [
        ({}, {}),
        ({**s, "x": np.zeros(4, np.float32)}, {"f": 9.0}),
        ({**s, "y": s["x"]}, {"f": 9.0}),
        ({**s, "z": s["x"]}, {"f": 9.0}),
        (s, {}),
        (s, {"f": T.u32(1)}),
        (s, {"f": 9.0, "g": 1.0}),
    ]
    for bindings, scalars in bad:
        s["y"][:] = 0
        assert code_of(plan.submit(bindings, scalars)) != "ran"
        assert not s["y"].any(), "a refused submission writes nothing"
        assert plan.submit(bound).wait()
        np.testing.assert_array_equal(s["y"], want(6, 16))


def test_p26_23_all_problems_are_reported_sorted(rt):
    plan = record(rt, width=16).compile()
    with pytest.raises(accel.BindError) as caught:
        plan.submit({"x": np.zeros(4, np.float32), "q": np.zeros(4)}, {"f": True, "g": 1}).wait()
    problems = {p.name: p.code for p in caught.value.problems}
    want_codes = {"x": "too_small", "w": "unbound", "y": "unbound", "q": "unknown"}
    assert problems == want_codes | {"f": "kind", "g": "unknown"}
    lines = str(caught.value).splitlines()
    assert lines == sorted(lines) and caught.value.code == "several"


def test_p26_23_scalars_are_rewritten_and_larger_buffers_narrowed(rt):
    plan = record(rt, width=16).compile()
    s = given(1, 16)
    large = rt.device.new_buffer(accel.F32, 1000)
    bound = plan.bind({**s, "y": large}, {"f": 1.0})
    for f in (2.0, 3.0, 2.0):
        bound.scalars["f"] = f
        assert plan.submit(bound).wait()
        np.testing.assert_array_equal(large.read()[:256].reshape(16, 16), want(f, 16))
        assert not large.read()[256:].any()


def test_p26_24_no_counter_moves_after_warm_up(rt):
    pool = rt.device.new_transient_pool()
    plan = record(rt, width=16).compile(max_in_flight=2, pool=pool)
    cache = T.PlanCache(rt)
    s = given(1, 16)
    bound = plan.bind(s, {"f": 1.0})

    def step():
        fences = [plan.submit(bound), plan.submit(given(2, 16), {"f": 2.0})]
        assert all(fence.wait() for fence in fences)
        cache.compile(lambda b: b.output("y", T.silu(b.input("x", accel.F32, [4]))))

    step()
    before = rt.counters()
    assert set(before) == {"built", "planned", "pipelines"} and all(before.values())
    for _ in range(20):
        step()
    assert rt.counters() == before
    cache.close()


def test_p26_25_close_waits_for_every_instance(rt):
    plan = slow(rt, max_in_flight=2)
    sets = [given(2), given(3)]
    fences = [plan.submit(s, {"f": 1.0}) for s in sets]
    plan.close()
    for s, value in zip(sets, (2, 3), strict=True):
        np.testing.assert_array_equal(s["y"], want(value))
    assert all(f.wait() for f in fences)
    assert code_of(plan.submit(sets[0], {"f": 1.0})) == "lifetime"


@pytest.mark.threads
def test_p26_25_compile_racing_close_never_breaks():
    device = accel.open_cpu(threads=1)
    for _ in range(15):
        rt = accel.Runtime(device)
        builders = [record(rt, width=16) for _ in range(4)]
        failures, compiled = [], []

        def work(b, failures=failures, compiled=compiled):
            try:
                plan = b.compile()
                compiled.append(code_of(plan.submit(given(1, 16), {"f": 1.0})))
                plan.close()
            except accel.BindError as e:
                if e.code != "lifetime":
                    failures.append(e)
            except BaseException as e:  # noqa: BLE001
                failures.append(e)

        threads = [threading.Thread(target=work, args=(b,)) for b in builders]
        for t in threads:
            t.start()
        while not rt.closed:
            try:
                rt.close()
            except accel.BindError as e:
                assert e.code == "lifetime" and "open plan" in str(e)
        for t in threads:
            t.join(60)
        assert not failures and set(compiled) <= {"ran"}


# ---------------------------------------------------------------- 33


def test_p26_33_two_bindings_in_turn_feed_a_token_back(rt):
    b = rt.new_builder("count")
    one = b.weight("one", accel.F32, [1])
    b.output("next", T.add(b.input("token", accel.F32, [1]), one))
    plan = b.compile()
    a, c = (rt.device.new_buffer(accel.F32, 1) for _ in range(2))
    unit = rt.device.buffer(np.ones(1, np.float32))
    turns = [
        plan.bind({"token": a, "next": c, "one": unit}),
        plan.bind({"token": c, "next": a, "one": unit}),
    ]
    for step in range(10):
        assert plan.submit(turns[step % 2]).wait()
    assert a.read()[0] == 10 and c.read()[0] == 9


def test_p26_33_a_value_changed_after_a_submission_affects_the_next_only(rt):
    plan = slow(rt)
    s = given(1)
    bound = plan.bind(s, {"f": 2.0})
    fence = plan.submit(bound)
    bound.scalars["f"] = 7.0
    other = np.zeros_like(s["y"])
    bound["y"] = other
    assert fence.wait()
    np.testing.assert_array_equal(s["y"], want(2))
    assert not other.any()
    assert plan.submit(bound).wait()
    np.testing.assert_array_equal(other, want(7))
