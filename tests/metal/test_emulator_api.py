"""The API as a host uses it: properties, misuse, lifetimes, failures, archives, events."""

import ctypes
import mmap
import re

import numpy as np
import pytest
from emulator import ERROR, MANAGED, PRIVATE, UNTRACKED, MetalError, P, Range, Size, U

pytestmark = pytest.mark.metal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void add(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                constant float& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[i] + n;
}
"""
ONE = np.float32(1).tobytes()


@pytest.fixture
def two(run):
    """A run with x, y of 32 floats."""
    r = run(SOURCE)
    x = r.buffer(np.arange(32, dtype=np.float32))
    return r, x, r.buffer(np.zeros(32, np.float32))


def add(e, x, y, threads=32):
    e.dispatch("add", [x, y, ONE], 1, threads)


# ---------------------------------------------------------------- properties


def test_properties_of_the_device(emu, run):
    d = run().device
    assert emu.text(emu.msg(d, "name")) == "Emulated Metal device"
    assert emu.text(emu.msg(emu.msg(d, "architecture"), "name")).startswith("applegpu_g")
    assert emu.msg(d, "registryID", returns=ctypes.c_uint64)
    assert emu.msg(d, "hasUnifiedMemory", returns=ctypes.c_bool)
    assert emu.msg(d, "maxBufferLength", returns=U) == 1 << 33
    assert emu.msg(d, "recommendedMaxWorkingSetSize", returns=ctypes.c_uint64) == 1 << 33
    assert emu.msg(d, "maxThreadgroupMemoryLength", returns=U) == 32768


@pytest.mark.parametrize("family", [5, 7, 9])
def test_families(emu, run, family):
    emu.mode(family=family)
    d = run().device

    def has(f):
        return emu.msg(d, "supportsFamily:", f, returns=ctypes.c_bool)

    assert [has(1000 + f) for f in range(1, 11)] == [f <= family for f in range(1, 11)]
    assert has(5001) == (family >= 7) and has(3003) and not has(5002)


def test_all_devices_and_none(emu):
    devices = emu.lib.MTLCopyAllDevices()
    assert emu.msg(devices, "count", returns=U) == 1
    emu.fail("device", 0)
    assert emu.device() is None
    none = emu.lib.MTLCopyAllDevices()
    assert emu.msg(none, "count", returns=U) == 0
    emu.release(devices, none)


def test_the_system_version(emu):
    info = emu.msg(emu.cls("NSProcessInfo"), "processInfo")
    for os, there in ((14, False), (15, True)):
        emu.mode(os=os)
        ask = "isOperatingSystemAtLeastVersion:"
        assert emu.msg(info, ask, Size(15, 0, 0), returns=ctypes.c_bool) == there


def test_buffers(emu, run):
    r = run()
    before = emu.msg(r.device, "currentAllocatedSize", returns=U)
    b = r.buffer(1000, UNTRACKED)
    assert emu.msg(r.device, "currentAllocatedSize", returns=U) == before + 1000
    assert emu.msg(b, "hazardTrackingMode", returns=U) == 1
    assert emu.msg(r.buffer(16), "hazardTrackingMode", returns=U) == 2
    assert not emu.contents(b).any()  # new buffers are zero
    assert emu.msg(r.buffer(16, PRIVATE), "contents") is None
    managed = r.buffer(16, MANAGED)
    emu.msg(managed, "didModifyRange:", Range(0, 16), returns=None)
    assert emu.msg(managed, "storageMode", returns=U) == 1
    emu.msg(b, "setLabel:", "weights", returns=None)
    assert emu.text(emu.msg(b, "label")) == "weights"


def test_memory_of_the_host_is_used_as_it_is(emu, run):
    r = run(SOURCE)
    pages = mmap.mmap(-1, 4096)
    view = np.frombuffer(pages, np.float32)
    view[:32] = np.arange(32)
    freed = []
    done = emu.block(lambda p, n: freed.append(n), P, U)
    make = "newBufferWithBytesNoCopy:length:options:deallocator:"
    b = emu.msg(r.device, make, view, 4096, 0, done)
    y = r.buffer(np.zeros(32, np.float32))
    c = r.commands()
    with c.compute() as e:
        add(e, b, y)
    c.finish()
    np.testing.assert_array_equal(emu.contents(y, np.float32), np.arange(32) + 1)
    emu.release(b)
    assert freed == [4096]
    assert emu.msg(r.device, make, P(view.ctypes.data + 4), 4096, 0, None) is None
    assert "not whole pages" in emu.taken()


def test_foundation(emu):
    numbers = {"Int": -3, "UnsignedLong": 1 << 40, "Bool": True}
    values = [emu.msg(emu.cls("NSNumber"), f"numberWith{k}:", v) for k, v in numbers.items()]
    assert emu.msg(values[0], "intValue", returns=ctypes.c_int) == -3
    assert emu.msg(values[1], "unsignedLongValue", returns=U) == 1 << 40
    keys = [emu.string(k).value for k in numbers]
    held = [(P * 3)(*values), (P * 3)(*keys)]
    make = "dictionaryWithObjects:forKeys:count:"
    sent = [ctypes.cast(h, P) for h in held]
    d = emu.msg(emu.cls("NSDictionary"), make, *sent, 3)
    assert emu.msg(d, "objectForKey:", "UnsignedLong") == values[1]
    assert emu.msg(d, "objectForKey:", "none") is None
    a = emu.array(values)
    assert emu.msg(a, "count", returns=U) == 3
    assert emu.msg(a, "objectAtIndex:", 2) == values[2]
    url = emu.msg(emu.cls("NSURL"), "fileURLWithPath:", "/tmp/x")
    assert emu.msg(url, "fileSystemRepresentation", returns=ctypes.c_char_p) == b"/tmp/x"


def test_reflection(emu, run):
    r = run(SOURCE)
    f = emu.function(r.library, "add")
    reflection = P()
    make = "newComputePipelineStateWithFunction:options:reflection:error:"
    p = emu.with_error(r.device, make, P(f), 3, P(ctypes.addressof(reflection)))
    bindings = emu.msg(reflection, "bindings")
    rows = []
    for i in range(emu.msg(bindings, "count", returns=U)):
        b = emu.msg(bindings, "objectAtIndex:", i)
        row = [emu.msg(b, k, returns=U) for k in ("index", "access", "bufferDataSize")]
        rows.append((emu.text(emu.msg(b, "name")), *row))
    assert rows == [("x", 0, 0, 4), ("y", 1, 1, 4), ("n", 2, 0, 4)]
    assert emu.msg(p, "threadExecutionWidth", returns=U) == 32
    names = emu.msg(r.library, "functionNames")
    assert emu.text(emu.msg(names, "objectAtIndex:", 0)) == "add"
    emu.release(p, f)


# ---------------------------------------------------------------- misuse

MISUSE = {
    "no pipeline": (
        lambda r, e, x, y: e.send(
            "dispatchThreadgroups:threadsPerThreadgroup:", Size(1, 1, 1), Size(1, 1, 1)
        ),
        "without a compute pipeline",
    ),
    "nothing bound": (lambda r, e, x, y: e.dispatch("add", [x], 1, 32), "bound at buffer index 1"),
    "bytes too short": (
        lambda r, e, x, y: e.dispatch("add", [x, y, b"12"], 1, 32),
        "buffer 2 holds 2 bytes, the argument needs 4",
    ),
    "bytes too long": (
        lambda r, e, x, y: e.send("setBytes:length:atIndex:", bytes(5000), 5000, 3),
        "at most 4096",
    ),
    "bytes to write to": (
        lambda r, e, x, y: e.dispatch("add", [x, bytes(128), ONE], 1, 32),
        "for a writable argument",
    ),
    "too many threads": (lambda r, e, x, y: add(e, x, y, 2048), "2048 threads per threadgroup"),
    "offset past the end": (
        lambda r, e, x, y: e.send("setBuffer:offset:atIndex:", P(x), 128, 0),
        "offset 128 past its 128 bytes",
    ),
    "no such index": (
        lambda r, e, x, y: e.send("setBuffer:offset:atIndex:", P(x), 0, 31),
        "buffer index 31",
    ),
    "second encoder": (
        lambda r, e, x, y: r.e.msg(e.commands.it, "computeCommandEncoder"),
        "second encoder",
    ),
    "commit of an open one": (lambda r, e, x, y: e.commands.commit(), "encoder still open"),
    "wait before commit": (lambda r, e, x, y: e.commands.wait(), "before commit"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_named(emu, two, name):
    r, x, y = two
    what, want = MISUSE[name]
    with r.commands().compute() as e:
        what(r, e, x, y)
    found = emu.taken()
    assert want in found, found


def test_a_misaligned_offset_is_named(emu, two):
    r, x, y = two
    with r.commands().compute() as e:
        e.send("setComputePipelineState:", P(r.pipeline("add")))
        e.send("setBuffer:offset:atIndex:", P(x), 2, 0)
        e.send("setBuffer:offset:atIndex:", P(y), 0, 1)
        e.send("setBytes:length:atIndex:", ONE, 4, 2)
        e.send("dispatchThreadgroups:threadsPerThreadgroup:", Size(1, 1, 1), Size(8, 1, 1))
        e.send("setBuffer:offset:atIndex:", P(x), 0, 0)
        # Macs with other GPUs than Apple's ask for up to 256 of constant memory.
        e.send("setBuffer:offset:atIndex:", P(y), 16, 2)
        e.send("dispatchThreadgroups:threadsPerThreadgroup:", Size(1, 1, 1), Size(8, 1, 1))
    found = emu.taken()
    assert "offset 2, not a multiple of 4" in found
    assert "offset 16, not a multiple of 256" in found


def test_a_blit_fills_whole_words(emu, two):
    r, x, y = two
    c = r.commands()
    e = emu.msg(c.it, "blitCommandEncoder")
    for location, length in ((0, 8), (2, 4), (4, 3), (0, 0)):
        r = Range(location, length)
        emu.msg(e, "fillBuffer:range:value:", P(x), r, ctypes.c_uint8(0), returns=None)
    emu.msg(e, "endEncoding", returns=None)
    c.finish()
    assert emu.taken().count("not whole words") == 3


def test_what_needs_a_newer_system_is_not_there(emu, run):
    r = run()

    def answers(selector):
        s = P(emu.lib.sel_registerName(selector.encode()))
        return emu.msg(r.device, "respondsToSelector:", s, returns=ctypes.c_bool)

    assert answers("newResidencySetWithDescriptor:error:")
    emu.mode(os=14)
    assert not answers("newResidencySetWithDescriptor:error:")
    assert answers("newCommandQueue")
    options = emu.new("MTLCompileOptions")
    emu.msg(options, "setMathMode:", 0, returns=None)
    assert "need macOS 15" in emu.taken()
    emu.release(options)


def test_a_promise_of_whole_simdgroups_is_kept(emu, run):
    r = run(SOURCE)
    d = emu.new("MTLComputePipelineDescriptor")
    f = emu.function(r.library, "add")
    emu.msg(d, "setComputeFunction:", P(f), returns=None)
    promise = "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:"
    emu.msg(d, promise, True, returns=None)
    make = "newComputePipelineStateWithDescriptor:options:reflection:error:"
    r.pipelines[("add", "None")] = emu.with_error(r.device, make, P(d), 0, None)
    x, y = r.buffer(128), r.buffer(128)
    with r.commands().compute() as e:
        add(e, x, y, 31)
        add(e, x, y, 32)
    assert emu.taken().count("promises a multiple of 32") == 1
    emu.release(d, f)


def test_use_after_commit_is_named(emu, two):
    r, x, y = two
    c = r.commands()
    with c.compute() as e:
        add(e, x, y)
    c.finish()
    assert emu.msg(c.it, "computeCommandEncoder") is None
    c.commit()
    found = emu.taken()
    assert "into a committed command buffer" in found and "committed twice" in found


# ---------------------------------------------------------------- lifetimes


def test_everything_is_given_back(emu, run, two):
    def live():  # of the process: other modules keep plans and devices of their own
        lines = emu.lib.metalemu_live_text().decode().splitlines()
        return {name: int(n) for name, n in (line.split() for line in lines)}

    r, x, y = two
    before = live()
    for _ in range(2):
        with emu.pool():
            c = r.commands()
            with c.compute() as e:
                add(e, x, y)
            c.finish()
    grown = {name: n - before.get(name, 0) for name, n in live().items()}
    # The run keeps the pipeline of `add`; all else that the two command buffers took is back.
    assert {name: n for name, n in grown.items() if n} == {"MTLComputePipelineState": 1}


def test_leaks_are_counted(child):
    r = child(f"""
