"""Decisions about floats on a device that flushes subnormals, which Metal allows: those that bits
can decide are the CPU's. The emulator flushes operands and results of all arithmetic and of all
comparisons."""

import sys
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T
from driver import library, no_faults  # noqa: F401
from runner import Graph, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import embed_shaders

F32, U32 = np.float32, np.uint32
LEAST = F32(2.0**-149)  # subnormal, as are all up to 2^-126


@pytest.fixture(autouse=True)
def flush():
    library().metalemu_set_flush(1)
    yield
    library().metalemu_set_flush(0)


def subnormals(rng, shape):
    """Many equal ones, of both signs, between zeros of both signs."""
    signs = rng.integers(0, 2, shape).astype(U32) << 31
    return (signs | rng.integers(0, 6, shape).astype(U32)).view(F32)


def both(build, plain=False):
    """What a graph gives on a device that flushes, and on the CPU."""
    results = []
    for device in (accel.open_metal(plain=plain), accel.open_cpu(threads=1)):
        g = Graph(accel.Runtime(device))
        build(g)
        got = run(device, g)
        results.append({k: v.tobytes() for k, v in got.items()})
    return results


def same(build):
    got, want = both(build)
    assert got == want


def rows_of_subnormals(rng):
    rows = subnormals(rng, (12, 700))
    rows[1] = np.abs(rows[1])
    rows[2] = -np.abs(rows[2])
    rows[3, ::5] = np.nan
    rows[4] = LEAST  # all equal: the lowest index
    rows[5] = -LEAST
    rows[5, 613] = -0.0
    rows[6] = 0
    rows[6, 400:] = LEAST
    rows[7] = np.nan
    rows[8] = -np.inf
    rows[9] = -3.4e38  # wins nothing
    rows[10, 650] = 1
    rows[11] = np.float32(2.0**-126)
    rows[11, :300] = np.nextafter(F32(2.0**-126), F32(0))
    return rows


def argmaxes(rng):
    x = rows_of_subnormals(rng)
    return lambda g: g.output("out", T.argmax(g.port("x", x)))


@pytest.mark.parametrize("seed", range(3))
def test_argmax_finds_the_place_that_the_cpu_finds(seed):
    same(argmaxes(np.random.default_rng(seed)))


def test_argmax_of_long_rows_finds_it_too(rng):
    """Whose parts several groups have."""
    x = np.tile(rows_of_subnormals(rng), (1, 13))
    same(lambda g: g.output("out", T.argmax(g.port("x", x))))


# argmax by comparisons of floats: right where nothing is flushed.
BY_FLOATS = """
kernel void argmax_f32(device const float* x [[buffer(0)]], device u32* out [[buffer(1)]],
                       constant RowsParams& p [[buffer(PARAMS)]],
                       uint row [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  if (index != 0) return;
  float best = -3.4e38f;
  u32 at = 0;
  for (uint c = 0; c < p.width; ++c)
    if (x[ulong(row) * p.width + c] > best) {
      best = x[ulong(row) * p.width + c];
      at = c;
    }
  out[row] = at;
}
"""


def test_comparisons_of_floats_are_seen_to_fail():
    """The net itself: what compares floats finds other places, and only where they are flushed."""
    text = "\n".join(embed_shaders.flatten("argmax.metal", set()))
    head = text[: text.index("kernel void")]
    _core._replace_shader("argmax.metal", head + BY_FLOATS)
    try:
        build = argmaxes(np.random.default_rng(0))
        got, want = both(build)
        assert got != want
        library().metalemu_set_flush(0)
        got, want = both(build)
        assert got == want
    finally:
        _core._replace_shader("argmax.metal", "")


@pytest.mark.parametrize("k", [1, 7, 128, 300])
def test_top_k_takes_what_the_cpu_takes(k, rng):
    x = rows_of_subnormals(rng)

    def build(g):
        g.output("mask", T.top_k_mask(g.port("x", x), k, exact=k > 128))
        values, indices = T.top_k(g.port("x2", x), k)
        g.output("values", values)
        g.output("indices", indices)

    same(build)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_clamp_moves_what_stays(dtype, rng):
    x = subnormals(rng, (3, 257))
    if dtype == np.float16:
        x = (rng.integers(0, 1 << 16, (3, 257)).astype(np.uint16)).view(np.float16)
        x[np.isnan(x)] = 0

    def build(g):
        least = float(LEAST)
        bounds = [(0.0, 1.0), (-1.0, 0.0), (-1.0, 1.0), (2 * least, 1.0), (-np.inf, -least)]
        for i, (low, high) in enumerate(bounds):
            g.output(f"out{i}", T.clamp(g.port(f"x{i}", x), low=low, high=high))

    same(build)


