"""Devices, buffers, queues and fences from Python."""

import threading
import time

import accel
import numpy as np
import pytest
from accel import tensor as T


@pytest.fixture
def device():
    return accel.open_cpu(threads=1)


# ---------------------------------------------------------------- opening


def test_enumerate_and_open():
    found = accel.enumerate_devices()
    (info,) = [d for d in found.devices if d.backend == "cpu"]
    assert isinstance(info, accel.DeviceInfo) and len(info.id) == 16
    named = {n.backend for n in found.notes} | {d.backend for d in found.devices}
    assert named == {"cpu", "metal", "cuda"}
    device = accel.open_device(info.id)
    assert device.info.id == info.id and device.info.backend == "cpu"
    assert device.info.level in ("base", "fma") and device.info.threads >= 1
    assert "cpu" in repr(device)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: accel.open_device(b"x" * 16), accel.DeviceError, "id is of no adapter"),
        (lambda: accel.open_device(b"short"), accel.AttrError, "5 bytes and must be 16"),
        (lambda: accel.open_device("cpu"), TypeError, "id is a str"),
        (lambda: accel.open_cpu(threads=-1), accel.AttrError, "threads is -1"),
        (lambda: accel.open_cpu(threads=1.0), TypeError, "threads is a float"),
        (lambda: accel.open_metal(index=-1), accel.AttrError, "index is -1"),
        (lambda: accel.open_metal(index=99), accel.DeviceError, "open_metal: "),
        (lambda: accel.open_metal(debug_fill=256), accel.AttrError, "debug_fill is 256"),
        (lambda: accel.open_metal(lose_at=0), accel.AttrError, "lose_at is 0"),
        (lambda: accel.open_metal(plain=1), TypeError, "plain is an int"),
        (lambda: accel.open_cuda(index=-1), accel.AttrError, "index is -1"),
        (lambda: accel.open_cuda(index=99), accel.DeviceError, "open_cuda: "),
        (lambda: accel.open_cuda(debug_fill=256), accel.AttrError, "debug_fill is 256"),
        (lambda: accel.open_cuda(lose_at=0), accel.AttrError, "lose_at is 0"),
        (lambda: accel.open_cuda(serial=1), TypeError, "serial is an int"),
        (lambda: accel.open_cuda(overlap=0), TypeError, "overlap is an int"),
        (lambda: accel.open_cuda(matrix=1), TypeError, "matrix is an int"),
        (lambda: accel.open_cpu(isa="sse9"), accel.UnsupportedError, "sse9"),
        (lambda: accel.open_cpu(isa=""), accel.AttrError, "isa is ''"),
        (lambda: accel.open_cpu(isa=2), TypeError, "isa is an int"),
        (lambda: accel.open_cpu(debug_fill=256), accel.AttrError, "debug_fill is 256"),
        (lambda: accel.open_cpu(debug_fill=-1), accel.AttrError, "debug_fill is -1"),
        (lambda: accel.open_cpu(lose_at=0), accel.AttrError, "lose_at is 0"),
        (lambda: accel.open_best(allow_cpu=False), accel.DeviceError, "allow_cpu is False"),
        (lambda: accel.open_best(prefer=("vulkan",)), accel.AttrError, "'vulkan'"),
        (lambda: accel.open_best(prefer=()), accel.AttrError, "prefer is empty"),
        (lambda: accel.open_best(prefer="cpu"), TypeError, "prefer is a str"),
        (lambda: accel.open_best(allow_cpu=1), TypeError, "allow_cpu is an int"),
        (lambda: accel.open_best(require=["warp"]), accel.DeviceError, "capability 'warp'"),
        (lambda: accel.open_best(limits={"threads": (">=", 10**6)}), accel.DeviceError, "at least"),
        (lambda: accel.open_best(limits={"warps": ("<=", 1)}), accel.DeviceError, "unknown"),
        (lambda: accel.open_best(limits={"threads": 4}), TypeError, "limits is an int"),
        (lambda: accel.open_best(limits={"threads": ("=", 4)}), accel.AttrError, "'='"),
        (lambda: accel.open_best(prefer=["cuda"]), accel.DeviceError, "no device was found"),
    ],
)
def test_opening_refuses(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_open_best_says_what_it_passed_over():
    device = accel.open_best()
    assert device.info.backend == "cpu"
    assert [note.backend for note in device.passed_over] == ["metal", "cuda"]
    assert all(note.error for note in device.passed_over)
    assert accel.open_cpu(threads=1).passed_over == ()
    with pytest.raises(accel.DeviceError) as caught:
        accel.open_best(allow_cpu=False)
    assert caught.value.code == "policy"
    with pytest.raises(accel.DeviceError) as caught:
        accel.open_best(prefer=["cuda"])
    assert caught.value.code == "no_adapter"


# ---------------------------------------------------------------- buffers


def test_p26_35_a_new_buffer_is_zero_and_says_what_it_is(device):
    buffer = device.new_buffer(accel.F16, 5, "weights")
    assert (buffer.dtype, buffer.count, buffer.bytes, buffer.label) == (accel.F16, 5, 10, "weights")
    assert (buffer.layout, buffer.copied, buffer.closed, buffer.writable) == (
        "plain",
        False,
        False,
        True,
    )
    assert buffer.device is device
    assert not buffer.read().any() and buffer.read().dtype == np.float16
    assert "weights" in repr(buffer)
    view = buffer.view(1, 2)
    assert (view.buffer, view.dtype, view.offset, view.count) == (buffer, accel.F16, 1, 2)
    assert buffer.view_as(accel.U8, 0, 10).dtype is accel.U8
    assert accel.BufferView(buffer, accel.F16, 1, 2).offset == 1


def test_read_write_access(device):
    buffer = device.new_buffer(accel.F32, 4)
    data = np.array([1, 2, 3, 4], np.float32)
    buffer.write(data)
    np.testing.assert_array_equal(buffer.read(), data)
    out = np.zeros((2, 2), np.float32)
    assert buffer.read(out) is out
    np.testing.assert_array_equal(out, data.reshape(2, 2))
    buffer.numpy()[0] = 9
    assert buffer.read()[0] == 9
    assert buffer.access(lambda array: float(array.sum())) == 18
    with pytest.raises(ZeroDivisionError):
        buffer.access(lambda array: 1 / 0)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda b: b.write(np.ones(3, np.float32)), "too_small"),
        (lambda b: b.write(np.ones(5, np.float32)), "too_small"),
        (lambda b: b.write(np.ones(4)), "dtype"),
        (lambda b: b.write(np.ones(8, np.float32)[::2]), "layout"),
        (lambda b: b.read(np.ones(5, np.float32)), "too_small"),
        (lambda b: b.read(np.ones(4, np.int32)), "dtype"),
        (lambda b: b.read(np.broadcast_to(np.float32(0), (4,))), "layout"),
        (lambda b: b.read(np.frombuffer(bytes(16), np.float32)), "read_only"),
    ],
)
def test_read_and_write_refuse(device, call, code):
    buffer = device.buffer(np.arange(4, dtype=np.float32))
    with pytest.raises(accel.BindError) as caught:
        call(buffer)
    assert caught.value.code == code
    np.testing.assert_array_equal(buffer.read(), np.arange(4))


