"""accel.quant: recorded vectors, refusals, bounds that hold, and GGUF blocks held exactly."""

import accel
import gguf
import numpy as np
import pytest
from accel import quant
from gguf import GGMLQuantizationType as Ggml
from gguf import quants as ggml


def f16_bits(a):
    return np.asarray(a, np.float16).view(np.uint16).tolist()


def nibbles(codes, n):
    return ((codes[:, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15).ravel()[:n].tolist()


# ---------------------------------------------------------------- vectors


def test_p26_22_int8_vectors():
    p = quant.int8_quantize(np.float32([1, -2, 0.5, 0.25]))
    assert f16_bits(p.scales) == [0x2408] and p.quants.tolist() == [64, -127, 32, 16]
    p = quant.int8_quantize(np.float32([127, 63.5, -62.5, 0.5, 1.5]))
    assert p.scales.tolist() == [1] and p.quants.tolist() == [127, 64, -62, 0, 2]


@pytest.mark.parametrize(
    ("weights", "scale", "zero", "codes"),
    [
        ([0, 1, 2, 15], 0x3C00, 0.0, [0, 1, 2, 15]),
        ([-1, -0.5, 0, 0.5, 1], 0x3044, 7.5, [0, 4, 8, 11, 15]),
        ([0.9, 0.95, 1.0], 0x1ED4, -135.0, [0, 7, 15]),
        ([1, 1.00001], 0, 1.0, [0, 0]),
    ],
)
def test_p26_22_int4_vectors(weights, scale, zero, codes):
    p = quant.int4_quantize(np.float32(weights))
    assert f16_bits(p.scales) == [scale] and p.zeros.tolist() == [zero]
    assert nibbles(p.codes, len(codes)) == codes
    if codes == [0, 1, 2, 15]:
        assert p.codes.tolist() == [0x0000F210] and f16_bits(p.zeros) == [0]


def test_int8_peak_that_f16_cannot_hold_gives_zero():
    p = quant.int8_quantize(np.full(40, 1e-7, np.float32))
    assert not p.scales.any() and not p.quants.any()


def test_shape_is_kept_and_partial_blocks_have_their_own_scale():
    w = np.linspace(-1, 1, 3 * 35, dtype=np.float32).reshape(3, 35)
    p = quant.int8_quantize(w)
    assert p.quants.shape == (3, 35) and p.scales.shape == (4,)
    flat = w.ravel()[96:]
    assert p.scales[3] == np.float16(np.abs(flat).max().astype(np.float64) / 127)
    p4 = quant.int4_quantize(w, group=64)
    assert p4.codes.shape == (14,) and p4.scales.shape == p4.zeros.shape == (2,)
    assert p4.weights == 105 and p4.group == 64 and p4.codes[13] >> 4 == 0


def test_quants_follow_the_stored_scale_and_never_wrap(rng):
    w = rng.normal(size=4096).astype(np.float32) * 1e-4
    p = quant.int8_quantize(w)
    s = np.repeat(p.scales.astype(np.float64), 32)
    want = np.clip(np.rint(w / np.where(s == 0, 1, s)), -127, 127) * (s != 0)
    assert p.quants.tolist() == want.astype(int).tolist()


# ---------------------------------------------------------------- dequantize and bounds


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("kind", ["normal", "clustered", "constant", "tiny", "far"])
def test_p26_22_errors_stay_within_the_bounds(rng, kind, group):
    n = 1000
    w = {
        "normal": rng.normal(size=n),
        "clustered": rng.uniform(0.9, 1.0, size=n),
        "constant": np.repeat(rng.normal(size=n // 100 * 2), 50)[:n],
        "tiny": rng.normal(size=n) * 1e-7,
        "far": 1000 + rng.uniform(0, 1e-3, size=n),
    }[kind].astype(np.float32)
    p = quant.int4_quantize(w, group)
    got = quant.int4_dequantize(p.codes, p.scales, p.zeros, n, group)
    s, z = (np.repeat(a.astype(np.float32), group)[:n] for a in (p.scales, p.zeros))
    one = np.ones(1, np.float32)
    for i in range(n):
        bound = quant.int4_bound(one, s[i : i + 1], z[i : i + 1])
        # The two f32 roundings of (q - z) * s come on top: each is 2^-24 of its result.
        slack = 2.0**-23 * (abs(float(got[i])) + 15 * float(s[i]))
        assert abs(float(got[i]) - float(w[i])) <= bound + slack, (i, w[i], got[i])
    p8 = quant.int8_quantize(w)
    got8 = quant.int8_dequantize(p8.quants, p8.scales).astype(np.float64)
    s8 = np.repeat(p8.scales.astype(np.float32), 32)[:n]
    # A clamped quant of a block with peak / 127 rounded down adds half a spacing of the scale.
    spacing = 127 * np.maximum(s8 * 2.0**-11, 2.0**-25)
    assert (np.abs(got8 - w) <= s8 / 2 + spacing).all()
    assert quant.int8_bound(w, s8) == pytest.approx(float((np.abs(w.astype(float)) * s8 / 2).sum()))


def test_p26_44_dequantized_is_what_the_kernels_compute(rng):
    w = rng.normal(size=256).astype(np.float32)
    p = quant.int4_quantize(w, 32)
    q = np.float32(nibbles(p.codes, 256)).reshape(-1, 32)
    s, z = p.scales.astype(np.float32)[:, None], p.zeros.astype(np.float32)[:, None]
    want = np.where(s == 0, z, (q - z) * s).ravel()
    assert quant.int4_dequantize(p.codes, p.scales, p.zeros, 256, 32).tolist() == want.tolist()


def test_constant_group_is_its_zero():
    p = quant.int4_quantize(np.full(128, -3.5, np.float32))
    assert p.scales.tolist() == [0] and p.zeros.tolist() == [-3.5] and not p.codes.any()
    assert set(quant.int4_dequantize(p.codes, p.scales, p.zeros, 128).tolist()) == {-3.5}


# ---------------------------------------------------------------- refusals


def refused(words, call, *args):
    with pytest.raises(accel.AttrError) as e:
        call(*args)
    for word in words:
        assert word in str(e.value), str(e.value)


@pytest.mark.parametrize("quantize", [quant.int8_quantize, quant.int4_quantize])
def test_p26_22_bad_weights_are_named(quantize):
    w = np.zeros(300, np.float32)
    w[[7, 200]] = np.nan, np.inf
    refused(["w[7]", "nan", "finite"], quantize, w)
    w[7] = 0
    refused(["w[200]", "inf"], quantize, w)
    refused(["empty"], quantize, np.zeros(0, np.float32))


def test_overflow_names_block_and_range():
    w = np.zeros(64, np.float32)
    w[40] = 1e8
    refused(["scale of block 1", "[0, 100000000]"], quant.int8_quantize, w)
    w[32:] = 1e8
    w[63] = 0
    refused(["scale of block 1"], quant.int4_quantize, w, 32)
    refused(["zero of block 0", "65504"], quant.int4_quantize, np.full(9, 1e6, np.float32))


def test_counts_and_groups_are_checked():
    p = quant.int4_quantize(np.ones(100, np.float32))
    refused(["group is 48", "32, 64 or 128"], quant.int4_quantize, np.ones(9, np.float32), 48)
    bad = (p.codes[:-1], p.scales, p.zeros, 100)
    refused(["codes has 12", "13"], quant.int4_dequantize, *bad)
    refused(["zeros has 0"], quant.int4_dequantize, p.codes, p.scales, p.zeros[:0], 100)
    refused(["weights is 0"], quant.int4_dequantize, p.codes, p.scales, p.zeros, 0)
    f = np.ones(4, np.float32)
    refused(["scales has 3", "4"], quant.int8_bound, f, f[:3])
    refused(["zeros has 3", "4"], quant.int4_bound, f, f, f[:3])
    q8 = quant.int8_quantize(f)
    refused(["scales has 2", "1"], quant.int8_dequantize, q8.quants, np.float16([1, 1]))


# ---------------------------------------------------------------- GGUF


# Where the f16 numbers of a block stand: the scale first, then what is added or taken off.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q5_0": (0,), "Q5_1": (0, 2), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
EXACT = ["Q4_0", "Q4_1", "Q4_K", "Q8_0"]
NARROWED = ["Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K"]


def edge_blocks(name, rows, columns, rng):
    """Random blocks of a type: every byte, and scales of 0, -0, below zero and subnormal."""
    weights, size = gguf.GGML_QUANT_SIZES[Ggml[name]]
    blocks = rng.integers(0, 256, size=(rows * columns // weights, size), dtype=np.uint8)
    halves = rng.normal(size=(len(blocks), 2)).astype(np.float16)
    halves[:4, 0] = 0.0, -0.0, -0.75, 6e-8
    halves[4:8, 1] = 0.0, -0.0, -0.75, 6e-8
    for i, at in enumerate(HALVES[name]):
        blocks[:, at : at + 2] = halves[:, i : i + 1].copy().view(np.uint8)
    if name == "Q8_0":
        blocks[9, 2:] = 128  # -128
    return blocks.reshape(rows, -1)


def widen(planes, shape):
    n = int(np.prod(shape))
    if isinstance(planes, quant.Int8Planes):
        return quant.int8_dequantize(planes.quants, planes.scales)
    q = np.float32(nibbles(planes.codes, n)).reshape(-1, planes.group)
    s = planes.scales.astype(np.float32)[:, None]
    if planes.biases is not None:
        return (q * s + planes.biases.astype(np.float32)[:, None]).reshape(shape)
    return quant.int4_dequantize(
        planes.codes, planes.scales, planes.zeros, n, planes.group
    ).reshape(shape)


@pytest.mark.parametrize("name", EXACT)
def test_p26_45_quantized_types_equal_the_gguf_package(rng, name):
    shape = (24, 1024) if name == "Q4_K" else (24, 96)
    blocks = edge_blocks(name, *shape, rng)
    planes, error = quant.gguf_planes(name, blocks, shape)
    want = ggml.dequantize(blocks, Ggml[name])
    got = widen(planes, shape)
    assert error == 0 and got.dtype == np.float32
    assert np.array_equal(got, want) and np.count_nonzero(want) > want.size // 2
    nonzero = want != 0
    assert np.array_equal(got[nonzero].view(np.uint32), want[nonzero].view(np.uint32))


def test_p26_44_q4_k_planes_are_f32_of_group_32(rng):
    planes, _ = quant.gguf_planes("Q4_K", edge_blocks("Q4_K", 4, 512, rng), (4, 512))
    assert planes.group == 32 and planes.weights == 2048 and planes.zeros is None
    assert planes.scales.dtype == planes.biases.dtype == np.float32
    assert planes.scales.shape == planes.biases.shape == (64,) and planes.codes.shape == (256,)


def exact_weights(name, blocks):
    """The weights in float64 from the gguf package, whose f32 holds each of the two terms."""
    halves = HALVES[name]
    terms = None
    for keep in halves:
        one = blocks.reshape(-1, gguf.GGML_QUANT_SIZES[Ggml[name]][1]).copy()
        for at in halves:
            if at != keep:
                one[:, at : at + 2] = 0
        term = ggml.dequantize(one.reshape(blocks.shape), Ggml[name]).astype(np.float64)
        terms = term if terms is None else terms + term
    return terms


@pytest.mark.parametrize("name", NARROWED)
def test_p26_45_narrowed_types_are_the_weights_rounded_once(rng, name):
    shape = (24, 1024)
    blocks = edge_blocks(name, *shape, rng)
    want = exact_weights(name, blocks)
    single = ggml.dequantize(blocks, Ggml[name])
    assert np.abs(want - single).max() <= np.abs(single).max() * 2**-23  # the terms are right
    got, error = quant.gguf_planes(name, blocks, shape)
    assert got.dtype == np.float16 and got.shape == shape
    rounded = want.astype(np.float16)
    assert np.array_equal(got, rounded)
    nonzero = rounded != 0
    assert np.array_equal(got[nonzero].view(np.uint16), rounded[nonzero].view(np.uint16))
    assert error == np.abs(got.astype(np.float64) - want).max() > 0
    assert np.count_nonzero(want) > want.size // 2


@pytest.mark.parametrize("name", NARROWED)
def test_a_weight_beyond_f16_is_refused(name):
    weights, size = gguf.GGML_QUANT_SIZES[Ggml[name]]
    blocks = np.full((3, size), 0x5A, np.uint8)
    for at in HALVES[name]:
        blocks[:, at : at + 2] = 0
    assert quant.gguf_planes(name, blocks, (3, weights))[1] == 0
    at = HALVES[name][0]
    blocks[1, at : at + 2] = np.float16([60000]).view(np.uint8)
    refused([f"weight {weights} ", "65504", name], quant.gguf_planes, name, blocks, (3, weights))
    blocks[1, at : at + 2] = np.float16([np.nan]).view(np.uint8)
    refused(["nan", name], quant.gguf_planes, name, blocks, (3, weights))


@pytest.mark.parametrize(
    ("name", "dtype"), [("F32", np.float32), ("F16", np.float16), ("BF16", "bfloat16")]
)
def test_float_types_are_arrays_of_that_type(rng, name, dtype):
    raw = rng.integers(0, 256, size=3 * 5 * (4 if name == "F32" else 2), dtype=np.uint8)
    got, error = quant.gguf_planes(name, raw, (3, 5))
    assert error == 0 and got.shape == (3, 5) and got.dtype.name == np.dtype(got.dtype).name
    assert got.dtype.name == (dtype if isinstance(dtype, str) else np.dtype(dtype).name)
    assert got.tobytes() == raw.tobytes()


def planes_bytes(planes):
    if isinstance(planes, np.ndarray):
        return planes.tobytes()
    names = ("codes", "scales", "zeros", "biases", "quants")
    found = [getattr(planes, n, None) for n in names]
    return b"".join(a.tobytes() for a in found if a is not None)


@pytest.mark.threads
@pytest.mark.parametrize("name", [*EXACT, *NARROWED, "F32"])
def test_p26_45_any_number_of_threads_gives_the_same_bits(rng, name):
    shape = (2049, 1024)
    if name == "F32":
        blocks = rng.integers(0, 256, size=shape[0] * shape[1] * 4, dtype=np.uint8)
    else:
        blocks = edge_blocks(name, *shape, rng)
    planes, error = quant.gguf_planes(name, blocks, shape, 1)
    one = planes_bytes(planes)
    for threads in (0, 2, 3, 7):
        planes, other = quant.gguf_planes(name, blocks, shape, threads)
        assert planes_bytes(planes) == one and other == error


def test_gguf_refusals():
    raw = np.zeros(20 * 6, np.uint8)
    assert quant.gguf_planes("Q4_1", raw, (2, 96))[1] == 0
    refused(["blocks is 119", "6 times 20"], quant.gguf_planes, "Q4_1", raw[:-1], (2, 96))
    refused(["blocks is 120", "9 times 20"], quant.gguf_planes, "Q4_1", raw, (3, 96))
    refused(["[2 95]", "multiple of 32"], quant.gguf_planes, "Q4_1", raw, (2, 95))
    refused(["shape"], quant.gguf_planes, "Q4_1", raw, ())
    refused(["[0 96]", "positive"], quant.gguf_planes, "Q4_1", raw, (0, 96))
    refused(["too many"], quant.gguf_planes, "Q4_1", raw, (2**40, 2**40))
    refused(["Q8_K", "Q6_K"], quant.gguf_planes, 15, raw, (2, 96))
    refused(["'IQ4_NL'", "Q4_K"], quant.gguf_planes, "IQ4_NL", raw, (2, 96))
    refused(["[2 96]", "multiple of 256"], quant.gguf_planes, "Q4_K", raw, (2, 96))
    for name in EXACT + NARROWED:
        weights, size = gguf.GGML_QUANT_SIZES[Ggml[name]]
        for short in (-1, 1):
            blocks = np.zeros(3 * size + short, np.uint8)
            words = [f"blocks is {3 * size + short}", f"3 times {size}", name]
            refused(words, quant.gguf_planes, name, blocks, (3, weights))
    refused(["999"], quant.gguf_planes, 999, raw, (2, 96))
    refused(["threads is -1"], quant.gguf_planes, "Q4_1", raw, (2, 96), -1)


def test_planes_of_a_checkpoint_are_aligned_and_outlive_each_other():
    raw = np.arange(20 * 288, dtype=np.uint32).astype(np.uint8)
    raw.reshape(-1, 20)[:, :4] = np.array([0.5, -1.0], np.float16).view(np.uint8)
    made = [quant.gguf_planes("Q4_1", raw, (16, 576), 1)[0] for _ in range(6)]
    want = [np.array(p) for p in made[0][:2]]
    kept = [plane for p in made[::2] for plane in p[:2]]
    del made
    for i, plane in enumerate(kept):
        assert plane.ctypes.data % 64 == 0
        assert plane.flags.writeable
        np.testing.assert_array_equal(plane, want[i % 2])
        plane[:] = i  # its own memory
    assert all((plane == i).all() for i, plane in enumerate(kept))
