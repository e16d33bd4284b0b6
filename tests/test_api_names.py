"""The surface: names, signatures, small values, stubs and generated files."""

import ast
import copy
import inspect
import pickle
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import _core, quant
from accel import tensor as T

PACKAGE = Path(accel.__file__).parent

ACCEL = [
    "BF16",
    "F16",
    "F32",
    "I32",
    "I8",
    "U32",
    "U8",
    "Buffer",
    "BufferView",
    "DType",
    "Device",
    "DeviceInfo",
    "Fence",
    "GraphMemory",
    "Queue",
    "Runtime",
    "TransientPool",
    "enumerate_devices",
    "open_best",
    "open_cpu",
    "open_cuda",
    "open_device",
    "open_metal",
    "quant",
    "tensor",
    "__version__",
    "Error",
    "GraphError",
    "ShapeError",
    "DTypeError",
    "AttrError",
    "PlanError",
    "UnsupportedError",
    "CapacityError",
    "BindError",
    "DeviceError",
    "CompileError",
    "DeviceLostError",
    "FormatError",
    "InternalError",
]
TENSOR = [
    "Bindings",
    "BlockPool",
    "Buckets",
    "Builder",
    "DType",
    "GraphMemory",
    "Identity",
    "Int4",
    "KernelSelection",
    "Plan",
    "PlanCache",
    "PortDesc",
    "PortKind",
    "Quantized",
    "RowBias",
    "RowPenalties",
    "RowSampling",
    "Runtime",
    "SamplingOptions",
    "ScalarDesc",
    "ScalarKind",
    "ScalarValue",
    "Shape",
    "State",
    "Stream",
    "Tensor",
    "MIN_TEMPERATURE",
    "TOP_MAX_ROUNDS",
    "declare_sampling_scalars",
    "derive",
    "f32",
    "u32",
]
SIGNATURES = {
    "add": "(x, y)",
    "mul": "(x, y)",
    "scale": "(x, scalar_name)",
    "silu": "(x)",
    "swiglu": "(gate, value)",
    "cast": "(x, to)",
    "contiguous": "(x)",
    "reshape": "(x, shape)",
    "permute": "(x, axes)",
    "transpose": "(x, axis_a, axis_b)",
    "slice": "(x, axis, start, end)",
    "broadcast": "(x, shape)",
    "gather_rows": "(table, ids)",
    "quant_gather_rows": "(table, ids)",
    "scatter_rows": "(state, rows, ids)",
    "read_state": "(state)",
    "layer_state": "(state, layer)",
    "rms_norm": "(x, gain, *, eps=None)",
    "softmax": "(x, *, axis=-1)",
    "rope": "(x, positions, *, rotary_dim=None, frequencies=None, base_name=None, "
    "pairing='adjacent')",
    "matmul": "(x, w, *, w_order='kn')",
    "linear": "(x, w, bias=None, *, w_order='kn')",
    "quant_matmul": "(x, w, *, w_order='kn', activations=None)",
    "int4_matvec": "(a, w, *, w_order='kn', activations=None)",
    "int4_matmul": "(a, w, *, w_order='kn', activations=None)",
    "attention": "(q, k, v, *, lengths=None, scale_name=None, pages=None, query_extents=None, "
    "sinks=None, block=0, base_name=None, window=None, soft_cap=None, operands=None)",
    "argmax": "(logits)",
    "sample_categorical": "(weights, draws)",
    "top_k_mask": "(weights, k, *, exact=False)",
    "top_p_mask": "(weights, p, *, exact=False)",
    "sample": "(logits, draws=None, history=None, counts=None, *, options=None, prefix=None)",
    "route": "(ids, *, experts=None)",
    "combine": "(y, inverse, weights)",
    "grouped_matvec": "(x, w, counts, *, bias=None, w_order='kn', activations=None)",
    "grouped_matmul": "(x, w, counts, *, bias=None, w_order='kn', activations=None)",
    "causal_conv1d": "(x, w, state, *, query_extents=None, bias=None)",
    "linear_attention": "(q, k, v, state, *, "
    "alpha=None, beta=None, query_extents=None, decay_first=False, rule='delta')",
    "log_softmax": "(x)",
    "take": "(x, ids)",
    "sub": "(x, y)",
    "exp": "(x)",
    "tanh": "(x)",
    "sigmoid": "(x)",
    "softplus": "(x)",
    "gelu": "(x, *, form='erf')",
    "clamp": "(x, *, low=None, high=None)",
    "l2_norm": "(x, *, eps=None)",
    "top_k": "(x, k)",
    "concat": "(*xs, axis=None)",
    "sample_rows": "(logits, draws, policy)",
}
BUILTINS = {
    "ShapeError": (accel.GraphError, ValueError),
    "DTypeError": (accel.GraphError, TypeError),
    "AttrError": (accel.GraphError, ValueError),
    "UnsupportedError": (accel.PlanError, NotImplementedError),
    "CapacityError": (accel.PlanError, MemoryError),
    "BindError": (accel.Error, ValueError),
    "DeviceError": (accel.Error, RuntimeError),
    "CompileError": (accel.DeviceError, RuntimeError),
    "DeviceLostError": (accel.DeviceError, RuntimeError),
    "FormatError": (accel.Error, ValueError),
    "GraphError": (accel.Error,),
    "PlanError": (accel.Error,),
    "InternalError": (accel.Error,),
}


