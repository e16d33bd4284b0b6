"""The Metal executor on the emulator: what a driver may refuse, what may fail, who holds what."""

import gc
import os
import subprocess
import sys
import threading

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T
from driver import count, fail, library, live, no_faults, nothing_fails  # noqa: F401

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


def fresh_text(file):
    """A shader's text, compiled anew because of one more line."""
    done = subprocess.run(
        [sys.executable, "-c", f"import embed_shaders as e; print(dict(e.flattened())[{file!r}])"],
        cwd=os.path.join(os.path.dirname(__file__), "..", "..", "tools"),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + f"// {os.urandom(8).hex()}\n"


def bits(array):
    return np.asarray(array).reshape(-1).view(np.uint32).tolist()


@pytest.fixture
def device():
    return accel.open_metal(debug_fill=255)


# ---------------------------------------------------------------- opening


def test_what_enumerate_lists_is_what_opens():
    listed = [d for d in accel.enumerate_devices().devices if d.backend == "metal"]
    assert len(listed) == 1 and listed[0].software and "simd_groups" in listed[0].capabilities
    device = accel.open_device(listed[0].id)
    assert device.info == listed[0]
    assert (device.info.level, device.info.isa) == ("metal", "apple7")
    assert accel.open_metal(plain=True).info.isa == "plain"
    # A software adapter is chosen by nobody who did not ask for one.
    assert accel.open_best().info.backend == "cpu"
    assert accel.open_best(allow_software=True).info.backend == "metal"


def test_a_family_without_exchange_has_the_plain_rows():
    library().metalemu_set_family(5)
    try:
        device = accel.open_metal()
        assert device.info.isa == "plain" and "simd_groups" not in device.info.capabilities
        plan, arrays = norms(accel.Runtime(device)), data()
        assert {s.kernel for s in plan.selections()} == {"rms_norm_f32_plain"}
        bound = bindings(device, arrays)
        assert plan.submit(bound).wait()
        assert bits(bound["y"].numpy()) == bits(expected(arrays))
    finally:
        library().metalemu_set_family(8)


def test_without_a_device_there_is_a_note_and_a_refusal():
    fail("device", 0)
    found = accel.enumerate_devices()
    assert {d.backend for d in found.devices} == {"cpu"}
    assert [n.stage for n in found.notes if n.backend == "metal"] == ["enumerate"]
    with pytest.raises(accel.DeviceError, match="lists no Metal device") as e:
        accel.open_metal()
    assert e.value.code == "no_adapter"
    nothing_fails()
    with pytest.raises(accel.DeviceError, match="index is 3 and must be below 1"):
        accel.open_metal(index=3)


# ---------------------------------------------------------------- bits and memory


def test_the_bits_are_those_of_the_cpu(device):
    arrays = data()
    plan, bound = norms(accel.Runtime(device)), bindings(device, arrays)
    for _ in range(3):
        assert plan.submit(bound).wait()
        assert bits(bound["y"].numpy()) == bits(expected(arrays))


def test_views_with_offsets_and_memory_seen_in_place(device):
    arrays, runtime = data(), accel.Runtime(device)
    plan, bound = norms(runtime), bindings(device, arrays)
    wide = device.new_buffer(accel.F32, 3 * ROWS * WIDTH)
    assert not wide.numpy().any()
    bound["y"] = wide.view(7, ROWS * WIDTH)
    seen = wide.numpy()
    assert plan.submit(bound).wait()
    assert bits(seen[7 : 7 + ROWS * WIDTH]) == bits(expected(arrays))
    assert not seen[:7].any() and not seen[7 + ROWS * WIDTH :].any()


def test_arrays_of_the_host_are_refused_by_the_call_that_copies(device):
    arrays = data()
    plan = norms(accel.Runtime(device))
    with pytest.raises(accel.BindError, match=r"device\.buffer\(array\) makes the copy") as e:
        plan.bind({**arrays, "y": device.new_buffer(accel.F32, ROWS * WIDTH)})
    assert e.value.code == "foreign"
    assert device.from_dlpack(arrays["x"]).copied
    with pytest.raises(accel.BindError, match="copy=True"):
        device.from_dlpack(arrays["x"], copy=False)


def scenario():
    device = accel.open_metal(debug_fill=255)
    arrays, runtime = data(), accel.Runtime(device)
    pool = device.new_transient_pool("pool")
    plans = [norms(runtime), norms(runtime, times=3, pool=pool)]
    bound = bindings(device, arrays)
    queue = device.new_queue("other")
    for plan in plans:
        fence = plan.submit(bound, queue=queue)
        assert fence.wait()
    got = bits(bound["y"].numpy())
    for plan in plans:
        plan.close()
    for buffer in bound.values():
        buffer.close()
    queue.close()
    pool.close()
    runtime.close()
    device.close()
    return got


def test_nothing_is_left_alive():
    want = scenario()
    before = live()
    assert scenario() == want
    assert live() == before


@pytest.mark.parametrize(
    "what", ["buffer", "queue", "fence", "encoder", "command_buffer", "residency"]
)
def test_each_refusal_of_the_driver_is_an_error_or_costs_nothing(what):
    want = scenario()
    before = live()
    refused = 0
    for nth in range(1, 60):
        fail(what, nth)
        try:
            assert scenario() == want
        except (accel.CapacityError, accel.DeviceError) as e:
            refused += 1
            assert e.code == ("out_of_memory" if what == "buffer" else "driver"), str(e)
            del e
        else:
            if what != "residency" or nth > 1:
                break
        finally:
            nothing_fails()
        assert live() == before, f"{what} {nth}"
    assert refused >= (what != "residency") and nth < 59
    assert live() == before


def test_residency_is_settled_once_a_program_and_once_a_load():
    device = accel.open_metal()
    runtime, arrays = accel.Runtime(device), data()
    commits, requests = count("residency_commits"), count("residency_requests")

    def since():
        nonlocal commits
        before, commits = commits, count("residency_commits")
        return commits - before

    bound = bindings(device, arrays)
    load = [device.buffer(arrays["x"]) for _ in range(100)]
    assert since() == 0
    plan = norms(runtime, times=3)
    assert since() == 1
    for _ in range(3):
        assert plan.submit(bound).wait()
    assert since() == 0
    load += [device.buffer(arrays["x"]) for _ in range(100)]
    assert plan.submit(bound).wait() and plan.submit(bound).wait()
    assert since() == 1
    assert count("residency_requests") - requests == 1
    # What goes is given back with the next submission, or at once where it is much.
    held = live()["MTLBuffer"]
    load.clear()
    assert live()["MTLBuffer"] == held and since() == 0
    assert plan.submit(bound).wait()
    assert live()["MTLBuffer"] == held - 200 and since() == 1
    large = device.new_buffer(accel.U8, 64 << 20)
    large.close()
    del large
    assert live()["MTLBuffer"] == held - 200 and since() == 1


def test_a_system_without_residency_sets_and_math_modes():
    library().metalemu_set_os(14)
    try:
        commits, arrays = count("residency_commits"), data()
        sets = live().get("MTLResidencySet", 0)  # of the process: other modules keep devices
        _core._replace_shader("rms_norm.metal", fresh_text("rms_norm.metal"))
        device = accel.open_metal()
        bound = bindings(device, arrays)
        assert norms(accel.Runtime(device)).submit(bound).wait()
        assert bits(bound["y"].numpy()) == bits(expected(arrays))
        assert count("residency_commits") == commits
        assert live().get("MTLResidencySet", 0) == sets
    finally:
        library().metalemu_set_os(15)
        _core._replace_shader("rms_norm.metal", "")


def test_too_large_and_out_of_memory_carry_their_numbers(device):
    most = device.info.limits["max_bytes"]
    with pytest.raises(accel.CapacityError) as e:
        device.new_buffer(accel.U8, most + 1)
    assert (e.value.code, e.value.requested, e.value.limit) == ("too_large", most + 1, most)
    fail("buffer")
    with pytest.raises(accel.CapacityError) as e:
        device.new_buffer(accel.U8, 4096)
    assert (e.value.code, e.value.requested, e.value.limit) == ("out_of_memory", 4096, most)


# ---------------------------------------------------------------- shaders


def test_a_shader_that_does_not_compile_gives_its_line_and_the_log(device):
    _core._replace_shader("rms_norm.metal", "#line 41\nstatic float broken(int) { oops; }\n")
    try:
        runtime = accel.Runtime(device)
        with pytest.raises(accel.CompileError) as e:
            norms(runtime)
        text = str(e.value)
        assert e.value.code == "compile" and "oops" in text and "rms_norm.metal" in text
        runtime.close()
    finally:
        _core._replace_shader("rms_norm.metal", "")
    # Nothing is remembered of it.
    arrays, bound = data(), bindings(device, data())
    assert norms(accel.Runtime(device)).submit(bound).wait()
    assert bits(bound["y"].numpy()) == bits(expected(arrays))


def test_a_kernel_that_takes_fewer_threads_than_it_is_launched_with_is_refused(device):
    """As one whose registers do not suffice: a device says so when the pipeline is made."""
    text = fresh_text("rms_norm.metal")
    few = text.replace("kernel void", "kernel [[max_total_threads_per_threadgroup(64)]] void")
    assert few != text
    _core._replace_shader("rms_norm.metal", few)
    try:
        with pytest.raises(accel.CompileError, match="at most 64 threads .* must be 256") as e:
            norms(accel.Runtime(device))
        assert e.value.code == "compile" and "rms_norm" in str(e.value)
    finally:
        _core._replace_shader("rms_norm.metal", "")


@pytest.mark.parametrize("what", ["library", "function", "pipeline"])
def test_a_refused_pipeline_is_a_compile_error_and_the_next_try_works(device, what):
    runtime = accel.Runtime(device)
    fail(what)
    with pytest.raises(accel.CompileError, match=r"rms_norm\.metal"):
        norms(runtime)
    nothing_fails()
    assert norms(runtime).submit(bindings(device, data())).wait()


def test_identity_names_the_shaders(device):
    plan = norms(accel.Runtime(device))
    before = plan.identity.numerical
    _core._replace_shader("rms_norm.metal", "// another\n")
    try:
        b = accel.Runtime(device).new_builder("norms")
        x = b.input("x", accel.F32, [ROWS, WIDTH])
        gain = b.weight("gain", accel.F32, [WIDTH])
        b.output("y", T.rms_norm(T.rms_norm(x, gain, eps=1e-5), gain, eps=1e-5))
        assert b.identity().numerical != before
        assert b.identity().semantic == plan.identity.semantic
    finally:
        _core._replace_shader("rms_norm.metal", "")


# ---------------------------------------------------------------- failing submissions

CODES = {2: "too long", 3: "page fault", 8: "out of memory", 9: "not valid", 1: "driver"}


@pytest.mark.parametrize("code", CODES)
def test_a_failed_command_buffer_fails_its_fence_alone(device, code):
    arrays = data()
    plan, bound = norms(accel.Runtime(device)), bindings(device, arrays)
    fail(f"command_buffer={code}")
    fence = plan.submit(bound)
    with pytest.raises(accel.DeviceError, match=CODES[code]) as e:
        fence.wait()
    assert e.value.code == "driver" and f"(code {code})" in str(e.value)
    assert plan.submit(bound).wait()
    assert bits(bound["y"].numpy()) == bits(expected(arrays))


PARTS = (64, 512, 24)  # launches of the command buffers of so many norms


@pytest.mark.parametrize("what", ["no_command_buffer", "encoder"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("pooled", [False, True], ids=["own", "pool"])
def test_behind_a_part_that_is_missing_nothing_runs(device, what, nth, pooled):
    if what == "encoder":
        device = accel.open_metal()  # a fill is an encoder, too
    pool = device.new_transient_pool("pool") if pooled else None
    options = {"pool": pool} if pooled else {}
    plan = norms(accel.Runtime(device), times=sum(PARTS), **options)
    arrays = data()
    bound = bindings(device, arrays)
    bound["y"].numpy()[:] = 7
    dispatches, commits = count("dispatches"), count("commits")
    fail(what, nth)
    with pytest.raises(accel.DeviceError, match="gave no command buffer") as e:
        plan.submit(bound).wait()
    assert e.value.code == "driver"
    assert count("commits") - commits == nth - 1
    assert count("dispatches") - dispatches == sum(PARTS[: nth - 1])
    assert (bound["y"].numpy() == 7).all()
    # The next submission waits for what did run, and is whole.
    assert plan.submit(bound).wait()
    assert bits(bound["y"].numpy()) == bits(expected(arrays, sum(PARTS)))
    assert count("commits") - commits == nth - 1 + len(PARTS)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_part_that_fails_fails_its_submission(device, nth):
    plan, arrays = norms(accel.Runtime(device), times=sum(PARTS)), data()
    bound = bindings(device, arrays)
    fail("command_buffer=8", nth)
    with pytest.raises(accel.DeviceError, match="out of memory"):
        plan.submit(bound).wait()
    nothing_fails()
    assert plan.submit(bound).wait()
    assert bits(bound["y"].numpy()) == bits(expected(arrays, sum(PARTS)))


def test_a_command_buffer_has_only_so_much_to_do(device):
    """A system stops one that takes seconds: a norm of so many rows gets its own."""
    few, many = 2048, 1 << 15
    for rows, buffers in ((few, 1), (many, 3)):
        plan, arrays = norms(accel.Runtime(device), rows, times=3), data(rows)
        bound, commits = bindings(device, arrays, rows), count("commits")
        assert plan.submit(bound).wait()
        assert count("commits") - commits == buffers
        assert bits(bound["y"].numpy()) == bits(expected(arrays, 3))


@pytest.mark.parametrize("code", [4, 11])
def test_a_device_that_is_gone_stays_lost(device, code):
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    fail(f"command_buffer={code}")
    with pytest.raises(accel.DeviceLostError):
        plan.submit(bound).wait()
    with pytest.raises(accel.DeviceLostError):
        plan.submit(bound).wait()
    with pytest.raises(accel.DeviceLostError):
        device.new_buffer(accel.F32, 1)


def test_lose_at_is_as_on_the_cpu():
    device = accel.open_metal(lose_at=2)
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    assert plan.submit(bound).wait()
    with pytest.raises(accel.DeviceLostError, match="at submission 2"):
        plan.submit(bound).wait()


def test_a_failed_fence_in_after_fails_and_runs_nothing(device):
    plan, other = norms(accel.Runtime(device)), norms(accel.Runtime(device))
    bound = bindings(device, data())
    fail("command_buffer=8")
    first = plan.submit(bound)
    bound["y"].numpy()[:] = 3
    second = other.submit(bound, queue=device.new_queue("second"), after=[first])
    for fence in (first, second):
        with pytest.raises(accel.DeviceError, match="out of memory"):
            fence.wait()
    assert (bound["y"].numpy() == 3).all()


# ---------------------------------------------------------------- several at once


def test_submissions_back_to_back_see_each_other(device):
    """y = norm(x), then z = norm(y), and so on, without a wait between."""
    runtime = accel.Runtime(device)
    plans = [norms(runtime, times=1) for _ in range(6)]
    arrays = data()
    bound = bindings(device, arrays)
    chain = [bound["x"]] + [device.new_buffer(accel.F32, ROWS * WIDTH) for _ in plans]
    fences = [
        plan.submit({"x": a, "gain": bound["gain"], "y": b})
        for plan, a, b in zip(plans, chain, chain[1:], strict=False)
    ]
    assert fences[-1].wait() and all(f.done for f in fences)
    assert bits(chain[-1].numpy()) == bits(expected(arrays, 6))


def test_a_write_of_the_host_stands_between_submissions(device):
    plan, arrays = norms(accel.Runtime(device)), data()
    bound, queue = bindings(device, arrays), device.queue
    other = data(seed=1)["x"]
    first = plan.submit(bound)
    queue.write_buffer(bound["x"], 0, other)
    assert first.wait()
    before = bits(bound["y"].numpy())
    assert plan.submit(bound).wait()
    assert before == bits(expected(arrays))
    assert bits(bound["y"].numpy()) == bits(expected({**arrays, "x": other}))
    assert bits(queue.read_buffer(bound["x"])) == bits(other)


@pytest.mark.parametrize("most", [1, 2])
def test_submissions_beyond_max_in_flight_are_refused(device, most):
    rows = 2048
    plan = norms(accel.Runtime(device), rows, times=3, max_in_flight=most)
    arrays = data(rows)
    outs = [bindings(device, arrays, rows) for _ in range(most + 1)]
    fences = [plan.submit(bound) for bound in outs]
    with pytest.raises(accel.BindError) as e:
        fences[-1].wait()
    assert e.value.code == "in_flight"
    want = bits(expected(arrays, 3))
    for fence, bound in zip(fences[:most], outs, strict=False):
        assert fence.wait()
        assert bits(bound["y"].numpy()) == want
    assert not outs[-1]["y"].numpy().any()


def test_two_plans_of_one_pool_follow_each_other(device):
    runtime, pool = accel.Runtime(device), device.new_transient_pool("pool")
    plans = [norms(runtime, 512, times=n, pool=pool) for n in (3, 4)]
    arrays = data(512)
    outs = [bindings(device, arrays, 512) for _ in plans]
    fences = [plan.submit(bound) for plan, bound in zip(plans, outs, strict=True)]
    for fence, bound, n in zip(fences, outs, (3, 4), strict=True):
        assert fence.wait()
        assert bits(bound["y"].numpy()) == bits(expected(arrays, n))
    # Of two queues only one may execute in the pool.
    first = plans[0].submit(outs[0])
    second = plans[1].submit(outs[1], queue=device.new_queue("second"))
    assert first.wait()
    try:
        assert second.wait()
    except accel.BindError as e:
        assert e.code == "in_flight"


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
                bits(bound["y"].numpy()) != wants[i % 2]
            ):
                bad.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_what_is_dropped_in_flight_ends_well(device):
    before = None
    for _ in range(3):
        runtime = accel.Runtime(device)
        plan = norms(runtime, 512)
        fence = plan.submit(bindings(device, data(512), 512), queue=device.new_queue("dropped"))
        del plan, runtime
        gc.collect()
        assert fence.wait()
        del fence
        _core.enumerate_devices()  # a call from Python sweeps
        now = live()
        before = before or now
        assert now == before


def test_closing_waits_and_refuses(device):
    runtime = accel.Runtime(device)
    plan, bound = norms(runtime, 2048, times=3), bindings(device, data(2048), 2048)
    queue = device.new_queue("busy")
    fence = plan.submit(bound, queue=queue)
    for close in (bound["x"].close, queue.close, device.close):
        with pytest.raises(accel.BindError) as e:
            close()
        assert e.value.code == "lifetime"
    plan.close()
    assert fence.done and fence.wait()


def drop_in_a_child() -> None:
    device = accel.open_metal()
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())
    queue = device.new_queue("other")
    assert plan.submit(bound, queue=queue).wait()
    before = live()
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    del plan, bound, queue, device
    os._exit(live() != before)


def test_what_a_forked_child_drops_is_left_to_its_parent():
    """Dropping would call a driver whose threads and connections the child lacks."""
    script = "import test_executor; test_executor.drop_in_a_child()"
    folder = os.path.dirname(__file__)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=folder, capture_output=True, timeout=60
    )
    assert run.returncode == 0, run.stderr.decode()