def test_a_closed_buffer_is_refused_everywhere(device):
    buffer = device.new_buffer(accel.F32, 4, "gone")
    array = buffer.numpy()
    buffer.close()
    buffer.close()
    assert buffer.closed
    assert not array.any(), "an array that is still alive keeps the bytes"
    calls = [
        buffer.read,
        buffer.numpy,
        lambda: buffer.write(np.ones(4, np.float32)),
        lambda: buffer.access(len),
        buffer.__dlpack__,
        lambda: device.queue.write_buffer(buffer, 0, np.ones(4, np.float32)),
        lambda: device.queue.read_buffer(buffer),
    ]
    for call in calls:
        with pytest.raises(accel.BindError, match="gone is closed") as caught:
            call()
        assert caught.value.code == "lifetime"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda d: d.new_buffer(accel.F32, 2**50), accel.CapacityError),
        (lambda d: d.new_buffer(np.float32, 4), TypeError),
        (lambda d: d.new_buffer(accel.F32, 4.0), TypeError),
        (lambda d: d.new_buffer(accel.F32, -4), accel.Error),
        (lambda d: d.new_buffer(accel.F32, 4).view(0.0, 1), TypeError),
        (lambda d: d.new_buffer(accel.F32, 4).view_as("f32", 0, 1), TypeError),
        (lambda d: accel.BufferView(3, accel.F32, 0, 1), TypeError),
        (lambda d: d.new_buffer(accel.F32, 4).access(3), TypeError),
        (lambda d: d.new_buffer(accel.F32, 4, label=3), TypeError),
    ],
)
def test_buffers_refuse(device, call, error):
    with pytest.raises(error):
        call(device)


