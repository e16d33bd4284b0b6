"""Threads, signals and forks: no lock is held while waiting, Python is left to its own threads."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from functools import cache, partial

import accel
import numpy as np
import pytest
from accel import tensor as T

pytestmark = pytest.mark.threads


@cache
def common_runtime():
    return accel.Runtime(accel.open_cpu(threads=1))


@pytest.fixture(scope="module")
def rt():
    return common_runtime()


def product_plan(rt, steps):
    """`steps` products by the unit matrix."""
    b = rt.new_builder("slow")
    x, w = b.input("x", accel.F32, [512, 512]), b.weight("w", accel.F32, [512, 512])
    y = x
    for _ in range(steps):
        y = T.matmul(y, w)
    b.output("y", y)
    plan = b.compile()
    eye = np.eye(512, dtype=np.float32)
    return plan, {"x": eye, "w": eye, "y": np.zeros((512, 512), np.float32)}


@cache
def slow_steps() -> int:
    """How many products take about a fifth of a second here."""
    plan, given = product_plan(common_runtime(), 4)
    plan.submit(given).wait()
    began = time.perf_counter()
    plan.submit(given).wait()
    return max(4, min(4000, int(0.8 / (time.perf_counter() - began))))


def slow_plan(rt):
    """A plan that runs for about a fifth of a second, and its bindings."""
    return product_plan(rt, slow_steps())


def tiny_plan(rt, label="tiny"):
    b = rt.new_builder(label)
    b.output("y", T.silu(b.input("x", accel.F32, [4])))
    plan = b.compile()
    return plan, {"x": np.ones(4, np.float32), "y": np.zeros(4, np.float32)}


# ---------------------------------------------------------------- the interpreter lock


def test_other_threads_run_while_one_waits(rt):
    plan, given = slow_plan(rt)
    gaps, stop = [0.0], threading.Event()

    def spin():
        last = time.perf_counter()
        while not stop.is_set():
            now = time.perf_counter()
            gaps[0] = max(gaps[0], now - last)
            last = now

    thread = threading.Thread(target=spin)
    fence = plan.submit(given)
    thread.start()
    began = time.perf_counter()
    fence.wait()
    waited = time.perf_counter() - began
    stop.set()
    thread.join()
    assert waited > 0.02
    assert gaps[0] < waited / 2, "the interpreter lock was held through the wait"


def test_p26_35_a_time_out_gives_false(rt):
    plan, given = slow_plan(rt)
    fence = plan.submit(given)
    assert not fence.done
    assert fence.wait(0.001) is False, "a time-out gives False"
    with pytest.raises(accel.BindError) as caught:
        plan.submit(given).wait()
    assert caught.value.code == "in_flight"
    assert fence.wait()
    np.testing.assert_array_equal(given["y"], np.eye(512))


def test_read_waits_for_the_queue_that_uses_the_buffer(rt):
    plan, given = slow_plan(rt)
    result = rt.device.new_buffer(accel.F32, 512 * 512)
    fence = plan.submit({**given, "y": result})
    read = result.read().reshape(512, 512)
    np.testing.assert_array_equal(read, np.eye(512))
    fence.wait()
    fence = plan.submit({**given, "y": result})
    with pytest.raises(accel.BindError) as caught:
        result.close()
    assert caught.value.code == "lifetime"
    fence.wait()
    result.close()


def test_close_waits_for_what_is_in_flight(rt):
    plan, given = slow_plan(rt)
    plan.submit(given)
    plan.close()
    np.testing.assert_array_equal(given["y"], np.eye(512))


def test_p26_35_dropping_everything_in_flight_is_safe(rt):
    plan, given = slow_plan(rt)
    y = given["y"]
    fence = plan.submit(given)
    del plan, given
    gc.collect()
    assert fence.wait()
    np.testing.assert_array_equal(y, np.eye(512))


def test_p26_34_queues_are_ordered_by_after_alone(rt):
    first, second = rt.device.new_queue("first"), rt.device.new_queue("second")
    plan, given = slow_plan(rt)
    last, ends = tiny_plan(rt)
    slow = plan.submit(given, queue=first)
    after = last.submit(ends, queue=second, after=[slow])
    assert after.wait() and slow.done
    failed = last.submit({})
    follower = last.submit(ends, queue=second, after=(failed,))
    with pytest.raises(accel.BindError, match="unbound"):
        follower.wait()
    with pytest.raises(accel.BindError, match="unbound"):
        failed.wait()


def test_p26_34_one_queue_is_ordered_and_two_give_the_bits_of_one(rt):
    """y accumulates: every submission reads what the one before it wrote."""
    b = rt.new_builder("chain")
    s = b.state("s", accel.F32, [1, 64])
    gain, ids = b.weight("gain", accel.F32, [64]), b.input("ids", accel.U32, [1])
    step = b.input("step", accel.F32, [1, 64])
    T.scatter_rows(s, T.rms_norm(T.read_state(s), gain, eps=1e-6) + step, ids)
    plan = b.compile(max_in_flight=64)
    rng = np.random.default_rng(3)
    steps = rng.standard_normal((40, 1, 64)).astype(np.float32)
    fixed = {"gain": np.ones(64, np.float32), "ids": np.zeros(1, np.uint32)}
    results = []
    for queues in ([None], [rt.device.new_queue("one"), rt.device.new_queue("two")]):
        state, fence = np.zeros((1, 64), np.float32), None
        for i, step in enumerate(steps):
            after = [fence] if fence and len(queues) > 1 else []
            fence = plan.submit(
                {**fixed, "s": state, "step": step}, queue=queues[i % len(queues)], after=after
            )
        assert fence.wait() and np.abs(state).max() > 0.1
        results.append(state.tobytes())
    assert results[0] == results[1]


def test_p26_34_a_failed_fence_in_after_runs_nothing(rt):
    plan, given = tiny_plan(rt)
    queue = rt.device.new_queue("other")
    failed = plan.submit({})
    followers = [plan.submit(given, queue=q, after=[failed]) for q in (queue, None)]
    for fence in (failed, *followers):
        with pytest.raises(accel.BindError):
            fence.wait()
    assert not given["y"].any()
    assert plan.submit(given, queue=queue).wait() and given["y"].all()


def test_p26_04_racing_threads_get_results_or_a_clean_refusal(rt):
    plan, _ = tiny_plan(rt)
    outcomes, errors = [], []

    def work(value):
        x, y = np.full(4, value, np.float32), np.zeros(4, np.float32)
        bound = plan.bind({"x": x, "y": y})
        want = None
        for _ in range(100):
            y[:] = 0
            try:
                plan.submit(bound).wait()
            except accel.BindError as e:
                outcomes.append(e.code)
                continue
            want = y.copy() if want is None else want
            if not (y == want).all() or not y.all():
                errors.append((value, y.copy()))
            outcomes.append("ran")

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert set(outcomes) <= {"ran", "in_flight"} and "ran" in outcomes


def test_p26_35_threads_record_compile_submit_and_close(rt):
    failures = []

    def work():
        try:
            for _ in range(10):
                plan, given = tiny_plan(rt)
                for _ in range(5):
                    plan.submit(given).wait()
                plan.close()
        except BaseException as e:  # noqa: BLE001
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


# ---------------------------------------------------------------- what a submission held


def test_arrays_are_dropped_by_python_s_own_threads(rt):
    """The last reference is the submission's; the finalizer must run in a thread of Python's."""
    plan, given = slow_plan(rt)
    where = []

    class Tracked(np.ndarray):
        pass

    x = given["x"].view(Tracked)
    weakref.finalize(x, lambda: where.append(threading.get_ident()))
    given["x"] = x
    fence = plan.submit(given)
    del x, given["x"]
    time.sleep(1.0)  # finished on the library's thread; nothing of Python may have run there
    known = {t.ident for t in threading.enumerate()}
    assert set(where) <= known
    assert fence.wait()
    gc.collect()
    plan.memory()
    assert where == [threading.get_ident()]


def test_p26_35_a_failed_fence_dropped_without_wait_warns(rt):
    plan, _ = tiny_plan(rt)
    with pytest.warns(ResourceWarning, match="unbound"):
        plan.submit({})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fence = plan.submit({})
        with pytest.raises(accel.BindError):
            fence.wait()
        del fence
        plan.submit(tiny_plan(rt)[1])
        gc.collect()


def test_a_fence_that_fails_after_it_was_dropped_warns_at_the_next_call():
    device = accel.open_cpu(threads=1, lose_at=3)
    rt = accel.Runtime(device)
    (plan, given), (last, ends), (third, more) = slow_plan(rt), tiny_plan(rt), tiny_plan(rt)
    slow = plan.submit(given)
    last.submit(ends, queue=device.new_queue("other"), after=[slow])
    with pytest.raises(accel.DeviceLostError):
        third.submit(more, queue=device.new_queue("third")).wait()
    with pytest.warns(ResourceWarning, match="lost"):
        for fence in (slow,):
            with pytest.raises(accel.DeviceLostError):
                fence.wait()
        time.sleep(0.1)
        last.memory()
        plan.close()


# ---------------------------------------------------------------- signals


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_p26_35_ctrl_c_leaves_wait_soon_and_the_submission_goes_on(rt):
    plan, given = slow_plan(rt)
    fence = plan.submit(given)
    sent = []

    def interrupt(*_):
        sent.append(time.perf_counter())
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        began = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            fence.wait()
        left = time.perf_counter()
    finally:
        signal.signal(signal.SIGALRM, old)
    assert left - began < 0.05 + 0.1 + 0.05, "the handler's own start included"
    assert not fence.done
    assert fence.wait()
    np.testing.assert_array_equal(given["y"], np.eye(512))


# ---------------------------------------------------------------- fresh memory, collection


def test_p26_35_fresh_buffers_are_zero():
    device = accel.open_cpu(threads=1, debug_fill=0xFF)
    for count in (1, 1000, 1 << 20):
        for _ in range(3):
            buffer = device.new_buffer(accel.F32, count)
            assert not buffer.numpy().any()
            buffer.numpy()[:] = 7
            buffer.close()


@pytest.mark.parametrize("order", range(12))
def test_p26_35_objects_are_collected_in_any_order(order):
    """Each object is dropped at a random moment, some in flight, some in a cycle."""
    rng = np.random.default_rng(order)
    device = accel.open_cpu(threads=2)
    rt = accel.Runtime(device)
    pool, cache = device.new_transient_pool("p"), T.PlanCache(rt)
    b = rt.new_builder("any")
    x = b.input("x", accel.F32, [64, 64])
    b.output("y", T.silu(T.matmul(x, x)))
    plan = b.compile(pool=pool, max_in_flight=2)
    kept = cache.compile(lambda c: c.output("y", T.silu(c.input("x", accel.F32, [4]))))
    given = {"x": np.eye(64, dtype=np.float32), "y": np.zeros((64, 64), np.float32)}
    buffer = device.new_buffer(accel.F32, 64 * 64)
    bound = plan.bind({**given, "y": buffer})
    fence, queue = plan.submit(bound), device.new_queue("q")
    second = plan.submit(given, queue=queue, after=[fence])
    held = [device, rt, pool, cache, b, x, plan, kept, buffer, bound, fence, queue, second]
    del device, rt, pool, cache, b, x, plan, kept, buffer, bound, fence, queue, second
    cycle = [held[int(rng.integers(len(held)))]]
    cycle.append(cycle)
    del cycle
    rng.shuffle(held)
    while held:
        held.pop()
        if rng.random() < 0.3:
            gc.collect()
    gc.collect()
    np.testing.assert_array_equal(given["y"] != 0, np.eye(64) != 0)


def test_a_buffer_that_closes_meanwhile_is_read_whole_or_refused():
    """Whatever the moment: never memory that is gone, never an array that nothing was read into."""
    device = accel.open_cpu(threads=1)
    for _ in range(200):
        buffer = device.buffer(np.full(64, 7, np.uint32))
        start = threading.Barrier(2)

        def close(buffer=buffer, start=start):
            start.wait()
            while not buffer.closed:
                with contextlib.suppress(accel.BindError):  # in use
                    buffer.close()

        closing = threading.Thread(target=close)
        closing.start()
        start.wait()
        for call in (buffer.read, partial(buffer.access, np.array), buffer.numpy):
            try:
                assert (call() == 7).all()
            except accel.BindError as e:
                assert e.code == "lifetime"
        with contextlib.suppress(accel.BindError):
            device.queue.write_buffer(buffer, 0, np.full(64, 7, np.uint32)).wait()
        closing.join()


# ---------------------------------------------------------------- fork and exit

FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, accel
from accel import tensor as T
device = accel.open_cpu(threads=2)
rt = accel.Runtime(device)
b = rt.new_builder()
b.output("y", T.silu(b.input("x", accel.F32, [4])))
plan = b.compile()
given = {"x": np.ones(4, np.float32), "y": np.zeros(4, np.float32)}
fence = plan.submit(given)
fence.wait()
buffer, queue = device.new_buffer(accel.F32, 4), device.queue
bound = plan.bind(given)
pool, cache = device.new_transient_pool("p"), T.PlanCache(rt)
pid = os.fork()
if pid:
    _, status = os.waitpid(pid, 0)
    plan.submit(bound).wait()
    sys.exit(os.waitstatus_to_exitcode(status))
calls = [
    lambda: plan.submit(bound).wait(), lambda: plan.bind(given), fence.wait, lambda: fence.done,
    buffer.read, lambda: buffer.write(given["x"]), buffer.numpy, buffer.close, device.close,
    lambda: device.new_buffer(accel.F32, 4), lambda: device.buffer(given["x"]),
    lambda: device.queue,
    lambda: rt.new_builder(), rt.counters, rt.close, plan.close, lambda: device.new_queue("q"),
    lambda: queue.write_buffer(buffer, 0, given["x"]), queue.flush, lambda: accel.open_cpu(),
    lambda: bound.update(given), lambda: device.from_dlpack(given["x"]),
    lambda: device.new_transient_pool(), pool.close, lambda: pool.bytes, lambda: pool.graphs,
    lambda: cache.compile(print), cache.close, lambda: len(cache), b.identity,
    plan.trace("t.json").__enter__, plan.memory, plan.ports, plan.scalars, plan.selections,
    plan.explain, plan.to_dot, lambda: plan.memory_map("m.json"), lambda: plan.identity,
]
wrong = []
for i, call in enumerate(calls):
    try:
        call()
        wrong.append((i, "was not refused"))
    except accel.DeviceLostError as e:
        if e.code != "lost" or "spawn" not in str(e):
            wrong.append((i, str(e)))
    except Exception as e:
        wrong.append((i, repr(e)))
print(wrong, flush=True)
del calls, fence, buffer, queue, bound, pool, cache, plan, b, rt, device
os._exit(1 if wrong else 0)
"""

