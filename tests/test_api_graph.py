"""Recording from Python: the caller's line, poison, collected mistakes, wrong Python types."""

import accel
import numpy as np
import pytest
from accel import tensor as T


@pytest.fixture(scope="module")
def rt():
    return accel.Runtime(accel.open_cpu(threads=1))


@pytest.fixture
def b(rt):
    return rt.new_builder("graph")


def line() -> int:
    import inspect

    return inspect.currentframe().f_back.f_lineno


# ---------------------------------------------------------------- lines


def test_operator_function_and_sign_report_the_user_s_line(b):
    x = b.input("x", accel.F32, [4, 8])
    x @ x
    first = line() - 1
    T.matmul(x, x)
    second = line() - 1
    T.reshape(x, [3])
    third = line() - 1
    T.sample(x, options=T.SamplingOptions(temperature=1), prefix="s")
    fourth = line() - 1
    b.input("x", accel.F32, [1])
    fifth = line() - 1
    lines = sorted(d.line for d in b.err().diagnostics)
    assert lines == [first, second, third, fourth, fifth]
    assert {d.file for d in b.err().diagnostics} == {__file__}


def helper(x):
    return T.silu(T.slice(x, 0, 3, 9))


def test_a_helper_of_the_user_is_the_user(b):
    helper(b.input("x", accel.F32, [4, 8]))
    assert b.err().line == helper.__code__.co_firstlineno + 1


def test_code_without_a_file_is_named_as_python_names_it(b):
    x = b.input("x", accel.F32, [4, 8])
    exec(compile("\n\nT.slice(x, 0, 3, 9)", "<cell 7>", "exec"), {"T": T, "x": x})
    assert str(b.err()).endswith(", recorded at <cell 7>:3")


def test_p26_06_composites_record_the_user_s_line_on_every_node(b):
    logits = b.input("logits", accel.F32, [64])
    options = T.SamplingOptions(temperature=0.7, top_k=8, top_p=0.9)
    T.declare_sampling_scalars(b, options, "s")
    draws = b.input("draws", accel.F32, [1])
    token = T.sample(logits, draws, options=options, prefix="s")
    here = line() - 1
    b.output("token", token)
    text = b.compile().explain()
    assert text.count(f"test_api_graph.py:{here}") >= 5, text


# ---------------------------------------------------------------- diagnostics


def test_p26_06_three_mistakes_come_together_sorted(b):
    x = b.input("x", accel.F32, [4, 8])
    gain = b.weight("gain", accel.F32, [7])
    y = T.rms_norm(x, gain, eps=1e-5)
    first = line() - 1
    T.scale(x, "nothing")
    second = line() - 1
    T.cast(x, accel.U8)
    third = line() - 1
    b.output("y", T.silu(y) + x)  # poison stays silent
    with pytest.raises(accel.GraphError) as caught:
        b.compile()
    error = caught.value
    assert type(error) is accel.GraphError
    assert [d.op for d in error.diagnostics] == ["cast", "rms_norm", "scale"]
    assert [d.line for d in error.diagnostics] == [third, first, second]
    assert str(error) == str(b.err())
    one = error.diagnostics[1]
    assert one.operand == "gain"
    assert one.message == "rms_norm: gain is [7] and must be [8]"
    assert str(one) == f"{one.message}, recorded at test_api_graph.py:{first}"
    assert str(one) in str(error)


def test_p26_06_one_mistake_gives_one_error_of_its_own_class(b):
    x = b.input("x", accel.F32, [4, 8])
    gain = b.weight("gain", accel.F32, [7])
    b.output("y", T.rms_norm(x, gain, eps=1e-5))
    here = line() - 1
    assert b.err().code == "shape"
    with pytest.raises(accel.ShapeError) as caught:
        b.compile()
    error = caught.value
    assert isinstance(error, ValueError)
    assert str(error) == (
        f"rms_norm: gain is [7] and must be [8], recorded at test_api_graph.py:{here}"
    )
    assert (error.op, error.operand, error.line, error.file) == ("rms_norm", "gain", here, __file__)
    assert error.message == "rms_norm: gain is [7] and must be [8]"
    assert len(error.diagnostics) == 1


def test_p26_08_unused_ports_are_all_listed(b):
    x = b.input("x", accel.F32, [4])
    b.weight("w", accel.F32, [4])
    b.scalar("s", T.ScalarKind.F32)
    b.output("y", T.silu(x))
    assert b.err() is None
    with pytest.raises(accel.GraphError) as caught:
        b.compile()
    assert [d.operand for d in caught.value.diagnostics] == ["s", "w"]


def test_p26_08_a_graph_without_effect_is_refused(rt):
    with pytest.raises(accel.AttrError, match="without an output"):
        rt.new_builder("empty").compile()


