"""The CUDA executor on the stand-in of the driver: what may fail, who holds what, what changes."""

import gc
import json
import os
import subprocess
import sys
import threading

import accel
import numpy as np
import pytest
from accel import tensor as T
from cuda_driver import (  # noqa: F401
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    calls,
    fail,
    failed,
    held,
    library,
    live,
    no_faults,
    nothing_fails,
    until,
)

library()
ROWS, WIDTH = 5, 48


def norms(runtime, rows=ROWS, times=2, **options):
    """A plan of norms one after another: each but the last leaves a transient."""
    b = runtime.new_builder("norms")
    x = b.input("x", accel.F32, [rows, WIDTH])
    gain = b.weight("gain", accel.F32, [WIDTH])
    for _ in range(times):
        x = T.rms_norm(x, gain, eps=1e-5)
    b.output("y", x)
    return b.compile(**options)


def data(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((rows, WIDTH)).astype(np.float32),
        "gain": rng.standard_normal(WIDTH).astype(np.float32),
    }


def bindings(device, arrays, rows=ROWS):
    bound = {name: device.buffer(array) for name, array in arrays.items()}
    bound["y"] = device.new_buffer(accel.F32, rows * WIDTH)
    return bound


def expected(arrays, times=2):
    runtime = accel.Runtime(accel.open_cpu(threads=1))
    out = np.zeros_like(arrays["x"])
    plan = norms(runtime, len(out), times)
    assert plan.submit({**arrays, "y": out}).wait()
    return out


def bits(array):
    return np.asarray(array).reshape(-1).view(np.uint32).tolist()


@pytest.fixture
def device():
    return accel.open_cuda(debug_fill=255)


# ---------------------------------------------------------------- opening


def test_what_enumerate_lists_is_what_opens():
    (listed,) = [d for d in accel.enumerate_devices().devices if d.backend == "cuda"]
    assert (listed.vendor, listed.isa, listed.level) == ("NVIDIA", "sm_90", "cuda")
    assert listed.limits["driver"] == 13000 and listed.limits["compute_capability"] == 90
    device = accel.open_device(listed.id)
    assert device.info == listed and "overlap" in listed.capabilities and device.notes == ()
    assert accel.open_best().info.backend == "cuda"


def test_looking_and_opening_make_no_context():
    before = calls("cuDevicePrimaryCtxRetain")
    device = accel.open_cuda()
    accel.enumerate_devices()
    assert calls("cuDevicePrimaryCtxRetain") == before
    device.new_buffer(accel.F32, 1)
    assert calls("cuDevicePrimaryCtxRetain") == before + 1