with emu.pool():
    r = Run(emu, {SOURCE!r})
    arrays = [np.zeros(32, np.float32) for _ in range(2)]
    for _ in range(5): r.dispatch("add", [*arrays, np.float32(1).tobytes()], 1, 32)
    kept = emu.buffer(r.device, 64)
    r.close()
for name in ("MTLBuffer", "MTLCommandBuffer", "MTLComputeCommandEncoder", "MTLCommandQueue",
             "MTLLibrary", "MTLFunction", "MTLComputePipelineState", "NSAutoreleasePool"):
    print(name, emu.live(name))
emu.release(kept)
print(emu.live("MTLBuffer"))
""")
    assert r.returncode == 0, r.stderr
    lines = r.stdout.split("\n")
    assert lines[0] == "MTLBuffer 1"
    assert all(line.endswith(" 0") for line in lines[1:8]), r.stdout
    assert lines[8] == "0"


def test_a_buffer_freed_in_flight_is_named(emu, run):
    r = run(SOURCE)
    x, y = (emu.buffer(r.device, 128) for _ in range(2))
    event = r.new("newSharedEvent")
    c = r.commands(unretained=True)
    c.wait_for(event, 1)
    with c.compute() as e:
        add(e, x, y)
    c.commit()
    emu.release(x)
    emu.msg(event, "setSignaledValue:", 1, returns=None)
    c.wait()
    emu.release(y)
    assert re.search(r"lifetime: a buffer of 128 bytes .* is freed while", emu.taken())


def test_retained_references_keep_a_buffer(emu, run):
    r = run(SOURCE)
    x, y = (emu.buffer(r.device, 128) for _ in range(2))
    c = r.commands()
    with c.compute() as e:
        add(e, x, y)
    emu.release(x, y)
    c.finish()


def test_over_release_and_late_messages_are_named(child):
    r = child("""