def test_p26_07_poison(b):
    x = b.input("x", accel.F32, [4, 8])
    bad = T.reshape(x, [3])
    assert not bad.valid and str(bad) == "<invalid tensor>"
    for poisoned in (T.silu(bad), bad + x, x + bad, T.transpose(bad, 0, 9)):
        assert not poisoned.valid
    assert len(b.err().diagnostics) == 1
    for member in ("shape", "dtype"):
        with pytest.raises(accel.ShapeError, match="reshape: shape is"):
            getattr(bad, member)
    b.output("y", bad)
    assert len(b.err().diagnostics) == 1
    # A missing operand is reported although another one is poison.
    T.add(bad, None)
    assert len(b.err().diagnostics) == 2


def test_poisoned_state(b):
    state = b.state("s", accel.F32, [4, 2])
    bad = T.layer_state(state, 7)
    assert not bad.valid
    with pytest.raises(accel.GraphError, match="layer_state"):
        bad.name  # noqa: B018
    assert not T.read_state(bad).valid
    assert len(b.err().diagnostics) == 1


def test_two_builders_name_both_labels(rt):
    first, second = rt.new_builder("first"), rt.new_builder("second")
    x, y = first.input("x", accel.F32, [4]), second.input("y", accel.F32, [4])
    x + y  # noqa: B018
    assert "'second'" in str(first.err()) and "'first'" in str(first.err())
    assert second.err() is None


def test_values(b):
    x = b.input("x", accel.F16, (4, 8))
    assert (x.dtype, x.shape, x.valid, str(x)) == (accel.F16, (4, 8), True, "f16[4 8]")
    assert isinstance(x.shape, T.Shape)
    state = b.state("kv", accel.F32, [2, 4, 3])
    layer = T.layer_state(state, 1)
    assert (layer.name, layer.dtype, layer.shape, layer.version) == ("kv", accel.F32, (4, 3), 0)
    after = T.scatter_rows(
        layer, b.input("rows", accel.F32, [1, 3]), b.input("ids", accel.U32, [1])
    )
    assert isinstance(after, T.State) and after.version == 1
    assert T.contiguous(x).shape == x.shape and T.cast(x, accel.F16).dtype == accel.F16
    assert b.scalar("n", T.ScalarKind.U32) == "n"
    assert (b.label, b.err()) == ("graph", None)


def test_p26_46_bundles(b):
    w = b.int4("w", [32, 8], group=64)
    assert (w.codes.shape, w.scales.shape, w.zeros.dtype) == ((32,), (4,), accel.F16)
    assert (w.biases, w.weights, w.group) == (None, 256, 64)
    a = b.int4("a", [32, 8], affine=True, dtype=accel.F32)
    assert (a.zeros, a.biases.dtype, a.group) == (None, accel.F32, 128)
    q = b.quantized("q", [32, 8])
    assert (q.quants.dtype, q.quants.shape, q.scales.shape) == (accel.I8, (32, 8), (8,))


def test_p26_09_shapes_given_are_copied(b):
    extents = [4, 8]
    x = b.input("x", accel.F32, extents)
    extents[0] = 99
    assert x.shape == (4, 8)


# ---------------------------------------------------------------- wrong Python types


class Index:
    def __index__(self):
        return 4