@pytest.mark.parametrize(
    ("variables", "stage", "words"),
    [
        ({"FAKECUDA_DEVICES": "0"}, "enumerate", "lists no device"),
        ({"FAKECUDA_CAPABILITY": "75"}, "capability", "sm_75 and must be sm_80"),
        ({"LD_LIBRARY_PATH": ""}, "load", "libcuda.so.1"),
    ],
)
def test_without_a_gpu_there_is_a_note_and_a_refusal(variables, stage, words):
    text = (
        "import accel, json\n"
        "notes = [n for n in accel.enumerate_devices().notes if n.backend == 'cuda']\n"
        "try: accel.open_cuda()\n"
        "except accel.DeviceError as e: error = (e.code, str(e))\n"
        "print(json.dumps([[n.stage, n.error] for n in notes] + [error]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    note, (code, error) = json.loads(done.stdout)
    assert note[0] == stage and words in note[1]
    assert code == "no_adapter" and note[1] in error


def test_an_index_beyond_the_gpus_is_refused():
    with pytest.raises(accel.DeviceError, match="index is 3 and must be below 1"):
        accel.open_cuda(index=3)


@pytest.mark.parametrize("what", ["cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem"])
def test_a_driver_that_does_not_answer_is_a_note(what):
    fail(what, 0)
    found = accel.enumerate_devices()
    assert [n.stage for n in found.notes if n.backend == "cuda"] == ["enumerate"]
    with pytest.raises(accel.DeviceError, match=what) as e:
        accel.open_cuda()
    assert e.value.code == "no_adapter"


# ---------------------------------------------------------------- bits and memory


@pytest.mark.parametrize("serial", [False, True])
def test_the_bits_are_those_of_the_cpu(serial):
    device = accel.open_cuda(debug_fill=255, serial=serial)
    arrays = data()
    plan, bound = norms(accel.Runtime(device)), bindings(device, arrays)
    for _ in range(3):
        assert plan.submit(bound).wait()
        assert bits(bound["y"].read()) == bits(expected(arrays))


def test_memory_of_the_device_is_read_and_written_by_calls(device):
    buffer = device.new_buffer(accel.F32, 6)
    assert not buffer.read().any()
    buffer.write(np.arange(6, dtype=np.float32))
    seen = buffer.numpy()
    assert seen.tolist() == [0, 1, 2, 3, 4, 5] and not seen.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 1
    device.queue.write_buffer(buffer, 2, np.array([7, 8], np.float32)).wait()
    assert device.queue.read_buffer(buffer).tolist() == [0, 1, 7, 8, 4, 5]
    buffer.access(lambda array: array.__setitem__(5, 9))
    assert buffer.read().tolist() == [0, 1, 7, 8, 4, 9]


@pytest.mark.parametrize("count", [1, 3 << 20, (3 << 20) + 5])
def test_copies_in_pieces_are_whole(device, count):
    values = np.random.default_rng(1).integers(0, 2**32, count, np.uint32)
    buffer = device.buffer(values)
    assert np.array_equal(buffer.read(), values)
    device.queue.write_buffer(buffer, 0, values[::-1].copy()).wait()
    assert np.array_equal(buffer.read(), values[::-1])


def test_arrays_of_the_host_are_refused_by_the_call_that_copies(device):
    arrays = data()
    plan = norms(accel.Runtime(device))
    with pytest.raises(accel.BindError, match=r"device\.buffer\(array\) makes the copy") as e:
        plan.bind({**arrays, "y": device.new_buffer(accel.F32, ROWS * WIDTH)})
    assert e.value.code == "foreign"
    assert device.from_dlpack(arrays["x"]).copied
    with pytest.raises(accel.BindError, match="copy=True"):
        device.from_dlpack(arrays["x"], copy=False)


def test_dlpack_on_the_device_shares_its_memory(device):
    values = np.arange(12, dtype=np.float32)
    buffer = device.buffer(values)
    assert buffer.__dlpack_device__() == (2, 0)
    same, copied = device.from_dlpack(buffer), device.from_dlpack(buffer, copy=True)
    assert (same.copied, copied.copied) == (False, True)
    buffer.write(values + 1)
    assert same.read().tolist() == (values + 1).tolist()
    assert copied.read().tolist() == values.tolist()
    buffer.close()
    assert same.read().tolist() == (values + 1).tolist()
    with pytest.raises(accel.BindError, match="device type 2") as e:
        accel.open_cpu(threads=1).from_dlpack(same)
    assert e.value.code == "foreign"
    with pytest.raises(BufferError, match=r"buffer\.read\(\)"):
        same.__dlpack__(dl_device=(1, 0))


def test_a_producer_orders_its_work_before_our_stream(device):
    class Producer:
        """A tensor of another library: it is told a stream."""

        def __init__(self, buffer):
            self.buffer, self.streams = buffer, []

        def __dlpack_device__(self):
            return self.buffer.__dlpack_device__()

        def __dlpack__(self, stream=None, max_version=None):
            self.streams.append(stream)
            return self.buffer.__dlpack__(max_version=max_version)

    producer = Producer(device.buffer(np.arange(4, dtype=np.int32)))
    assert device.from_dlpack(producer).read().tolist() == [0, 1, 2, 3]
    assert len(producer.streams) == 1 and producer.streams[0] > 2


def test_too_large_and_out_of_memory_are_apart(device):
    most = device.info.limits["max_bytes"]
    with pytest.raises(accel.CapacityError) as e:
        device.new_buffer(accel.U8, most + 1)
    assert (e.value.code, e.value.requested, e.value.limit) == ("too_large", most + 1, most)
    held_by = device.new_buffer(accel.U8, 4096)
    with pytest.raises(accel.CapacityError) as e:
        device.new_buffer(accel.U8, most)
    assert (e.value.code, e.value.requested, e.value.limit) == ("out_of_memory", most, most)
    # Nothing is lost by it.
    held_by.write(np.ones(4096, np.uint8))
    assert held_by.read().all()


# ---------------------------------------------------------------- every call fails once


def scenario(check=False, trace=None):
    device = accel.open_cuda(debug_fill=255, check=check)
    arrays, runtime = data(), accel.Runtime(device)
    pool = device.new_transient_pool("pool")
    plans = [norms(runtime), norms(runtime, times=3, pool=pool)]
    bound = bindings(device, arrays)
    queue = device.new_queue("other")
    for plan in plans:
        if trace:
            with plan.trace(trace):
                assert plan.submit(bound, queue=queue).wait()
        else:
            assert plan.submit(bound, queue=queue).wait()
    queue.write_buffer(bound["gain"], 0, arrays["gain"]).wait()
    got = bits(bound["y"].read())
    for plan in plans:
        plan.close()
    for buffer in bound.values():
        buffer.close()
    queue.close()
    pool.close()
    runtime.close()
    device.close()
    return got


FREES = {"cuMemFree", "cuMemFreeHost", "cuModuleUnload", "cuStreamDestroy", "cuEventDestroy"}
FREES |= {"cuGraphDestroy", "cuGraphExecDestroy", "cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"}


def test_nothing_is_left_alive():
    want = scenario()
    assert live() == {}
    assert scenario() == want
    assert live() == {}


@pytest.mark.parametrize("code", [INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS])
@pytest.mark.parametrize("form", ["graph", "steps"])
def test_each_call_of_the_driver_fails_once(code, form, tmp_path):
    """No hang, no leak, the class of error that the code means."""
    options = {"check": True, "trace": str(tmp_path / "t.json")} if form == "steps" else {}
    want = scenario(**options)
    assert live() == {}
    last, met = 0, set()
    for nth in range(1, 2000):
        fail("*", nth, code)
        error = None
        try:
            assert scenario(**options) == want
        except accel.Error as e:
            error = type(e).__name__, e.code
        finally:
            nothing_fails()
        (what,) = failed() or ["none"]
        assert live() == {}, f"call {nth}, {what}"
        if what == "none":
            last = nth
            break
        met.add(what)
        judge(what, code, error, nth)
        if what == "cuCtxPushCurrent":
            # What could not be entered to be freed ends with the context.
            library().fakecuda_clear_faults()
        faults = library().fakecuda_fault_text().decode()
        assert not faults, f"call {nth}, {what}: {faults}"
    assert last > 100, "the scenario has fewer calls than it should"
    assert len(met) > 25, sorted(met)


def judge(what, code, error, nth):
    allowed = {None} if what in FREES or what in ("cuMemGetInfo", "cuEventQuery") else set()
    if what == "cuCtxPushCurrent":
        allowed.add(None)
    if code == ILLEGAL_ADDRESS:
        allowed |= {("DeviceLostError", "lost")}
    elif code == OUT_OF_MEMORY:
        allowed |= {("CapacityError", "out_of_memory")}
    else:
        allowed |= {("DeviceError", "driver")}
    if what.startswith("cuDevice") or what in ("cuDriverGetVersion", "cuInit"):
        allowed |= {("DeviceError", "no_adapter")}
    if what.startswith(("cuModule", "cuFunc")) and code == INVALID_VALUE:
        allowed |= {("CompileError", "compile")}
    if what == "cuCtxPushCurrent":  # of the thread that waits for the ends
        allowed |= {("DeviceLostError", "lost")}
    assert error in allowed, f"call {nth}, {what}: {error}"


def test_a_module_that_does_not_compile_names_its_file(device):
    fail("cuModuleLoadDataEx")
    with pytest.raises(accel.CompileError, match=r"rms_norm\.metal"):
        norms(accel.Runtime(device))
    nothing_fails()
    arrays, bound = data(), bindings(device, data())
    assert norms(accel.Runtime(device)).submit(bound).wait()
    assert bits(bound["y"].read()) == bits(expected(arrays))


# ---------------------------------------------------------------- failing submissions


def test_a_kernel_that_faults_loses_the_device_for_good(device):
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    assert plan.submit(bound).wait()
    fail("kernel", 1, ILLEGAL_ADDRESS)
    with held():
        fences = [plan.submit(bound)]
        fences.append(device.queue.write_buffer(bound["x"], 0, np.zeros(4, np.float32)))
    for fence in fences:
        with pytest.raises(accel.DeviceLostError, match="700"):
            fence.wait()
    with pytest.raises(accel.DeviceLostError):
        plan.submit(bound).wait()
    with pytest.raises(accel.DeviceLostError):
        device.new_buffer(accel.F32, 1)
    with pytest.raises(accel.DeviceLostError):
        bound["x"].read()
    del plan, bound, fences


def test_out_of_memory_of_a_launch_harms_that_submission_alone(device):
    arrays = data()
    plan, bound = norms(accel.Runtime(device)), bindings(device, arrays)
    fail("cuGraphLaunch", 1, OUT_OF_MEMORY)
    with pytest.raises(accel.CapacityError) as e:
        plan.submit(bound).wait()
    assert e.value.code == "out_of_memory"
    assert plan.submit(bound).wait()
    assert bits(bound["y"].read()) == bits(expected(arrays))


def test_lose_at_is_as_on_the_cpu():
    device = accel.open_cuda(lose_at=2)
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    assert plan.submit(bound).wait()
    with pytest.raises(accel.DeviceLostError, match="at submission 2"):
        plan.submit(bound).wait()


def test_a_failed_fence_in_after_fails_and_runs_nothing(device):
    plan, other = norms(accel.Runtime(device)), norms(accel.Runtime(device))
    bound = bindings(device, data())
    fail("cuGraphLaunch", 1, OUT_OF_MEMORY)
    first = plan.submit(bound)
    second = other.submit(bound, queue=device.new_queue("second"), after=[first])
    for fence in (first, second):
        with pytest.raises(accel.CapacityError):
            fence.wait()
    assert not bound["y"].read().any()


# ---------------------------------------------------------------- what a run changes


def updates(call):
    before = calls("cuGraphExecKernelNodeSetParams")
    call()
    return calls("cuGraphExecKernelNodeSetParams") - before


def test_a_submit_changes_the_nodes_whose_addresses_changed(device):
    arrays = data()
    plan, bound = norms(accel.Runtime(device), times=4), bindings(device, arrays)
    ready = plan.bind(bound)
    run = lambda b: plan.submit(b).wait()  # noqa: E731
    assert updates(lambda: run(ready)) == 4  # every node has an address that was not known
    assert updates(lambda: run(ready)) == 0
    assert updates(lambda: run(plan.bind(bound))) == 0  # the same addresses
    other = {**bound, "y": device.new_buffer(accel.F32, ROWS * WIDTH)}
    second = plan.bind(other)
    assert updates(lambda: run(second)) == 1  # the node that writes y
    assert updates(lambda: run(ready)) == 1
    ready.update({"x": device.buffer(arrays["x"])})
    assert updates(lambda: run(ready)) == 1
    assert bits(bound["y"].read()) == bits(other["y"].read()) == bits(expected(arrays, 4))


def test_an_update_that_failed_is_tried_again(device):
    arrays = data()
    plan, bound = norms(accel.Runtime(device), times=4), bindings(device, arrays)
    kept = []  # so that no address comes again
    for nth in (1, 2, 4):
        fresh = {**bound, "y": device.new_buffer(accel.F32, ROWS * WIDTH)}
        fresh["gain"] = device.buffer(arrays["gain"])
        kept.append(fresh)
        fail("cuGraphExecKernelNodeSetParams", nth)
        with pytest.raises(accel.DeviceError):
            plan.submit(fresh).wait()
        nothing_fails()
        assert plan.submit(fresh).wait()
        assert bits(fresh["y"].read()) == bits(expected(arrays, 4))


def scaled(runtime):
    b = runtime.new_builder("scaled")
    x = b.input("x", accel.F32, [8])
    factor = b.scalar("factor", T.ScalarKind.F32)
    b.output("y", T.scale(x, factor))
    return b.compile()


def test_scalars_are_sent_when_they_change(device):
    plan = scaled(accel.Runtime(device))
    x, y = device.buffer(np.arange(8, dtype=np.float32)), device.new_buffer(accel.F32, 8)
    ready, sent = plan.bind({"x": x, "y": y}, {"factor": 2.0}), []
    for factor in (2.0, 2.0, 3.0, 3.0, 2.0):
        ready.scalars["factor"] = factor
        before = calls("cuMemcpyHtoDAsync")
        assert plan.submit(ready).wait()
        sent.append(calls("cuMemcpyHtoDAsync") - before)
        assert y.read().tolist() == [factor * i for i in range(8)]
    assert sent == [1, 0, 1, 0, 1]


def test_a_write_of_scalars_that_failed_is_made_again(device):
    plan = scaled(accel.Runtime(device))
    x, y = device.buffer(np.ones(8, np.float32)), device.new_buffer(accel.F32, 8)
    ready = plan.bind({"x": x, "y": y}, {"factor": 2.0})
    assert plan.submit(ready).wait()
    ready.scalars["factor"] = 5.0
    fail("cuMemcpyHtoDAsync")
    with pytest.raises(accel.DeviceError):
        plan.submit(ready).wait()
    nothing_fails()
    assert plan.submit(ready).wait()
    assert y.read().tolist() == [5.0] * 8


# ---------------------------------------------------------------- several at once


def test_submissions_back_to_back_see_each_other(device):
    """y = norm(x), then z = norm(y), and so on, without a wait between."""
    runtime = accel.Runtime(device)
    plans = [norms(runtime, times=1) for _ in range(6)]
    arrays = data()
    bound = bindings(device, arrays)
    chain = [bound["x"]] + [device.new_buffer(accel.F32, ROWS * WIDTH) for _ in plans]
    with held():
        fences = [
            plan.submit({"x": a, "gain": bound["gain"], "y": b})
            for plan, a, b in zip(plans, chain, chain[1:], strict=False)
        ]
    assert fences[-1].wait() and all(f.done for f in fences)
    assert bits(chain[-1].read()) == bits(expected(arrays, 6))


def test_a_write_of_the_host_stands_between_submissions(device):
    plan, arrays = norms(accel.Runtime(device), max_in_flight=2), data()
    bound, queue = bindings(device, arrays), device.queue
    second = {**bound, "y": device.new_buffer(accel.F32, ROWS * WIDTH)}
    other = data(seed=1)["x"]
    with held():
        fences = [plan.submit(bound)]
        fences.append(queue.write_buffer(bound["x"], 0, other))
        fences.append(plan.submit(second))
        other_now, other = other.copy(), other.fill(0)  # it was copied before it returned
    assert all(f.wait() for f in fences)
    assert bits(bound["y"].read()) == bits(expected(arrays))
    assert bits(second["y"].read()) == bits(expected({**arrays, "x": other_now}))


@pytest.mark.parametrize("most", [1, 2])
def test_submissions_beyond_max_in_flight_are_refused(device, most):
    plan = norms(accel.Runtime(device), times=3, max_in_flight=most)
    arrays = data()
    outs = [bindings(device, arrays) for _ in range(most + 1)]
    with held():
        fences = [plan.submit(bound) for bound in outs]
        with pytest.raises(accel.BindError) as e:
            fences[-1].wait()
        assert e.value.code == "in_flight"
    for fence, bound in zip(fences[:most], outs, strict=False):
        assert fence.wait()
        assert bits(bound["y"].read()) == bits(expected(arrays, 3))
    assert not outs[-1]["y"].read().any()


def test_two_plans_of_one_pool_follow_each_other(device):
    runtime, pool = accel.Runtime(device), device.new_transient_pool("pool")
    plans = [norms(runtime, times=n, pool=pool) for n in (3, 4)]
    arrays = data()
    outs = [bindings(device, arrays) for _ in plans]
    queue = device.new_queue("second")
    with held():
        fences = [plan.submit(bound) for plan, bound in zip(plans, outs, strict=True)]
        launched = calls("cuGraphLaunch")
        until(lambda: calls("cuGraphLaunch") >= launched)
    for fence, bound, n in zip(fences, outs, (3, 4), strict=True):
        assert fence.wait()
        assert bits(bound["y"].read()) == bits(expected(arrays, n))
    # Of two queues only one may execute in the pool.
    with held():
        launched = calls("cuGraphLaunch")
        first = plans[0].submit(outs[0])
        until(lambda: calls("cuGraphLaunch") > launched)
        second = plans[1].submit(outs[1], queue=queue)
        until(lambda: second.done)
    assert first.wait()
    with pytest.raises(accel.BindError) as e:
        second.wait()
    assert e.value.code == "in_flight"


def test_a_pool_that_grew_moves_the_transients_of_its_plans(device):
    runtime, pool = accel.Runtime(device), device.new_transient_pool("pool")
    arrays = data()
    small, bound = norms(runtime, times=3, pool=pool), bindings(device, arrays)
    ready = small.bind(bound)
    assert small.submit(ready).wait()
    large = norms(runtime, 300, times=3, pool=pool)
    assert small.submit(ready).wait()
    assert bits(bound["y"].read()) == bits(expected(arrays, 3))
    large.close()


def test_many_threads_submit_two_plans(device):
    runtime = accel.Runtime(device)
    arrays = data()
    wants = [bits(expected(arrays, n)) for n in (1, 2)]
    bad = []

    def work(i):
        plan = norms(runtime, times=1 + i % 2)
        bound, queue = bindings(device, arrays), device.new_queue(f"q{i}")
        for _ in range(10):
            bound["y"].write(np.zeros(ROWS * WIDTH, np.float32))
            if not plan.submit(bound, queue=queue).wait() or (
                bits(bound["y"].read()) != wants[i % 2]
            ):
                bad.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_what_is_dropped_in_flight_ends_well():
    for _ in range(3):
        device = accel.open_cuda(debug_fill=255)
        runtime = accel.Runtime(device)
        plan = norms(runtime)
        gc.collect()  # freeing memory of the device waits for all that runs
        with held():
            fence = plan.submit(bindings(device, data()), queue=device.new_queue("dropped"))
            del plan, runtime, device
            gc.collect()
            assert not fence.done
        assert fence.wait()
        del fence
        until(lambda: live() == {})


def test_closing_waits_and_refuses(device):
    runtime = accel.Runtime(device)
    plan, bound = norms(runtime, times=3), bindings(device, data())
    queue = device.new_queue("busy")
    with held():
        fence = plan.submit(bound, queue=queue)
        for close in (bound["x"].close, queue.close, device.close):
            with pytest.raises(accel.BindError) as e:
                close()
            assert e.value.code == "lifetime"
        closing = threading.Thread(target=plan.close)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
    closing.join(20)
    assert fence.done and fence.wait()


def drop_in_a_child() -> None:
    device = accel.open_cuda()
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    queue = device.new_queue("other")
    assert plan.submit(bound, queue=queue).wait()
    before = library().fakecuda_calls(b"*")
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        plan.submit(bound)
    except accel.DeviceLostError:
        pass
    del plan, bound, queue, device
    gc.collect()
    os._exit(library().fakecuda_calls(b"*") != before)


def test_a_forked_child_only_drops():
    text = f"import sys; sys.path[:0] = {sys.path!r}\nimport test_executor\n"
    done = subprocess.run(
        [sys.executable, "-c", text + "test_executor.drop_in_a_child()"],
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- steps


def test_a_trace_has_the_device_s_time_of_each_command(device, tmp_path):
    arrays = data()
    plan, bound = norms(accel.Runtime(device), times=3), bindings(device, arrays)
    with plan.trace(str(tmp_path / "t.json")):
        assert plan.submit(bound).wait()
    written = json.loads((tmp_path / "t.json").read_text())
    events = [e for e in written["traceEvents"] if e.get("cat") == "node"]
    assert len(events) == 3 and all(e["dur"] >= 0 for e in events)
    assert bits(bound["y"].read()) == bits(expected(arrays, 3))


def test_the_order_of_what_no_edge_orders_changes_no_bit(device):
    runtime = accel.Runtime(device)
    b = runtime.new_builder("branches")
    x = b.input("x", accel.F32, [ROWS, WIDTH])
    gain = b.weight("gain", accel.F32, [WIDTH])
    x = T.rms_norm(x, gain, eps=1e-5)
    branches = [op(x) for op in (T.exp, T.tanh, T.sigmoid, T.silu, T.softplus)]
    total = branches[0]
    for branch in branches[1:]:
        total = T.add(total, branch)
    b.output("y", total)
    plan, bound = b.compile(), bindings(device, data())
    got = set()
    for seed in (1, 2, 3, 20, 77):
        library().fakecuda_set_order(seed)
        assert plan.submit(bound).wait()
        got.add(tuple(bits(bound["y"].read())))
    library().fakecuda_set_order(1)
    assert len(got) == 1


# ---------------------------------------------------------------- kernels of CUDA alone

RAN = """
print(plan.explain())
ports = {p.name: device.new_buffer(p.dtype, int(np.prod(p.shape))) for p in plan.ports()}
for wait in (1, 2):
    plan.submit(ports).wait()
lib = ctypes.CDLL("libcuda.so.1")
lib.fakecuda_ran_text.restype = lib.fakecuda_fault_text.restype = ctypes.c_char_p
print("ran", lib.fakecuda_ran_text().decode().split("\\n"), lib.fakecuda_fault_text())
"""
ALONE = """
import ctypes, accel, numpy as np
from accel import tensor as T
device = accel.open_cuda()
b = accel.Runtime(device).new_builder("few")
x = b.input("x", accel.F32, [1, 2056])
for n in (8200, 2056):
    x = T.matmul(x, b.weight(f"w{n}", accel.F16, [n, x.shape[1]]), w_order="nk")
b.output("y", x)
plan = b.compile()
"""


@pytest.mark.parametrize("group_bytes", [0, 232448])
def test_a_launch_gives_memory_of_a_group_and_no_more_groups_than_fit(group_bytes):
    """The stand-in runs no such kernel; it sees what it is given, on two multiprocessors."""
    env = {**os.environ, "FAKECUDA_GROUP_BYTES": str(group_bytes)}
    done = subprocess.run(
        [sys.executable, "-c", ALONE + RAN], env=env, capture_output=True, text=True, check=True
    )
    explained, ran = done.stdout.rsplit("ran", 1)
    row = "matmul_nk_f32_f16_ring needs more memory of a group than the device has"
    if not group_bytes:
        assert row in explained and "ring_one" not in ran
        return
    # x of 2056 and 8200 floats, padded to 16; four warps of three stages of eight columns; then
    # eight warps of five stages of four.
    assert row not in explained and "order lane16; up to eight rows" in explained
    wide = 2064 * 4 // 128 * 128 + 128 + 4 * (3 * 8 * (512 + 32))
    large = (8208 * 4 + 127) // 128 * 128 + 8 * (5 * 4 * (512 + 32))
    assert f"'matmul_nk_f32_f16_ring_one_wide 6 {wide}'" in ran
    assert f"'matmul_nk_f32_f16_ring_one_large 2 {large}'" in ran
    assert ran.rstrip().endswith("b''"), ran


MATRIX = """
import ctypes, accel, numpy as np
from accel import tensor as T
device = accel.open_cuda(matrix=ASKED)
print("device", "matrix" in device.info.capabilities, [n.error for n in device.notes])
b = accel.Runtime(device).new_builder("matrix")
x = b.input("x", accel.F16, [40, 64])
few = b.input("few", accel.F32, [1, 72])
w = [b.weight(f"w{i}", t, s) for i, (t, s) in enumerate(
    [(accel.BF16, [70, 64]), (accel.F16, [8208, 72]), (accel.F32, [16, 72])])]
bias = b.weight("bias", accel.F32, [70])
b.output("many", T.linear(x, w[0], bias, w_order="nk"))
b.output("wide", T.matmul(few, w[1], w_order="nk"))
b.output("plain", T.matmul(few, w[2], w_order="nk"))
plan = b.compile()
for s in plan.selections():
    print("chosen", s.kernel, "|", s.reason, "|", s.rejected)
"""


def matrix_of(asked: bool, group_bytes: int):
    """What the device says, the selections, what was launched."""
    done = subprocess.run(
        [sys.executable, "-c", MATRIX.replace("ASKED", str(asked)) + RAN],
        env={**os.environ, "FAKECUDA_GROUP_BYTES": str(group_bytes)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, ran = done.stdout.rsplit("ran", 1)
    lines = said.splitlines()
    return lines[0], [line for line in lines if line.startswith("chosen")], said, ran


def test_matrix_units_are_asked_for_and_the_report_names_their_functions():
    device, chosen, said, ran = matrix_of(True, 232448)
    assert device == "device True []"
    assert [line.split()[1] for line in chosen] == [
        "matmul_matrix16_nk_f16_bf16",
        "matmul_matrix16_nk_f32_f16",
        "matmul_nk_f32_f32_ring",
    ]
    assert "order matrix16" in chosen[0] and "order matrix16" in chosen[1]
    assert "matmul_matrix16_nk_f32_f16 reads an f16 weight" in chosen[2]
    assert "matmul_matrix16_nk_f16_bf16" in said
    # Two tiles of columns, a group each. Of 513 tiles as many groups as two multiprocessors have at
    # once.
    many = 4 * (64 * (2 * 64 + 16) + 64 * (2 * 64 + 16))
    few = 8 * (5 * (16 * (2 * 64 + 16) + 4 * 64 + 32) + 16 * 4)
    assert f"'matmul_matrix16_nk_f16_bf16_rows64 1x2 {many}'" in ran
    assert f"'matmul_matrix16_nk_f32_f16_rows1 1x4 {few}'" in ran
    assert ran.rstrip().endswith("b''"), ran


def test_without_being_asked_for_or_without_memory_products_have_the_bits_of_the_cpu():
    device, chosen, _, ran = matrix_of(False, 232448)
    assert device == "device False []" and "_matrix16_" not in ran
    why = "is not asked for: open_cuda(matrix=True) asks for matrix units"
    assert f"matmul_matrix16_nk_f16_bf16 {why}" in chosen[0] and "lane16" in chosen[0]
    assert f"matmul_matrix16_nk_f32_f16 {why}" in chosen[1] and why not in chosen[2]
    device, chosen, _, ran = matrix_of(True, 101376)  # of sm_86
    assert device.startswith("device False ['group_bytes is 101376 and must be ")
    assert device.endswith(" for products on matrix units']") and "_matrix16_" not in ran
    assert "matrix16_nk_f16_bf16 needs more memory of a group than the device has" in chosen[0]
