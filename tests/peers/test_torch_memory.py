"""Memory shared with torch through DLPack, both ways, and a plan that writes into a tensor."""

import accel
import numpy as np
import pytest
import torch
from accel import tensor as T
from conftest import open_runtime

pytestmark = pytest.mark.peers

DTYPES = [
    (torch.float32, accel.F32),
    (torch.float16, accel.F16),
    (torch.bfloat16, accel.BF16),
    (torch.int32, accel.I32),
    (torch.uint32, accel.U32),
    (torch.int8, accel.I8),
    (torch.uint8, accel.U8),
]


@pytest.fixture
def device():
    return open_runtime(None).device


def bits(t: torch.Tensor) -> np.ndarray:
    return t.contiguous().view(torch.uint8).numpy()


@pytest.mark.parametrize(("theirs", "ours"), DTYPES, ids=lambda d: str(d))
def test_a_tensor_is_taken_in_place_and_given_back(device, theirs, ours):
    t = (torch.arange(24).reshape(4, 6) % 11).to(theirs)
    buffer = device.from_dlpack(t, copy=False)
    assert buffer.dtype == ours and buffer.count == 24 and not buffer.copied
    back = torch.from_dlpack(buffer)
    assert back.dtype == theirs and back.data_ptr() == t.data_ptr()
    back.view(torch.uint8)[0] = 7  # one memory
    assert bits(t).ravel()[0] == 7


def test_a_strided_tensor_is_copied_or_refused(device):
    t = torch.arange(12, dtype=torch.float32).reshape(3, 4).T
    with pytest.raises(accel.BindError) as caught:
        device.from_dlpack(t, copy=False)
    assert caught.value.code == "layout"
    buffer = device.from_dlpack(t)
    assert buffer.copied
    assert np.array_equal(buffer.numpy().reshape(4, 3), t.numpy())


def test_a_plan_reads_and_writes_tensors(device):
    builder = open_runtime(None).new_builder("torch")
    x = builder.input("x", accel.F32, [3, 8])
    w = builder.weight("w", accel.BF16, [5, 8])
    builder.output("y", T.matmul(x, w, w_order="nk"))
    plan = builder.compile()
    tensors = {
        "x": torch.randn(3, 8),
        "w": torch.randn(5, 8).to(torch.bfloat16),
        "y": torch.zeros(3, 5),
    }
    bound = {name: device.from_dlpack(t, copy=False) for name, t in tensors.items()}
    assert plan.submit(bound).wait()
    x, w = tensors["x"].double(), tensors["w"].double()
    # Eight fused products and at most eight sums, each off by half a unit of 2^-23: gamma(9) of the
    # sum of magnitudes bounds any order (the weight and the row enter exactly).
    gamma = 9 * 2.0**-24 / (1 - 9 * 2.0**-24)
    assert (torch.abs(tensors["y"].double() - x @ w.T) <= gamma * (x.abs() @ w.abs().T)).all()


def test_memory_lives_as_long_as_either_side_needs_it(device):
    t = torch.arange(1000, dtype=torch.float32)
    buffer = device.from_dlpack(t, copy=False)
    pointer = t.data_ptr()
    del t
    kept = torch.from_dlpack(buffer)
    del buffer
    assert kept.data_ptr() == pointer and kept[999] == 999


def test_what_torch_has_and_we_have_not_is_refused(device):
    for t in (torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)):
        with pytest.raises(accel.Error) as caught:
            device.from_dlpack(t)
        assert str(t.dtype).split(".")[1][-2:] in str(caught.value)
    with pytest.raises((accel.Error, RuntimeError, BufferError)):
        device.from_dlpack(torch.zeros(3, requires_grad=True))
