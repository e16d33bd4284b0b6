"""What goes wrong around the executor, on the stand-in of the driver: a driver that is too old or
came with a fork, memory and copies that are refused, a context that is gone."""

import contextlib
import os
import subprocess
import sys

import accel
import numpy as np
import pieces
import pytest
from accel import tensor as T
from cuda_driver import (  # noqa: F401
    ILLEGAL_ADDRESS,
    INVALID_CONTEXT,
    OUT_OF_MEMORY,
    fail,
    held,
    library,
    live,
    no_faults,
    nothing_fails,
    until,
)

library()


@pytest.fixture
def device():
    assert live() == {}  # a context that a test lost is gone
    return accel.open_cuda(debug_fill=255)


def scaled(runtime):
    """A plan with a runtime scalar, which has pinned memory."""
    b = runtime.new_builder("scaled")
    x = b.input("x", accel.F32, [8])
    factor = b.scalar("factor", T.ScalarKind.F32)
    b.output("y", T.scale(x, factor))
    return b.compile()


def test_a_driver_that_lacks_a_function_is_too_old(tmp_path):
    library = str(tmp_path / "libcuda.so.1")
    compiler = os.environ.get("CXX", "clang++-19")
    source = 'extern "C" int cuInit(unsigned) { return 0; }'
    flags = [compiler, "-x", "c++", "-shared", "-fPIC", "-o", library, "-"]
    subprocess.run(flags, input=source, text=True, check=True)
    text = "import accel; print([n.error for n in accel.enumerate_devices().notes])"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "lacks cuDriverGetVersion: the driver is too old and must be of CUDA 12.0" in done.stdout


LOOKED = """
import os, sys, accel
accel.enumerate_devices()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
(note,) = [n for n in accel.enumerate_devices().notes if n.backend == "cuda"]
assert note.stage == "init" and "spawn" in note.error
assert accel.open_best().info.backend == "cpu"
try:
    accel.open_cuda()
except accel.DeviceError as e:
    assert e.code == "no_adapter" and "spawn" in str(e)
    os._exit(0)
os._exit(1)
"""


def test_a_child_is_told_of_a_driver_that_its_parent_initialised():
    done = subprocess.run(
        [sys.executable, "-c", LOOKED], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_what_access_wrote_before_it_raised_stands(device, on):
    device = device if on == "cuda" else accel.open_cpu(threads=1)
    buffer = device.new_buffer(accel.F32, 3)

    def change(array):
        array[1] = 9
        raise KeyError("after that")

    with pytest.raises(KeyError):
        buffer.access(change)
    assert buffer.read().tolist() == [0, 9, 0]


def test_a_copy_of_which_nobody_can_say_when_it_ends_loses_the_device(device):
    buffer = device.buffer(np.ones(64, np.float32))
    fail("cuStreamSynchronize")
    with pytest.raises(accel.DeviceError):  # waited for a second time, which went well
        buffer.read()
    assert buffer.read().all()
    fail("cuStreamSynchronize", 0)
    with pytest.raises(accel.DeviceError):
        buffer.read()
    nothing_fails()
    with pytest.raises(accel.DeviceLostError, match="nothing says when its copies end"):
        device.new_buffer(accel.F32, 1)


def test_pinned_memory_that_is_refused_is_named_with_its_size(device):
    runtime = accel.Runtime(device)
    device.new_buffer(accel.F32, 1)  # what copies need is there
    fail("cuMemHostAlloc", 1, OUT_OF_MEMORY)
    with pytest.raises(accel.CapacityError, match="pinned memory") as e:
        scaled(runtime)
    assert (e.value.code, e.value.requested) == ("out_of_memory", 16)
    assert 0 < e.value.free <= e.value.limit


@pytest.mark.parametrize("code", [INVALID_CONTEXT, ILLEGAL_ADDRESS])
def test_a_context_that_somebody_destroyed_loses_the_device(device, code):
    buffer = device.buffer(np.ones(4, np.float32))
    fail("cuCtxPushCurrent", 1, code)
    with pytest.raises(accel.DeviceLostError, match=str(code)):
        buffer.read()
    nothing_fails()
    with pytest.raises(accel.DeviceLostError, match=str(code)):
        device.new_buffer(accel.F32, 1)


def test_pinned_memory_of_many_writes_at_once_is_not_kept(device):
    plan, queue = scaled(accel.Runtime(device)), device.new_queue("writes")
    x, y = device.new_buffer(accel.F32, 8), device.new_buffer(accel.F32, 8)
    target = device.new_buffer(accel.U8, 1 << 20)
    fences = []
    before = live()["pinned"]
    with held():
        fences.append(plan.submit({"x": x, "y": y}, {"factor": 2.0}, queue=queue))
        for i in range(40):
            fences.append(queue.write_buffer(target, 0, np.full(1 << 20, i, np.uint8)))
    assert all(f.wait() for f in fences)
    assert (target.read() == 39).all()
    del fences
    until(lambda: live()["pinned"] <= before + 16)


@pytest.mark.parametrize(("fuse", "nth"), [(True, 1), (False, 1), (False, 2)])
def test_bindings_that_failed_leave_nothing_behind(device, fuse, nth, tmp_path):
    """Other bindings fail half way; the first ones, again, give what they gave, traced or not."""
    g = pieces.caches(accel.Runtime(device), "f16")
    plan, scalars = g.builder.compile(fuse=fuse), {"base": T.f32(10000.0)}
    bound = {name: device.buffer(a) for name, a in g.ports.items()}
    turned = bound["turned"] = device.buffer(np.zeros_like(g.ports["q"]))
    assert plan.submit(bound, scalars).wait()
    want = turned.read()
    other = bound | {name: device.buffer(g.ports[name] + 1) for name in ("q", "k", "keys")}
    other["turned"] = device.buffer(np.zeros_like(g.ports["q"]))
    fail("cuGraphExecKernelNodeSetParams", nth)  # a run is one node
    with pytest.raises(accel.DeviceError):
        plan.submit(other, scalars).wait()
    nothing_fails()
    for traced in (plan.trace(str(tmp_path / "t.json")), contextlib.nullcontext()):
        turned.write(np.zeros_like(want))
        with traced:
            assert plan.submit(bound, scalars).wait()
        assert np.array_equal(turned.read(), want)
    assert not other["turned"].read().any()