def test_p26_03_too_large_carries_its_numbers(device):
    with pytest.raises(accel.CapacityError) as caught:
        device.new_buffer(accel.F32, 2**50)
    error = caught.value
    assert (error.code, error.requested) == ("too_large", 2**52)
    assert error.limit > 0 and isinstance(error, MemoryError)


def test_p26_03_a_failed_allocation_is_out_of_memory(device):
    from accel import _core

    _core._fail_allocation(1)
    try:
        with pytest.raises(accel.CapacityError) as caught:
            device.new_buffer(accel.F32, 16)
    finally:
        _core._fail_allocation(0)
    assert caught.value.code == "out_of_memory"
    assert device.new_buffer(accel.F32, 16).count == 16


def test_p26_03_closing_a_device_counts_its_children():
    device = accel.open_cpu(threads=1)
    buffers = [device.new_buffer(accel.F32, 4) for _ in range(2)]
    with pytest.raises(accel.BindError, match="2") as caught:
        device.close()
    assert caught.value.code == "lifetime" and not device.closed
    for buffer in buffers:
        buffer.close()
    device.close()
    device.close()
    assert device.closed
    with pytest.raises(accel.Error):
        device.new_buffer(accel.F32, 4)


# ---------------------------------------------------------------- queues and fences


def test_queue_writes_and_reads_in_order(device):
    queue = device.new_queue("copies")
    assert queue.label == "copies" and queue.device is device
    buffer = device.new_buffer(accel.F32, 4)
    host = np.array([1, 2], np.float32)
    fence = queue.write_buffer(buffer, 2, host)
    host[:] = 7  # copied before the call returned
    np.testing.assert_array_equal(queue.read_buffer(buffer), [0, 0, 1, 2])
    assert fence.wait() and fence.done
    out = np.zeros(4, np.float32)
    assert queue.read_buffer(buffer, out=out) is out and out[3] == 2
    queue.write_buffer(buffer, 0, np.arange(8, dtype=np.float32)[::2]).wait()
    np.testing.assert_array_equal(buffer.read(), [0, 2, 4, 6])
    queue.flush()
    queue.close()
    assert queue.closed and device.queue is device.queue


@pytest.mark.parametrize(
    ("offset", "host", "code"),
    [
        (3, np.ones(2, np.float32), "too_small"),
        (-1, np.ones(2, np.float32), "too_small"),
        (2**62, np.ones(2, np.float32), "too_small"),
        (0, np.ones(2), "dtype"),
    ],
)
def test_write_buffer_refuses(device, offset, host, code):
    buffer = device.new_buffer(accel.F32, 4)
    with pytest.raises(accel.BindError) as caught:
        device.queue.write_buffer(buffer, offset, host)
    assert caught.value.code == code
    with pytest.raises(TypeError):
        device.queue.write_buffer(buffer, 0, [1.0])
    with pytest.raises(TypeError):
        device.queue.write_buffer(host, 0, host)


def test_wait_refuses_a_bad_timeout(device):
    fence = device.queue.write_buffer(device.new_buffer(accel.F32, 1), 0, np.ones(1, np.float32))
    for timeout in (-1, float("nan")):
        with pytest.raises(accel.AttrError, match="timeout"):
            fence.wait(timeout)
    for timeout in (True, "1"):
        with pytest.raises(TypeError, match="timeout"):
            fence.wait(timeout)
    assert fence.wait(10) and fence.wait(timeout=0.5) and fence.wait(0)


