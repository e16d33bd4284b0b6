"""Unary functions and conversions over all values of a storage type (CONTRACT 26.14); exp, sine
and cosine over f32 samples."""

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, oracle, run, within
from values import NUMPY

ALL_16 = np.arange(65536, dtype=np.uint16)


def run_unary(isa, array, f):
    runtime = open_runtime(isa)
    g = Graph(runtime)
    g.output("out", f(g.port("x", array)))
    return g, run(runtime.device, g)["out"]


UNARY = {
    "silu": T.silu,
    "exp": T.exp,
    "tanh": T.tanh,
    "sigmoid": T.sigmoid,
    "softplus": T.softplus,
    "gelu-erf": T.gelu,
    "gelu-tanh": lambda x: T.gelu(x, form="tanh"),
    "clamp": lambda x: T.clamp(x, low=-0.3, high=1e4),
}


@pytest.mark.parametrize("name", UNARY)
def test_p26_14_unary_operators_of_every_f16(name, isa):
    g, got = run_unary(isa, ALL_16.view(np.float16), UNARY[name])
    values, budget = oracle(g)["out"]
    within(got, values, budget, f"{name} of f16")
    level = "base" if isa == "base" else "fma"
    equal_bits(got, oracle(g, level)["out"][0], f"{name} of f16 against its formula rounded once")
    # The f32 operator over the same values, then a cast: evaluated in f32, rounded once.
    _, wide = run_unary(isa, ALL_16.view(np.float16).astype(np.float32), UNARY[name])
    with np.errstate(over="ignore"):
        equal_bits(got, wide.astype(np.float16), f"{name} of f16 and of f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_p26_14_every_16_bit_value_widens_exactly(dtype, isa):
    array = ALL_16.view(NUMPY[dtype])
    _, got = run_unary(isa, array, lambda x: T.cast(x, accel.F32))
    with np.errstate(invalid="ignore"):
        equal_bits(got, array.astype(np.float32), dtype)


def test_f32_to_f16_over_every_exponent(isa):
    """Every sign and exponent with 2^12 fractions; all fractions run with the slow tests."""
    check_narrowing(isa, np.arange(0, 1 << 23, 1 << 11, dtype=np.uint32))


@pytest.mark.slow
def test_p26_14_f32_to_f16_over_every_exponent_and_2_16_fractions(isa):
    check_narrowing(isa, np.arange(0, 1 << 23, 1 << 7, dtype=np.uint32))


def check_narrowing(isa, fractions):
    for top in range(0, 512, 64):
        heads = np.arange(top, top + 64, dtype=np.uint32) << np.uint32(23)
        array = (heads[:, None] | fractions[None, :]).ravel().view(np.float32)
        _, got = run_unary(isa, array, lambda x: T.cast(x, accel.F16))
        with np.errstate(over="ignore"):
            want = array.astype(np.float16)
        equal_bits(got, want, f"exponents from {top}")
        assert (got.view(np.uint16)[np.isnan(array)] == 0x7E00).all(), "NaN becomes 0x7e00"


def test_p26_14_every_halfway_value_of_f16_goes_to_even(isa):
    low = np.arange(0x7BFF, dtype=np.uint16)
    middle = ((low.view(np.float16).astype(np.float64) + (low + 1).view(np.float16)) / 2).astype(
        np.float32
    )
    for sign in (1, -1):
        for step in (-1, 0, 1):
            array = (middle.view(np.int32) + step).view(np.float32) * np.float32(sign)
            _, got = run_unary(isa, array, lambda x: T.cast(x, accel.F16))
            equal_bits(got, array.astype(np.float16), f"halfway {step}")


def test_exp_stays_within_four_ulp(isa, rng):
    """Through softmax of [0, x]: its second entry over its first is exp(x), a division each."""
    x = np.concatenate([-rng.random(20000) * 104, -(2.0 ** rng.uniform(-30, 6.7, 20000))]).astype(
        np.float32
    )
    runtime = open_runtime(isa)
    g = Graph(runtime)
    g.output("out", T.softmax(g.port("x", np.stack([np.zeros_like(x), x], 1))))
    got = run(runtime.device, g)["out"].astype(np.float64)
    values, budget = oracle(g)["out"]
    within(got, values, budget, "softmax of pairs")
    ratio = got[:, 1] / got[:, 0]
    true = np.exp(x.astype(np.float64))
    ulp = np.maximum(np.spacing(true.astype(np.float32)).astype(np.float64), 2.0**-149)
    # exp, and half an ULP of each of the two divisions.
    assert (np.abs(ratio - true) / ulp).max() <= 4 + 2


@pytest.mark.parametrize("largest", [1.0, 1e3, 2.0**20])
def test_sine_and_cosine_stay_within_2_20(largest, isa, rng):
    """Through rope of (1, 0) at position 1: the pair becomes (cos f, sin f)."""
    theta = (rng.uniform(-1, 1, 20000) * largest).astype(np.float32)
    runtime = open_runtime(isa)
    g = Graph(runtime)
    x = g.port("x", np.tile(np.array([1, 0], np.float32), (1, len(theta))))
    p = g.port("p", np.array([1], np.uint32))
    f = g.port("f", theta)
    g.output("out", T.rope(x, p, frequencies=f, rotary_dim=2 * len(theta)))
    got = run(runtime.device, g)["out"].reshape(-1, 2).astype(np.float64)
    assert np.abs(got[:, 0] - np.cos(theta.astype(np.float64))).max() <= 2.0**-20
    assert np.abs(got[:, 1] - np.sin(theta.astype(np.float64))).max() <= 2.0**-20


def test_sine_and_cosine_of_large_angles_stay_in_range(isa, rng):
    theta = (2.0 ** rng.uniform(20, 127, 5000)).astype(np.float32)
    runtime = open_runtime(isa)
    g = Graph(runtime)
    x = g.port("x", np.tile(np.array([1, 0], np.float32), (1, len(theta))))
    g.output(
        "out",
        T.rope(
            x,
            g.port("p", np.array([1], np.uint32)),
            frequencies=g.port("f", theta),
            rotary_dim=2 * len(theta),
        ),
    )
    got = run(runtime.device, g)["out"]
    assert (np.abs(got) <= 1).all()