WRONG = {
    "list for a tensor": (lambda b, x: T.silu([1.0]), "silu: x is a list and must be a Tensor"),
    "array for a tensor": (lambda b, x: T.add(x, np.ones(4)), "add: y is an? ndarray"),
    "tensor for a state": (lambda b, x: T.read_state(x), "read_state: state is a Tensor"),
    "tensor for an int4": (lambda b, x: T.int4_matmul(x, x), "int4_matmul: w is a Tensor"),
    "tensor for a bundle": (lambda b, x: T.quant_matmul(x, x), "quant_matmul: w is a Tensor"),
    "float for a dimension": (
        lambda b, x: b.input("y", accel.F32, [4.0]),
        r"input: shape\[0\] is a float and must be an int",
    ),
    "bool for a dimension": (
        lambda b, x: b.input("y", accel.F32, [4, True]),
        r"input: shape\[1\] is a bool",
    ),
    "int for a shape": (
        lambda b, x: b.input("y", accel.F32, 4),
        "shape is an int and must be",
    ),
    "text for a shape": (lambda b, x: b.input("y", accel.F32, "48"), "shape is a str"),
    "numpy dtype": (lambda b, x: b.input("y", np.float32, [4]), "input: dtype is a type"),
    "text dtype": (lambda b, x: T.cast(x, "f16"), "cast: to is a str and must be a DType"),
    "int for a name": (lambda b, x: b.input(4, accel.F32, [4]), "input: name is an int"),
    "text for a kind": (lambda b, x: b.scalar("s", "f32"), "scalar: kind is a str"),
    "float for an int": (lambda b, x: T.top_k_mask(x, 2.0), "top_k_mask: k is a float"),
    "bool for an int": (lambda b, x: T.top_k_mask(x, True), "top_k_mask: k is a bool"),
    "int for a flag": (lambda b, x: T.top_k_mask(x, 1, exact=1), "top_k_mask: exact is an int"),
    "bool for a float": (lambda b, x: T.top_p_mask(x, True), "top_p_mask: p is a bool"),
    "text for a float": (lambda b, x: T.rms_norm(x, x, eps="1e-5"), "rms_norm: eps is a str"),
    "int for text": (lambda b, x: T.scale(x, 2), "scale: scalar_name is an int"),
    "None for a default": (lambda b, x: T.softmax(x, axis=None), "softmax: axis is None"),
    "None for an order": (lambda b, x: T.matmul(x, x, w_order=None), "matmul: w_order is None"),
    "float for an axis": (lambda b, x: T.transpose(x, 0.0, 1), "transpose: axis_a is a float"),
    "list for options": (lambda b, x: T.sample(x, options=[], prefix="s"), "options is a list"),
    "list for an output": (lambda b, x: b.output("y", [x]), "output: t is a list"),
    "plus a number": (lambda b, x: x + 2.0, "right side must be a Tensor.*tensor.scale"),
    "number times": (lambda b, x: 2 * x, "left side must be a Tensor.*tensor.scale"),
    "times an array": (lambda b, x: x * np.ones(4, np.float32), "right side must be a Tensor"),
    "array times": (lambda b, x: np.ones(4, np.float32) * x, "left side must be a Tensor"),
    "numpy number plus": (lambda b, x: np.float32(2) + x, "left side must be a Tensor"),
    "minus a number": (lambda b, x: x - 2.0, "right side must be a Tensor.*tensor.scale"),
    "number minus": (lambda b, x: 2.0 - x, "left side must be a Tensor.*tensor.scale"),
    "list among several": (lambda b, x: T.concat(x, [x], axis=0), r"concat: xs\[1\] is a list"),
    "truth": (lambda b, x: bool(x), "no truth value"),
    "codes of int4": (lambda b, x: T.Int4([1], x), "Int4: codes is a list"),
    "progress": (lambda b, x: b.compile(progress=3), "compile: progress is an int"),
    "label": (lambda b, x: b.compile(label=3), "compile: label is an int"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_python_type_is_a_type_error_at_the_call(b, name):
    call, words = WRONG[name]
    x = b.input("x", accel.F32, [4])
    with pytest.raises(TypeError, match=words) as caught:
        call(b, x)
    assert not isinstance(caught.value, accel.Error)
    assert b.err() is None, "a TypeError records nothing"


def test_unknown_options_are_refused(b):
    x = b.input("x", accel.F32, [4])
    with pytest.raises(TypeError):
        T.softmax(x, 0)
    with pytest.raises(TypeError):
        b.compile(no_such_option=2)
    with pytest.raises(TypeError):
        accel.open_cpu(no_such_option=True)


def test_integers_of_numpy_and_index_types_of_the_right_kind(b):
    assert b.input("x", accel.F32, np.array([4, 8])).shape == (4, 8)
    assert b.input("y", accel.F32, (np.uint8(4),)).shape == (4,)
    with pytest.raises(TypeError):
        b.input("z", accel.F32, [Index()])
    with pytest.raises(OverflowError, match="shape\\[0\\] is 1267650600228229401496703205376"):
        b.input("z", accel.F32, [2**100])


def test_floats_are_rounded_on_entry(b):
    x, gain = b.input("x", accel.F32, [4]), b.weight("g", accel.F32, [4])
    assert T.rms_norm(x, gain, eps=1).valid  # an int is a float's exact neighbour
    assert not T.rms_norm(x, gain, eps=1e-60).valid
    assert "eps is 0" in str(b.err())


def test_text_that_is_no_unicode_is_a_type_error(rt, b):
    for call in (lambda: b.input("\ud800", accel.F32, [4]), lambda: rt.new_builder("\ud800")):
        with pytest.raises(TypeError, match="without lone surrogates"):
            call()


# ---------------------------------------------------------------- shapes


def test_bundles_of_the_most_weights_have_their_true_shapes(b):
    most = 2**63 - 1
    w = b.int4("w", [most], group=32)
    assert (w.codes.shape, w.scales.shape, w.weights) == ((2**60,), (2**58,), most)
    q = b.quantized("q", [most])
    assert (q.quants.shape, q.scales.shape) == ((most,), (2**58,))
    assert b.err() is None
    b.int4("v", [2**62, 4])
    b.quantized("p", [most, 2])
    found = sorted((d.op, d.operand) for d in b.err().diagnostics)
    assert found == [("int4", "shape"), ("quantized", "shape")]


@pytest.mark.parametrize("shape", [np.array(3), {3}, "3", 3], ids=repr)
def test_a_shape_that_is_no_sequence_names_call_and_argument(b, shape):
    with pytest.raises(TypeError, match="input: shape is .* and must be a sequence of ints"):
        b.input("x", accel.F32, shape)