def test_a_lost_device_fails_everything_after():
    device = accel.open_cpu(threads=1, lose_at=2)
    b = accel.Runtime(device).new_builder()
    x = b.input("x", accel.F32, [4])
    b.output("y", T.silu(x))
    plan = b.compile()
    given = {"x": np.ones(4, np.float32), "y": np.zeros(4, np.float32)}
    assert plan.submit(given).wait()
    for _ in range(2):
        with pytest.raises(accel.DeviceLostError) as caught:
            plan.submit(given).wait()
        assert caught.value.code == "lost"


def test_the_default_queue_closes_with_its_device():
    device = accel.open_cpu(threads=1)
    with pytest.raises(accel.BindError, match="device's own and must stay open") as e:
        device.queue.close()
    assert e.value.code == "lifetime" and not device.queue.closed


def test_a_mapped_buffer_does_not_close(device):
    buffer = device.new_buffer(accel.F32, 4)
    with pytest.raises(accel.BindError, match="inside access and must be outside it") as caught:
        buffer.access(lambda array: buffer.close())
    assert caught.value.code == "lifetime"
    buffer.close()


WAITING = {
    "read": lambda d, b: b.read(),
    "write": lambda d, b: b.write(np.ones(4, np.float32)),
    "access": lambda d, b: b.access(len),
    "read_buffer": lambda d, b: d.queue.read_buffer(b),
}


@pytest.mark.parametrize("name", WAITING)
def test_nothing_waits_for_its_own_access(device, name):
    buffer = device.new_buffer(accel.F32, 4, "held")
    with pytest.raises(accel.BindError, match="held is inside access on this thread") as caught:
        buffer.access(lambda array: WAITING[name](device, buffer))
    assert caught.value.code == "lifetime"
    assert WAITING[name](device, buffer) is not False, "and works outside"
    # Another buffer may be used inside, and another thread waits its turn.
    other = device.new_buffer(accel.F32, 4)
    buffer.access(lambda array: WAITING[name](device, other))


def test_a_read_waits_for_the_access_of_another_thread(device):
    buffer = device.new_buffer(accel.F32, 1)
    inside, seen = threading.Event(), []

    def fill(array):
        inside.set()
        time.sleep(0.05)
        array[0] = 7

    thread = threading.Thread(target=buffer.access, args=(fill,))
    thread.start()
    inside.wait()
    seen.append(float(buffer.read()[0]))
    thread.join()
    assert seen == [7]


def test_a_queue_takes_its_own_device_s_buffers_and_must_be_open(device):
    other = accel.open_cpu(threads=1)
    foreign = other.new_buffer(accel.F32, 4)
    for call in (
        lambda: device.queue.write_buffer(foreign, 0, np.ones(4, "f4")),
        lambda: device.queue.read_buffer(foreign),
    ):
        with pytest.raises(accel.BindError) as caught:
            call()
        assert caught.value.code == "foreign"
    queue = device.new_queue("closing")
    queue.close()
    buffer = device.new_buffer(accel.F32, 4)
    for call in (
        lambda: queue.read_buffer(buffer),
        lambda: queue.write_buffer(buffer, 0, np.ones(4, "f4")).wait(),
        queue.flush,
    ):
        with pytest.raises(accel.BindError, match="queue closing is closed and must be") as caught:
            call()
        assert caught.value.code == "lifetime"


def test_what_has_no_label_is_named_so(device):
    buffer = device.new_buffer(accel.F32, 4)
    buffer.close()
    queue = device.new_queue()
    queue.close()
    builder = accel.Runtime(device).new_builder()
    builder.output("y", T.silu(builder.input("x", accel.F32, [4])))
    plan = builder.compile()
    plan.close()
    for call, words in (
        (buffer.read, "read: buffer without a label is closed"),
        (queue.flush, "flush: queue without a label is closed"),
        (lambda: plan.bind({}), "plan without a label is closed"),
        (lambda: plan.submit({}).wait(), "plan without a label is closed"),
    ):
        with pytest.raises(accel.BindError, match=words):
            call()
