"""Host memory in and out: arrays used in place, DLPack, bf16, who keeps what alive."""

import array
import gc
import weakref

import accel
import ml_dtypes
import numpy as np
import pytest
from accel import tensor as T

DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "u32": np.uint32,
    "i8": np.int8,
    "u8": np.uint8,
}


# CONTRACT 23.2 for x / (1 + exp(-x)) in f32: exp 4 ULP, sum 0.5, division 2.5: 7 * 2^-23.
SILU_BOUND = 7 * 2.0**-23


@pytest.fixture(scope="module")
def device():
    return accel.open_cpu(threads=1)


@pytest.fixture(scope="module")
def plan(device):
    b = accel.Runtime(device).new_builder("in place")
    x = b.input("x", accel.F32, [4, 2])
    rows = b.input("rows", accel.F32, [1, 2])
    ids = b.input("ids", accel.U32, [1])
    T.scatter_rows(b.state("s", accel.F32, [4, 2]), rows, ids)
    b.output("y", T.silu(x))
    return b.compile()


def given(**replaced):
    arrays = {
        "x": np.ones((4, 2), np.float32),
        "rows": np.full((1, 2), 7, np.float32),
        "ids": np.array([2], np.uint32),
        "s": np.zeros((4, 2), np.float32),
        "y": np.zeros((4, 2), np.float32),
    }
    return {**arrays, **replaced}


def misaligned(count):
    return np.frombuffer(bytearray(4 * count + 1), np.float32, offset=1, count=count)


def frozen(a):
    a.flags.writeable = False
    return a


# ---------------------------------------------------------------- in place


def test_outputs_and_states_are_written_in_place(plan):
    arrays = given()
    plan.submit(arrays).wait()
    np.testing.assert_allclose(arrays["y"], 1 / (1 + np.exp(-1)), rtol=SILU_BOUND)
    assert arrays["s"].tolist() == [[0, 0], [0, 0], [7, 7], [0, 0]]


def test_any_element_aligned_memory_serves(plan, tmp_path):
    arrays = given()
    for name, a in arrays.items():
        bytes_ = bytearray(a.nbytes + 64)
        at = np.frombuffer(bytes_, np.uint8).ctypes.data
        offset = 4 - at % 4 if at % 4 else 4
        arrays[name] = np.frombuffer(bytes_, a.dtype, a.size, offset).reshape(a.shape)
        arrays[name][...] = a
    path = tmp_path / "x.bin"
    np.ones(8, np.float32).tofile(path)
    arrays["x"] = np.memmap(path, np.float32, "r", shape=(4, 2))
    plan.submit(arrays).wait()
    assert arrays["s"][2, 0] == 7 and arrays["y"].all()