with emu.pool():
    b = emu.buffer(emu.device(), 64)
    emu.release(b)
    emu.msg(b, "contents")
""")
    assert r.returncode != 0
    assert "use-after-free: -[MTLBuffer contents] sent to a freed object" in r.stderr
    r = child('emu.msg(emu.cls("MTLHeapDescriptor"), "supercalc")')
    assert "selector: +[MTLHeapDescriptor supercalc] is not emulated" in r.stderr


# ---------------------------------------------------------------- failures on demand

FAILING = {
    "buffer": lambda e, r: e.buffer(r.device, 64),
    "queue": lambda e, r: e.msg(r.device, "newCommandQueue"),
    "event": lambda e, r: e.msg(r.device, "newSharedEvent"),
    "fence": lambda e, r: e.msg(r.device, "newFence"),
}


@pytest.mark.parametrize("what", FAILING)
def test_the_nth_call_fails(emu, run, what):
    r = run()
    emu.fail(what, 3)
    made = [FAILING[what](emu, r) for _ in range(4)]
    assert [m is None for m in made] == [False, False, True, False]
    emu.release(*[m for m in made if m])
    emu.fail(what, 0)
    assert FAILING[what](emu, r) is None and FAILING[what](emu, r) is None


def test_a_library_function_or_pipeline_fails(emu, run):
    emu.fail("library")
    with pytest.raises(MetalError, match="asked for"):
        run(SOURCE)
    r = run(SOURCE)
    emu.fail("function")
    with pytest.raises(MetalError):
        r.pipeline("add")
    emu.fail("pipeline")
    with pytest.raises(MetalError, match="asked for"):
        r.pipeline("add")
    assert r.pipeline("add")


@pytest.mark.parametrize("code", [1, 2, 8, 11])
def test_a_command_buffer_fails(emu, two, code):
    r, x, y = two
    emu.fail(f"command_buffer={code}", 2)
    for number in (1, 2, 3):
        emu.contents(y)[:] = 0
        c = r.commands()
        with c.compute() as e:
            add(e, x, y)
        status = c.finish()
        ran = emu.contents(y, np.float32)[31] == 32
        assert (status == ERROR) == (number == 2) and ran == (number != 2)
        error = emu.msg(c.it, "error")
        assert (error is not None) == (number == 2)
        if error:
            assert emu.error(error).domain == "MTLCommandBufferErrorDomain"
            assert emu.error(error).code == code


def test_a_failure_names_its_encoders(emu, two):
    r, x, y = two
    d = emu.new("MTLCommandBufferDescriptor")
    emu.msg(d, "setErrorOptions:", 1, returns=None)
    c = r.commands()
    c.it = emu.msg(r.queue, "commandBufferWithDescriptor:", P(d))
    for label in ("first", "second"):
        with c.compute() as e:
            e.send("setLabel:", label)
            add(e, x, y)
    emu.fail("command_buffer=8")
    c.finish()
    info = emu.msg(emu.msg(c.it, "error"), "userInfo")
    infos = emu.msg(info, "objectForKey:", "MTLCommandBufferEncoderInfoErrorKey")
    labels = []
    for i in range(2):
        one = emu.msg(infos, "objectAtIndex:", i)
        labels.append((emu.text(emu.msg(one, "label")), emu.msg(one, "errorState", returns=U)))
    assert labels == [("first", 4), ("second", 2)]
    emu.release(d)


def test_failures_from_outside(child):
    r = child("print(emu.device())", MSLEMU_FAIL="device:1")
    assert r.stdout == "None\n", r.stderr


# ---------------------------------------------------------------- events and handlers


def test_handlers_run_in_order_and_know_the_status(emu, two):
    r, x, y = two
    seen = []
    for n in range(3):
        c = r.commands()
        with c.compute() as e:
            add(e, x, y)
        for when in ("Scheduled", "Completed"):

            def note(it, n=n, when=when):
                seen.append((when, n, emu.msg(it, "status", returns=U)))

            emu.msg(c.it, f"add{when}Handler:", emu.block(note, P), returns=None)
        c.commit()
    c.wait()
    assert [s for s in seen if s[0] == "Completed"] == [("Completed", n, 4) for n in range(3)]
    assert [s[:2] for s in seen if s[0] == "Scheduled"] == [("Scheduled", n) for n in range(3)]


def test_shared_events(emu, two):
    r, x, y = two
    event = r.new("newSharedEvent")
    told = []
    listener = emu.new("MTLSharedEventListener")
    block = emu.block(lambda e, v: told.append(v), P, ctypes.c_uint64)
    emu.msg(event, "notifyListener:atValue:block:", P(listener), 7, block, returns=None)
    c = r.commands()
    with c.compute() as e:
        add(e, x, y)
    c.signal(event, 7)
    c.commit()
    wait = "waitUntilSignaledValue:timeoutMS:"
    assert emu.msg(event, wait, 7, 10000, returns=ctypes.c_bool)
    assert not emu.msg(event, wait, 8, 10, returns=ctypes.c_bool)
    c.wait()
    assert emu.msg(event, "signaledValue", returns=ctypes.c_uint64) == 7 and told == [7]
    emu.release(listener)


def test_an_event_that_never_comes_ends_in_an_error(child):
    r = child(
        f"""
