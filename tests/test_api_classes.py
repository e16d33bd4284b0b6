"""The classes of the core: an object is whole or is not made, and none is copied or pickled."""

import copy
import copyreg
import pickle

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T

CLASSES = {name: c for name, c in vars(_core).items() if isinstance(c, type)}
WORDS = ("DType", "PortKind", "ScalarKind")
MADE_BY_A_CALL = (
    "BlockPool", "Buckets", "BufferView", "Int4", "PlanCache", "Quantized", "RowBias",
    "RowPenalties", "RowSampling", "Runtime", "SamplingOptions", "Stream",
)  # fmt: skip
BASE = accel.Buffer.__mro__[1]


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """One object of each class but the enumerations."""
    device = accel.open_cpu(threads=1)
    rt = accel.Runtime(device)
    b = rt.new_builder("objects")
    x, f = b.input("x", accel.F32, [4]), b.scalar("f", T.ScalarKind.F32)
    b.output("y", T.scale(x, f))
    plan = b.compile()
    arrays = {"x": np.ones(4, np.float32), "y": np.zeros(4, np.float32)}
    bound = plan.bind(arrays, {"f": 1.0})
    fence = plan.submit(bound)
    fence.wait()
    buffer = device.new_buffer(accel.F32, 4, "b")
    other = rt.new_builder("other")
    state = other.state("s", accel.F32, [4])
    found = [
        device, device.queue, buffer, buffer.view(0, 2), device.new_transient_pool("p"), fence, rt,
        b, x, state, other.int4("w", [8, 8]), other.quantized("q", [8, 32]), plan, bound,
        bound.scalars, plan.trace(tmp_path_factory.mktemp("t") / "t.json"), plan.identity,
        T.PlanCache(rt), T.Buckets(8, 16), T.BlockPool(4, 4), T.SamplingOptions(), T.Stream(1),
        T.RowBias(None, None), T.RowPenalties(None, None, None, None, None, None),
        T.RowSampling(None), T.u32(1),
    ]  # fmt: skip
    return {type(o).__name__: o for o in found}


def test_every_class_has_an_object_here(objects):
    assert set(objects) | set(WORDS) == set(CLASSES)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - set(WORDS)))
def test_nothing_is_copied_or_pickled(objects, name):
    thing = objects[name]
    words = f"cannot pickle '{name}' object"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=words):
            pickle.dumps(thing, protocol)
        with pytest.raises(TypeError, match=words):
            thing.__reduce_ex__(protocol)
    for call in (thing.__reduce__, lambda: copy.copy(thing), lambda: copy.deepcopy([thing])):
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(TypeError):
        copyreg._reduce_ex(thing, 1)


@pytest.mark.parametrize("value", [accel.F32, T.PortKind.STATE, T.ScalarKind.F32], ids=str)
def test_words_pickle_by_name(value):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) is value
    assert copy.copy(value) is copy.deepcopy(value) is value


@pytest.mark.parametrize("name", CLASSES)
def test_no_object_is_half_made(name):
    c = CLASSES[name]
    words = f"call {name}" if name in MADE_BY_A_CALL else f"{name}: .*its objects come from"
    with pytest.raises(TypeError, match=words):
        c.__new__(c)
    with pytest.raises(TypeError, match=words):
        c.__new__(c, 1, x=2)
    for new in (object.__new__, BASE.__new__):
        with pytest.raises(TypeError, match="not safe"):
            new(c)
    with pytest.raises(TypeError):
        copyreg.__newobj__(c)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - set(MADE_BY_A_CALL)))
def test_a_class_without_a_constructor_says_where_its_objects_come_from(name):
    with pytest.raises(TypeError, match=f"{name}: .*its objects come from .*[.]"):
        CLASSES[name]()


def test_the_base_class_makes_nothing(objects):
    class Own(BASE):
        pass

    for call in (BASE, lambda: BASE(objects["Buffer"]), lambda: BASE.__new__(BASE), Own):
        with pytest.raises(TypeError, match="cannot be made"):
            call()


def test_an_object_keeps_its_class(objects):
    with pytest.raises(TypeError):
        objects["Fence"].__class__ = accel.Queue
    with pytest.raises(TypeError):
        accel.Buffer.read = None
    assert isinstance(objects["Fence"], accel.Fence)