EXIT = """
import numpy as np, accel
from accel import tensor as T
rt = accel.Runtime(accel.open_cpu(threads=2))
b = rt.new_builder()
x, w = b.input("x", accel.F32, [256, 256]), b.weight("w", accel.F32, [256, 256])
y = x
for _ in range(40):
    y = T.matmul(y, w)
b.output("y", y)
plan = b.compile()
e = np.eye(256, dtype=np.float32)
fence = plan.submit({"x": e, "w": e, "y": np.zeros((256, 256), np.float32)})
keep = [rt, plan, fence]
"""


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_p26_35_a_forked_child_may_only_drop_objects():
    result = run(FORKED)
    assert result.returncode == 0, result.stdout + result.stderr


def test_leaving_python_with_work_in_flight_is_clean():
    for _ in range(3):
        result = run(EXIT)
        assert (result.returncode, result.stderr) == (0, "")


def test_p26_25_close_returns_when_the_fences_are_done_and_every_close_waits():
    """Also one that comes second; then runtime and device close at once."""
    for _ in range(50):
        device = accel.open_cpu(threads=1)
        runtime = accel.Runtime(device)
        builder = runtime.new_builder("closing")
        x = builder.input("x", accel.F32, [64, 64])
        y = x
        for _ in range(6):
            y = T.matmul(y, x)
        builder.output("y", y)
        plan = builder.compile(max_in_flight=2)
        arrays = {"x": np.ones((64, 64), np.float32) / 64}
        fences = [plan.submit(arrays | {"y": np.zeros((64, 64), np.float32)}) for _ in range(2)]
        other = threading.Thread(target=plan.close)
        other.start()
        plan.close()
        assert all(fence.done for fence in fences)
        assert all(fence.wait() for fence in fences)
        other.join()
        runtime.close()
        device.close()