# ---------------------------------------------------------------- trace and data checks


def test_a_trace_has_every_command(device, tmp_path):
    plan, bound = norms(accel.Runtime(device), times=3), bindings(device, data())
    with plan.trace(tmp_path / "trace.json"):
        assert plan.submit(bound).wait()
    text = (tmp_path / "trace.json").read_text()
    assert text.count('"cat":"node"') == 3
    assert bits(bound["y"].numpy()) == bits(expected(data(), 3))


# ---------------------------------------------------------------- archive


def start(folder, times=2, also=False):
    """A start of a process, as far as pipelines go: the device, with what it noted."""
    device = accel.open_metal(cache=str(folder))
    runtime = accel.Runtime(device)
    assert norms(runtime, times=times).submit(bindings(device, data())).wait()
    if also:
        b = runtime.new_builder("also")
        b.output("y", T.silu(b.input("x", accel.F32, [ROWS, WIDTH])))
        b.compile()
    return device


def test_pipelines_are_kept_in_an_archive(tmp_path):
    writes = count("archive_writes")
    assert not start(tmp_path).notes
    (file,) = tmp_path.iterdir()
    assert count("archive_writes") == writes + 1
    # What is there is found there and not written again.
    written, hits = file.stat(), count("archive_hits")
    assert not start(tmp_path).notes and not start(tmp_path, times=3).notes
    assert count("archive_hits") == hits + 2 and count("archive_writes") == writes + 1
    now = file.stat()
    assert (now.st_ino, now.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    # What is new is added to it.
    one = set(file.read_text().splitlines())
    assert not start(tmp_path, also=True).notes
    assert count("archive_writes") == writes + 2
    two = set(file.read_text().splitlines())
    assert one < two and len(two) == len(one) + 1
    assert not start(tmp_path, also=True).notes
    assert count("archive_writes") == writes + 2 and list(tmp_path.iterdir()) == [file]


def test_a_damaged_archive_is_written_anew(tmp_path):
    start(tmp_path)
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    file.write_bytes(b"broken")
    (note,) = start(tmp_path).notes
    assert (note.backend, note.stage) == ("metal", "archive") and str(file) in note.error
    assert "written anew" in note.error
    assert file.read_bytes() == good
    hits = count("archive_hits")
    assert not start(tmp_path).notes
    assert count("archive_hits") == hits + 1


def test_another_system_has_an_archive_of_its_own(tmp_path):
    """Its compiler is another."""
    start(tmp_path)
    library().metalemu_set_os(16)
    try:
        start(tmp_path)
    finally:
        library().metalemu_set_os(15)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("what", ["archive_load", "archive_add", "archive_save"])
def test_an_archive_that_fails_costs_a_note(tmp_path, what):
    for _ in range(2):
        fail(what, 0)
        device = start(tmp_path)
        nothing_fails()
        # Nor is a part of a file left behind.
        assert all(f.suffix == ".archive" for f in tmp_path.iterdir())
    assert what == "archive_load" or [n.stage for n in device.notes] == ["archive"]