REFUSED = {
    "dtype": (
        "x",
        lambda: np.ones((4, 2)),
        r"float64\[4 2\] .* f32; .*\(numpy.float32\)",
    ),
    "byte order": ("x", lambda: np.ones((4, 2), ">f4"), "x is a big-endian float32.*astype"),
    "another of ours": ("ids", lambda: np.ones(1, np.int32), "ids is a int32.* u32; .*uint32"),
    "layout": ("x", lambda: np.ones((2, 4), np.float32).T, "strides.*ascontiguousarray"),
    "slice": ("y", lambda: np.ones((4, 4), np.float32)[:, ::2], "strides.*ascontiguousarray"),
    "alignment": ("x", lambda: misaligned(8), "odd address.*copy"),
    "read_only output": ("y", lambda: frozen(np.ones((4, 2), np.float32)), "written.*copy"),
    "read_only state": ("s", lambda: frozen(np.ones((4, 2), np.float32)), "written.*copy"),
}
CODES = {"byte order": "dtype", "another of ours": "dtype", "slice": "layout"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_copy_is_refused_and_the_copy_is_named(plan, name):
    port, make, words = REFUSED[name]
    with pytest.raises(accel.BindError, match=words) as caught:
        plan.bind(given(**{port: make()}))
    (problem,) = caught.value.problems
    assert (problem.name, problem.code) == (port, CODES.get(name, name.split()[0]))


def test_all_array_problems_come_together_with_the_others(plan):
    arrays = given(
        x=np.ones((2, 4), np.float32).T,
        ids=np.ones(1),
        y=frozen(np.ones((4, 2), np.float32)),
        rows=misaligned(2),
        extra=np.ones(3),
    )
    del arrays["s"]
    with pytest.raises(accel.BindError) as caught:
        plan.bind(arrays)
    assert {p.name: p.code for p in caught.value.problems} == {
        "x": "layout",
        "ids": "dtype",
        "y": "read_only",
        "rows": "alignment",
        "s": "unbound",
        "extra": "unknown",
    }


def test_an_empty_array_is_a_problem_like_another(plan):
    for empty in (np.zeros(0, np.float32), np.zeros((0, 2), np.float32)):
        arrays = given(x=empty, ids=np.ones(1))
        del arrays["s"]
        for call in (plan.bind, lambda a: plan.submit(a).wait()):
            with pytest.raises(accel.BindError, match=r"x is a float32\[0.* at least 8") as caught:
                call(arrays)
            assert {p.name: p.code for p in caught.value.problems} == {
                "x": "too_small",
                "ids": "dtype",
                "s": "unbound",
            }


def test_a_read_only_array_serves_an_input(plan):
    arrays = given(x=frozen(np.ones((4, 2), np.float32)))
    assert plan.submit(arrays).wait()


def test_p26_23_larger_arrays_are_narrowed_and_smaller_ones_refused(plan):
    big = np.zeros(20, np.float32)
    plan.submit(given(y=big)).wait()
    assert big[:8].all() and not big[8:].any()
    with pytest.raises(accel.BindError) as caught:
        plan.bind(given(y=np.zeros(7, np.float32)))
    assert caught.value.problems[0].code == "too_small"


# ---------------------------------------------------------------- buffers from arrays


@pytest.mark.parametrize("name", DTYPES)
def test_a_buffer_takes_over_dtype_and_count(device, name):
    data = np.arange(6).astype(DTYPES[name])
    buffer = device.buffer(data, label="copy")
    assert (str(buffer.dtype), buffer.count, buffer.copied) == (name, 6, True)
    data[0] = 5
    assert buffer.read()[0] == 0, "copied once, when it was made"
    np.testing.assert_array_equal(buffer.numpy()[1:], data[1:])
    assert buffer.numpy().dtype == DTYPES[name]


class Interface:
    """Only __array_interface__."""

    def __init__(self, a):
        self.a = a
        self.__array_interface__ = a.__array_interface__


def test_a_buffer_from_other_objects(device):
    data = np.arange(6, dtype=np.float32)
    sources = [
        data.reshape(2, 3),
        np.repeat(data, 2)[::2],
        memoryview(data),
        array.array("f", data.tolist()),
        Interface(data),
        device.buffer(data),  # __dlpack__
        frozen(data.copy()),
    ]
    for source in sources:
        np.testing.assert_array_equal(device.buffer(source).read(), data)
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(device.buffer(strided).read(), strided.ravel())
    assert device.buffer(np.float32(3)).count == 1
    assert device.buffer(b"abc").dtype is accel.U8


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ([1.0, 2.0], TypeError, "array is a list and must be a numpy array"),
        (3.0, TypeError, "array is a float"),
        (np.ones(3), accel.BindError, r"array is float64\[3\] and must be f32"),
        (np.ones(3, bool), accel.BindError, r"array is bool\[3\]"),
        (np.ones(3, ">f4"), accel.BindError, "array is big-endian float32"),
        (np.ones(0, np.float32), accel.AttrError, r"array is float32\[0\] and must have elements"),
        (np.ones(3, ml_dtypes.float8_e4m3fn), accel.BindError, "array is float8"),
        (np.array(["a"]), accel.BindError, "array is str"),
    ],
)
def test_a_buffer_refuses(device, value, error, words):
    with pytest.raises(error, match=words):
        device.buffer(value)


# ---------------------------------------------------------------- dlpack


def test_export_and_import_share_memory(device):
    buffer = device.buffer(np.arange(4, dtype=np.float32))
    shared = np.from_dlpack(buffer)
    shared[0] = 9
    assert buffer.numpy()[0] == 9
    assert buffer.__dlpack_device__() == (1, 0)
    back = device.from_dlpack(shared)
    assert not back.copied
    back.numpy()[1] = 8
    assert buffer.numpy()[1] == 8
    for version in (None, (0, 8), (1, 0), (2, 5)):
        device.from_dlpack(Capsule(buffer.__dlpack__(max_version=version)))