with emu.pool():
    r = Run(emu, {SOURCE!r})
    c = r.commands()
    c.wait_for(r.new("newEvent"), 1)
    print(c.finish(), emu.error(emu.msg(c.it, "error")).code)
""",
        MSLEMU_PATIENCE_MS="200",
    )
    assert r.stdout == "5 2\n", r.stderr
    assert "deadlock: command buffer" in r.stderr


# ---------------------------------------------------------------- archives and residency


def archive(emu, device, path=None):
    d = emu.new("MTLBinaryArchiveDescriptor")
    if path:
        url = emu.msg(emu.cls("NSURL"), "fileURLWithPath:", str(path))
        emu.msg(d, "setUrl:", P(url), returns=None)
    try:
        return emu.with_error(device, "newBinaryArchiveWithDescriptor:error:", P(d))
    finally:
        emu.release(d)


def pipeline_from(emu, r, archives, options=4):
    f = emu.function(r.library, "add")
    d = emu.new("MTLComputePipelineDescriptor")
    emu.msg(d, "setComputeFunction:", P(f), returns=None)
    emu.msg(d, "setBinaryArchives:", emu.array(archives), returns=None)
    make = "newComputePipelineStateWithDescriptor:options:reflection:error:"
    try:
        return d, emu.with_error(r.device, make, P(d), options, None)
    finally:
        emu.release(f)


def test_a_second_start_finds_the_archive(emu, run, tmp_path):
    r = run(SOURCE)
    first = archive(emu, r.device)
    with pytest.raises(MetalError, match="do not hold 'add'"):
        pipeline_from(emu, r, [first])
    d, p = pipeline_from(emu, r, [first], options=0)
    add = "addComputePipelineFunctionsWithDescriptor:error:"
    assert emu.with_error(first, add, P(d), returns=ctypes.c_bool)
    path = tmp_path / "kernels.metalar"
    url = P(emu.msg(emu.cls("NSURL"), "fileURLWithPath:", str(path)))
    assert emu.with_error(first, "serializeToURL:error:", url, returns=ctypes.c_bool)
    second, hits = archive(emu, r.device, path), emu.lib.metalemu_archive_hits()
    d2, p2 = pipeline_from(emu, r, [second])
    assert emu.lib.metalemu_archive_hits() == hits + 1
    other = run(SOURCE + "// another text\n")
    with pytest.raises(MetalError, match="do not hold"):
        pipeline_from(emu, other, [second])
    emu.release(first, second, p, p2, d, d2)


def test_archives_fail(emu, run, tmp_path):
    r = run(SOURCE)
    bad = tmp_path / "bad"
    bad.write_text("no archive")
    with pytest.raises(MetalError) as e:
        archive(emu, r.device, bad)
    assert e.value.code == 1
    emu.fail("archive_load")
    with pytest.raises(MetalError):
        archive(emu, r.device)
    a = archive(emu, r.device)
    url = P(emu.msg(emu.cls("NSURL"), "fileURLWithPath:", str(tmp_path / "out")))
    emu.fail("archive_save")
    with pytest.raises(MetalError, match="cannot be written"):
        emu.with_error(a, "serializeToURL:error:", url, returns=ctypes.c_bool)
    emu.release(a)


def test_residency_sets(emu, two):
    r, x, y = two
    d = emu.new("MTLResidencySetDescriptor")
    s = emu.with_error(r.device, "newResidencySetWithDescriptor:error:", P(d))
    for b in (x, y):
        emu.msg(s, "addAllocation:", P(b), returns=None)
    assert emu.msg(s, "allocatedSize", returns=ctypes.c_uint64) == 0  # not before commit
    for m in ("commit", "requestResidency"):
        emu.msg(s, m, returns=None)
    assert emu.msg(s, "allocatedSize", returns=ctypes.c_uint64) == 256
    assert emu.msg(s, "containsAllocation:", P(x), returns=ctypes.c_bool)
    emu.msg(r.queue, "addResidencySet:", P(s), returns=None)
    emu.msg(r.queue, "removeResidencySet:", P(s), returns=None)
    emu.msg(s, "removeAllAllocations", returns=None)
    emu.msg(s, "endResidency", returns=None)
    emu.fail("residency")
    with pytest.raises(MetalError):
        emu.with_error(r.device, "newResidencySetWithDescriptor:error:", P(d))
    emu.mode(os=14)
    with pytest.raises(MetalError):
        emu.with_error(r.device, "newResidencySetWithDescriptor:error:", P(d))
    assert "need macOS 15" in emu.taken()
    emu.release(s, d)
