"""Views composed at random, then contiguous: numpy's strided arrays are the reference walk."""

import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, run
from values import NUMPY


def random_array(rng, dtype: str, rank: int) -> np.ndarray:
    shape = tuple(int(n) for n in rng.integers(1, 5, rank))
    return rng.integers(0, 100, shape).astype(NUMPY[dtype])


def step(rng, t, a: np.ndarray, root: np.ndarray):
    """One random view of the tensor and of the array that mirrors it."""
    kind = rng.integers(0, 5)
    rank = a.ndim
    if kind == 0:
        axes = [int(i) for i in rng.permutation(rank)]
        return T.permute(t, axes), a.transpose(axes)
    if kind == 1:
        i, j = (int(v) for v in rng.integers(0, rank, 2))
        return T.transpose(t, i - rank, j), a.swapaxes(i, j)
    if kind == 2:
        axis = int(rng.integers(0, rank))
        start = int(rng.integers(0, a.shape[axis]))
        end = int(rng.integers(start + 1, a.shape[axis] + 1))
        cut = [slice(None)] * rank
        cut[axis] = slice(start, end)
        return T.slice(t, axis, start, end), a[tuple(cut)]
    if kind == 3 and rank < 8:
        shape = [
            int(rng.integers(1, 4)),
            *(int(rng.integers(1, 4)) if n == 1 else n for n in a.shape),
        ]
        return T.broadcast(t, shape), np.broadcast_to(a, shape)
    if kind == 4 and is_contiguous(a, root):
        return T.reshape(t, [a.size]), a.reshape(a.size)
    return t, a


def is_contiguous(a: np.ndarray, root: np.ndarray) -> bool:
    return (
        a.flags.c_contiguous
        and a.__array_interface__["data"][0] == root.__array_interface__["data"][0]
    )


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("rank", range(1, 9))
def test_p26_13_composed_views_equal_the_reference_walk(dtype, rank, isa, rng):
    runtime = open_runtime(isa)
    for attempt in range(6):
        g = Graph(runtime)
        array = random_array(rng, dtype, rank)
        t, a = g.port("x", array), array
        for _ in range(int(rng.integers(1, 6))):
            t, a = step(rng, t, a, array)
        packed = T.contiguous(t)
        assert tuple(packed.shape) == a.shape
        if is_contiguous(a, array):
            # Nothing moved, and an input cannot be an output: an operator in between helps.
            if dtype not in ("f32", "f16"):
                continue
            packed = T.mul(t, g.port("one", np.ones(1, array.dtype)))
        g.output("out", packed)
        got = run(runtime.device, g)
        equal_bits(got["out"], a.astype(np.float64), f"attempt {attempt}")


def test_contiguous_of_a_contiguous_tensor_makes_no_node(isa):
    runtime = open_runtime(isa)
    g = Graph(runtime)
    x = g.port("x", np.arange(6, dtype=np.float32).reshape(2, 3))
    g.output("out", T.silu(T.contiguous(T.contiguous(x))))
    assert [s.op for s in g.builder.compile().selections()] == ["silu"]
