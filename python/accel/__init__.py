"""Tensor inference: record a graph once, compile it once into a plan, submit it many times.

Devices, buffers, element types and errors stand here; operators in ``accel.tensor``, host
quantizers in ``accel.quant``.
"""

from accel._errors import (
    AttrError,
    BindError,
    CapacityError,
    CompileError,
    DeviceError,
    DeviceLostError,
    DTypeError,
    Error,
    FormatError,
    GraphError,
    InternalError,
    PlanError,
    ShapeError,
    UnsupportedError,
)
from accel._types import (
    DeviceInfo,
    Diagnostic,
    Enumeration,
    FenceStats,
    GraphMemory,
    ProbeNote,
    Problem,
    Rejection,
    Shape,
)

# isort: split
from accel._core import (
    Buffer,
    BufferView,
    Device,
    DType,
    Fence,
    Queue,
    Runtime,
    TransientPool,
    enumerate_devices,
    open_best,
    open_cpu,
    open_cuda,
    open_device,
    open_metal,
)

# isort: split
from accel import quant, tensor

__version__ = "0.1.0"

F32 = DType.F32
F16 = DType.F16
BF16 = DType.BF16
I32 = DType.I32
U32 = DType.U32
I8 = DType.I8
U8 = DType.U8

__all__ = [
    "BF16",
    "F16",
    "F32",
    "I8",
    "I32",
    "U8",
    "U32",
    "AttrError",
    "BindError",
    "Buffer",
    "BufferView",
    "CapacityError",
    "CompileError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "Diagnostic",
    "Enumeration",
    "Error",
    "Fence",
    "FenceStats",
    "FormatError",
    "GraphError",
    "GraphMemory",
    "InternalError",
    "PlanError",
    "ProbeNote",
    "Problem",
    "Queue",
    "Rejection",
    "Runtime",
    "Shape",
    "ShapeError",
    "TransientPool",
    "UnsupportedError",
    "__version__",
    "enumerate_devices",
    "open_best",
    "open_cpu",
    "open_cuda",
    "open_device",
    "open_metal",
    "quant",
    "tensor",
]