class Capsule:
    """A producer of one capsule, with the old signature."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_crosses_dlpack(device, name):
    buffer = device.buffer(np.arange(6).astype(DTYPES[name]))
    back = device.from_dlpack(buffer)
    assert str(back.dtype) == name and back.count == 6 and not back.copied
    assert back.read().tobytes() == buffer.read().tobytes()


def test_p26_37_copy_is_obeyed(device):
    data = np.arange(6, dtype=np.float32)
    assert not device.from_dlpack(data).copied
    assert not device.from_dlpack(data, copy=False).copied
    copied = device.from_dlpack(data, copy=True)
    assert copied.copied
    data[0] = 5
    assert copied.read()[0] == 0


class Copying:
    """A producer that copies and says so, which numpy's own consumer asks for."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, *, max_version=None):
        return self.data.__dlpack__(max_version=max_version, copy=True)

    def __dlpack_device__(self):
        return (1, 0)


def test_a_copy_made_by_the_producer_counts(device):
    data = np.arange(4, dtype=np.float32)
    for copy in (None, True):
        buffer = device.from_dlpack(Copying(data), copy=copy)
        assert buffer.copied and buffer.read().tolist() == [0, 1, 2, 3]
    with pytest.raises(accel.BindError, match="copied by its producer.*copy=False") as caught:
        device.from_dlpack(Copying(data), copy=False)
    assert caught.value.code == "layout"


def test_p26_37_a_strided_tensor_is_copied_unless_that_is_refused(device):
    strided = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    buffer = device.from_dlpack(strided)
    assert buffer.copied
    np.testing.assert_array_equal(buffer.read(), strided.ravel())
    with pytest.raises(accel.BindError, match="strided.*copy=True") as caught:
        device.from_dlpack(strided, copy=False)
    assert caught.value.code == "layout"


def test_a_misaligned_tensor_is_copied_unless_that_is_refused(device):
    odd = misaligned(4)
    odd[:] = [1, 2, 3, 4]
    buffer = device.from_dlpack(odd)
    assert buffer.copied and buffer.read().tolist() == [1, 2, 3, 4]
    with pytest.raises(accel.BindError) as caught:
        device.from_dlpack(odd, copy=False)
    assert caught.value.code == "alignment"


class Elsewhere:
    def __dlpack__(self, **kw):
        raise AssertionError("memory of another device is not asked for")

    def __dlpack_device__(self):
        return (2, 0)


class OfDevice(Capsule):
    """A producer that gives what it likes as its device."""

    def __init__(self, where):
        super().__init__(3)
        self.where = where

    def __dlpack_device__(self):
        return self.where


class NoCapsule(Capsule):
    def __init__(self):
        super().__init__(3)


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (Elsewhere(), accel.BindError, "device type 2"),
        (np.ones(3), accel.BindError, "64 bits"),
        (np.ones(3, np.int16), accel.BindError, "16 bits"),
        ([1.0], TypeError, "x is a list"),
        (NoCapsule(), TypeError, "a DLPack capsule"),
        (np.ones(0, np.float32), accel.AttrError, "x is empty and must have elements"),
        (OfDevice("cpu"), TypeError, r"x.__dlpack_device__\(\) is a str and must be a tuple"),
        (OfDevice((1,)), TypeError, "must be a tuple of two ints"),
        (OfDevice((1, "0")), TypeError, r"x.__dlpack_device__\(\)\[1\] is a str"),
        (OfDevice(None), TypeError, "is None and must be a tuple of two ints"),
        (OfDevice((2**40, 0)), accel.BindError, f"device type {2**40}"),
    ],
)
def test_import_refuses(device, x, error, words):
    with pytest.raises(error, match=words):
        device.from_dlpack(x)
    with pytest.raises(TypeError, match="copy is an int"):
        device.from_dlpack(np.ones(3, np.float32), copy=1)