def policy(**fields):
    """Rows of one distribution each by its own policy; its counts and history are states."""

    def build(g):
        ports = {
            name: g.port(name, array, "state" if name in ("history", "counts") else "input")
            for name, array in fields.items()
        }
        logits, draws = ports.pop("logits"), ports.pop("draws")
        if "history" in ports:
            g.writes(ports["counts"])
            names = ("history", "counts", "filled", "repetition", "presence", "frequency")
            ports["penalties"] = T.RowPenalties(*(ports.pop(name) for name in names))
        g.output("out", T.sample_rows(logits, draws, T.RowSampling(**ports)))

    return build


def test_a_subnormal_temperature_draws(rng):
    """It is not off as 0 is; times it every logit is near 0, so all are drawn alike."""
    factor = np.repeat(np.array([0, -LEAST, LEAST, 2.0**-127, 1, np.inf, np.nan], F32), 8)
    logits = rng.standard_normal((len(factor), 300)).astype(F32)
    draws = rng.random(len(factor)).astype(F32)
    same(policy(logits=logits, draws=draws, factor=factor))


def test_a_subnormal_p_keeps_one_entry(rng):
    """It is not off as 0 is, and the first entry crosses it."""
    top_p = np.repeat(np.array([0, -LEAST, LEAST, 2.0**-127, 0.3, 1, np.nan], F32), 8)
    logits = rng.standard_normal((len(top_p), 300)).astype(F32)
    draws = rng.random(len(top_p)).astype(F32)
    factor = np.ones(len(top_p), F32)
    same(policy(logits=logits, draws=draws, factor=factor, top_p=top_p))
    weights = rng.random((3, 300)).astype(F32)

    def masks(g):
        for i, p in enumerate((float(LEAST), 2.0**-127, 0.4)):
            g.output(f"out{i}", T.top_p_mask(g.port(f"x{i}", weights), p))

    same(masks)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-10, 1.0])
def test_a_product_that_only_just_is_no_zero(scale):
    """p times the total around 2^-150, where rounding to 0 begins: on a device that flushes nothing
    too."""
    ps = [F32(x * 2.0**-150 / scale) for x in (0.5, 1, 1 + 2.0**-20, 1.5, 2, 3)]
    ps = [float(p) for p in ps if p > 0]
    x = np.zeros((1, 130), F32)
    x[0, 77] = scale

    def masks(g):
        for i, p in enumerate(ps):
            g.output(f"out{i}", T.top_p_mask(g.port(f"x{i}", x), p))

    same(masks)
    library().metalemu_set_flush(0)
    same(masks)


def test_a_subnormal_repetition_divides(rng):
    """It is not off as 0 is: what is above 0 becomes infinite, here by the least that there is."""
    repetition = np.repeat(np.array([0, -LEAST, LEAST, 1, 1.5], F32), 4)
    rows = len(repetition)
    none = np.zeros(rows, F32)
    same(
        policy(
            logits=rng.standard_normal((rows, 300)).astype(F32),
            draws=none,
            factor=none,
            history=rng.integers(0, 300, (rows, 9)).astype(U32),
            counts=np.zeros((rows, 300), U32),
            filled=np.full(rows, 9, U32),
            repetition=repetition,
            presence=none,
            frequency=none,
        )
    )


@pytest.mark.parametrize(("w_order", "activations"), [("nk", None), ("kn", None), ("nk", "int8")])
def test_a_subnormal_scale_of_int4_is_no_zero(w_order, activations, rng):
    """Weights of a group are (code - zero) * scale: next to nothing, where a scale of 0 gives the
    zero itself. Other groups are normal, so what is next to nothing is lost in every sum. Beside
    the same device without flushing, because the CPU adds in another order."""
    k, n, group = 64, 32, 32
    scales = np.full((n, k // group), 0.01, F32)
    flat = scales.reshape(-1)
    flat[1::4] = 2.0**-130
    flat[3::8] = 0
    zeros = np.full(flat.shape, 7.5, F32)
    codes = rng.integers(0, 1 << 32, n * k // 8, dtype=np.uint64).astype(U32)
    x = rng.standard_normal((3, k)).astype(F32)

    def build(g):
        planes = [g.port(*p, "weight") for p in (("c", codes), ("s", flat), ("z", zeros))]
        w = T.Int4(*planes, weights=n * k, group=group)
        options = {"activations": activations} if activations else {}
        g.output("out", T.int4_matmul(g.port("x", x), w, w_order=w_order, **options))

    flushed, _ = both(build)
    library().metalemu_set_flush(0)
    whole, _ = both(build)
    assert flushed == whole
