"""Memory shared with torch and cupy on a GPU. Left out where they see none."""

import accel
import numpy as np
import pytest
from accel import tensor as T

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)


@pytest.fixture(scope="module")
def device():
    return accel.open_cuda()


def test_a_tensor_of_torch_is_used_in_place(device):
    t = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    buffer = device.from_dlpack(t)
    assert not buffer.copied and buffer.count == 12
    t += 1
    torch.cuda.synchronize()
    assert buffer.read().tolist() == [i + 1 for i in range(12)]
    assert device.from_dlpack(t, copy=True).copied
    with pytest.raises(accel.BindError, match="strided"):
        device.from_dlpack(t.T)


def test_a_buffer_is_a_tensor_of_torch(device):
    buffer = device.buffer(np.arange(6, dtype=np.float32))
    t = torch.from_dlpack(buffer)
    assert t.is_cuda and t.tolist() == [0, 1, 2, 3, 4, 5]
    t *= 2
    torch.cuda.synchronize()
    assert buffer.read().tolist() == [0, 2, 4, 6, 8, 10]


def test_work_of_torch_before_the_import_is_seen(device):
    a = torch.full((2048, 2048), 1 / 2048, device="cuda")
    t = a
    for _ in range(20):
        t = t @ a * 1.0
    # Exact in any order: each sum is a multiple of 2^-22 up to 2^-11.
    assert (device.from_dlpack(t.contiguous()).read() == 1 / 2048).all()


def test_a_plan_writes_into_memory_of_torch(device):
    b = accel.Runtime(device).new_builder("negated")
    x = b.input("x", accel.F32, [64])
    b.output("y", T.sub(T.sub(x, x), x))
    plan = b.compile()
    given, out = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
    bound = {"x": device.from_dlpack(given), "y": device.from_dlpack(out)}
    assert plan.submit(bound).wait()
    assert torch.equal(out, -given)


def test_cupy_both_ways(device):
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(10, dtype=cupy.int32)
    buffer = device.from_dlpack(array)
    assert not buffer.copied and buffer.read().tolist() == list(range(10))
    back = cupy.from_dlpack(buffer)
    back += 3
    cupy.cuda.Stream.null.synchronize()
    assert buffer.read().tolist() == [i + 3 for i in range(10)]