def test_read_only_memory_stays_read_only(device, plan):
    data = frozen(np.ones((4, 2), np.float32))
    buffer = device.from_dlpack(data)
    assert not buffer.writable and not buffer.copied
    assert not buffer.numpy().flags.writeable
    with pytest.raises(accel.BindError) as caught:
        buffer.write(np.zeros(8, np.float32))
    assert caught.value.code == "read_only"
    with pytest.raises(accel.BindError) as caught:
        plan.bind(given(y=buffer))
    assert caught.value.problems[0].code == "read_only"
    with pytest.raises(BufferError):
        buffer.__dlpack__()  # the unversioned form cannot say so
    assert not np.from_dlpack(buffer).flags.writeable


def test_export_refuses_what_it_cannot_do(device):
    buffer = device.new_buffer(accel.F32, 4)
    with pytest.raises(BufferError):
        buffer.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        buffer.__dlpack__(copy=True)
    for version in (1, "x", "1.", (1,), (1, 0, 0), (1, "0"), {}):
        with pytest.raises(TypeError, match="__dlpack__: max_version"):
            buffer.__dlpack__(max_version=version)
    assert buffer.__dlpack__(max_version=(2**40, 0)) is not None


# ---------------------------------------------------------------- lifetime


class Tracked(np.ndarray):
    """An array that weak references and finalizers can watch."""


def tracked(*shape):
    return np.ones(shape, np.float32).view(Tracked)


def test_p26_37_x_lives_as_long_as_the_buffer(device):
    x = tracked(64)
    alive = weakref.ref(x)
    buffer = device.from_dlpack(x)
    view = buffer.view(0, 4)
    del x
    gc.collect()
    assert alive() is not None and buffer.numpy().all()
    del buffer
    gc.collect()
    assert alive() is not None, "a view holds its buffer"
    del view
    gc.collect()
    assert alive() is None


def test_an_array_over_a_buffer_keeps_the_bytes(device):
    array_ = device.buffer(np.arange(1000, dtype=np.float32)).numpy()
    shared = np.from_dlpack(device.buffer(np.arange(1000, dtype=np.float32)))
    gc.collect()
    others = [device.new_buffer(accel.F32, 1000) for _ in range(8)]
    assert array_[999] == 999 and shared[999] == 999
    del others


def test_bindings_and_submissions_hold_their_arrays(plan):
    x = tracked(4, 2)
    alive = weakref.ref(x)
    bound = plan.bind(given(x=x))
    del x
    gc.collect()
    assert alive() is not None and plan.submit(bound).wait()
    bound["x"] = np.ones((4, 2), np.float32)
    gc.collect()
    assert alive() is None, "an assignment lets go of what it replaced"
    x = tracked(4, 2)
    alive = weakref.ref(x)
    fence = plan.submit(given(x=x))
    del x
    assert fence.wait()
    del fence
    gc.collect()
    assert alive() is None


def test_an_unused_capsule_frees_nothing_twice(device):
    for version in (None, (1, 0)):
        buffer = device.buffer(np.arange(4, dtype=np.float32))
        capsule = buffer.__dlpack__(max_version=version)
        del buffer
        gc.collect()
        back = device.from_dlpack(Capsule(capsule))
        del capsule
        gc.collect()
        assert back.read().tolist() == [0, 1, 2, 3]


# ---------------------------------------------------------------- shapes of arrays in place


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 4), np.float32), "x is a float32[2 4] array and must be [4 2] or flat"),
        (np.zeros((5, 2), np.float32), "x is a float32[5 2] array and must be [4 2] or flat"),
        (np.zeros((4, 2, 1), np.float32), "must be [4 2] or flat"),
        (np.ma.zeros((4, 2), np.float32), "with a mask"),
    ],
)
def test_an_array_of_another_shape_is_refused(plan, array, words):
    with pytest.raises(accel.BindError) as e:
        plan.bind(given(x=array))
    assert e.value.code == "layout" and words in str(e.value)


def test_a_flat_array_is_taken_by_its_count(plan):
    arrays = given(x=np.arange(11, dtype=np.float32))
    plan.submit(arrays).wait()
    x = np.arange(8, dtype=np.float64)
    np.testing.assert_allclose(arrays["y"].ravel(), x / (1 + np.exp(-x)), rtol=SILU_BOUND)