def test_names_of_the_contract_exist():
    assert not [name for name in ACCEL if not hasattr(accel, name)]
    assert not [name for name in [*TENSOR, *SIGNATURES] if not hasattr(T, name)]
    assert set(TENSOR) | set(SIGNATURES) == set(T.__all__)
    assert set(accel.__all__) >= set(ACCEL)
    assert accel.__version__ == "0.1.0"
    assert T.DType is accel.DType and T.Runtime is accel.Runtime


@pytest.mark.parametrize("op", SIGNATURES)
def test_signature_and_docstring(op):
    function = getattr(T, op)
    signature = inspect.signature(function)
    bare = signature.replace(
        parameters=[
            p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )
    assert str(bare) == SIGNATURES[op]
    doc = inspect.getdoc(function)
    assert not [name for name in signature.parameters if f"    {name}: " not in doc]
    assert function.__module__ == "accel.tensor"


def test_every_operator_of_the_table_is_a_function():
    public = [op["name"] for op in _core._ops() if not op["internal"]]
    assert len(public) > 15
    assert set(public) <= set(SIGNATURES)


@pytest.mark.parametrize("name", BUILTINS)
def test_error_classes(name):
    cls = getattr(accel, name)
    assert all(issubclass(cls, base) for base in BUILTINS[name])
    assert cls.__module__ == "accel"
    error = cls("text")
    assert (str(error), error.code, error.line, error.problems) == ("text", "", 0, [])


def stub_names() -> set[str]:
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
    return found


def stub_members() -> dict[str, set[str]]:
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    members = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members[node.name] = {
                item.name if isinstance(item, ast.FunctionDef) else item.target.id
                for item in node.body
            } - {"__init__"}
    return members


def test_the_stub_names_what_the_core_has():
    real = {name for name in dir(_core) if not name.startswith("__")}
    assert stub_names() == real
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_has_every_member():
    for name, members in stub_members().items():
        real = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
        assert real == {m for m in members if not m.startswith("_")}, name
        assert not [m for m in members if not hasattr(getattr(_core, name), m)], name


# ---------------------------------------------------------------- small values


def test_dtypes_are_single_objects_with_the_core_s_text():
    names = ["F32", "F16", "BF16", "I32", "U32", "I8", "U8"]
    assert [str(getattr(accel, name)) for name in names] == [name.lower() for name in names]
    assert [getattr(accel, name).size for name in names] == [4, 2, 2, 4, 4, 1, 1]
    assert accel.F32 is accel.DType.F32 and accel.F32 != accel.F16
    assert repr(accel.BF16) == "DType.BF16"
    assert len({accel.F32, accel.F16, accel.DType.F32}) == 2
    for value in [accel.BF16, T.ScalarKind.F32, T.PortKind.STATE]:
        assert copy.deepcopy(value) is value
        assert pickle.loads(pickle.dumps(value)) is value
    with pytest.raises(TypeError):
        accel.DType()


def test_kinds_have_the_seed_s_order_and_text():
    assert [(k.value, str(k)) for k in (T.ScalarKind.U32, T.ScalarKind.F32)] == [
        (0, "u32"),
        (1, "f32"),
    ]
    kinds = [T.PortKind.INPUT, T.PortKind.WEIGHT, T.PortKind.STATE, T.PortKind.OUTPUT]
    assert [k.value for k in kinds] == [0, 1, 2, 3]
    assert [str(k) for k in kinds] == ["input", "weight", "state", "output"]


def test_shape_is_a_tuple_with_elements():
    shape = T.Shape([4, np.int64(8)])
    assert shape == (4, 8) and isinstance(shape, tuple)
    assert (shape.elements(), str(shape), T.Shape().elements()) == (32, "[4 8]", 1)
    with pytest.raises(TypeError):
        T.Shape([1.5])


def test_scalar_values():
    assert (T.u32(7).kind, T.u32(7).u32, str(T.u32(7))) == (T.ScalarKind.U32, 7, "7")
    assert (T.f32(0.1).kind, T.f32(0.1).f32) == (T.ScalarKind.F32, float(np.float32(0.1)))
    assert T.f32(1) == T.f32(1.0) != T.u32(1)
    assert T.f32(float("inf")).f32 == float("inf")
    # Halfway between two f32: to even, also for integers beyond 64 bits.
    assert T.f32(2**24 + 1).f32 == 2**24
    assert T.f32(2**24 + 3).f32 == 2**24 + 4
    assert T.f32(2**80 + 2**56).f32 == 2.0**80
    assert T.f32(2**80 + 2**56 + 1).f32 == 2.0**80 + 2.0**57
    assert T.f32(-(2**80 + 2**56 + 1)).f32 == -(2.0**80 + 2.0**57)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: T.u32(-1), accel.AttrError),
        (lambda: T.u32(2**32), accel.AttrError),
        (lambda: T.u32(True), TypeError),
        (lambda: T.u32(1.0), TypeError),
        (lambda: T.f32(1e39), accel.AttrError),
        (lambda: T.f32(2**200), accel.AttrError),
        (lambda: T.f32(True), TypeError),
        (lambda: T.f32("1"), TypeError),
    ],
)
def test_scalar_values_refuse(call, error):
    with pytest.raises(error):
        call()


def test_sampling_options_and_streams_are_values():
    a, b = T.SamplingOptions(0.7, 40, 0.9), T.SamplingOptions(temperature=0.7, top_k=40, top_p=0.9)
    assert a == b and hash(a) == hash(b) and a != T.SamplingOptions()
    assert T.SamplingOptions().greedy() and not a.greedy() and not a.penalised()
    assert "temperature=0.7" in repr(a)
    assert T.Stream(42).draw(3596) == 13377292 / 2**24
    assert T.Stream(2**64 - 1).draw(0) == 11849813 / 2**24
    assert T.derive(0, 7).seed == 0xC584133AC916AB3C
    assert T.Stream(7) == T.Stream(7) != T.Stream(8)
    assert (float(np.float32(1e-3)), 128) == (T.MIN_TEMPERATURE, T.TOP_MAX_ROUNDS)
    for bad in (-1, 2**64):
        with pytest.raises(accel.AttrError, match="2\\^64"):
            T.Stream(bad)
    with pytest.raises(TypeError, match="top_k is a float and must be an int"):
        T.SamplingOptions(top_k=1.0)
    with pytest.raises(TypeError, match="exact is an int and must be a bool"):
        T.SamplingOptions(exact=1)


def test_options_are_checked_and_used_as_f32():
    tiny, near = 1e-50, 1 + 1e-12
    off = T.SamplingOptions(top_p=tiny, repetition=tiny, presence=tiny, frequency=-tiny)
    off.validate()
    assert not off.penalised() and off.greedy() and off.scalars("s") == {}
    T.SamplingOptions(top_p=near, repetition=-tiny).validate()
    assert not T.SamplingOptions(repetition=near).penalised()
    b = accel.Runtime(accel.open_cpu(threads=1)).new_builder("as f32")
    options = T.SamplingOptions(temperature=1, top_p=tiny, repetition=near)
    T.declare_sampling_scalars(b, options, "s")
    x, d = b.input("x", accel.F32, [8]), b.input("d", accel.F32, [1])
    b.output("y", T.sample(x, d, options=options, prefix="s"))
    assert "top_p_mask" not in [s.op for s in b.compile().selections()]


def test_quant_planes_are_named():
    planes = quant.int8_quantize(np.array([[1, -2], [0.5, 0.25]], np.float32))
    assert isinstance(planes, quant.Int8Planes)
    assert planes.quants.tolist() == [[64, -127], [32, 16]]
    assert planes.scales.dtype == np.float16
    planes = quant.int4_quantize(np.array([0, 1, 2, 15], np.float32))
    assert planes.codes.tolist() == [0x0000F210]
    assert (planes.biases, planes.weights, planes.group) == (None, 4, 128)
    assert (quant.INT8_BLOCK, quant.INT4_GROUP) == (32, 128)
    with pytest.raises(accel.DTypeError, match=r"w is float64\[1\] and must be f32"):
        quant.int8_quantize(np.array([1.0]))
    with pytest.raises(TypeError, match="w is a list"):
        quant.int8_quantize([1.0])
