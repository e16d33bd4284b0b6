"""Options at their default and away from it: equal bits where the contract says so
(CONTRACT E1, E6; 26.15, 26.31, 26.47)."""

import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, kernels_of, run


def outcome(runtime, f) -> tuple[np.ndarray, list[str]]:
    g = Graph(runtime)
    g.output("out", f(g))
    plan = g.builder.compile()
    return run(runtime.device, g, plan)["out"], kernels_of(plan)


def same(runtime, f, h, what: str) -> None:
    (a, kernels_a), (b, kernels_b) = outcome(runtime, f), outcome(runtime, h)
    assert kernels_a == kernels_b
    equal_bits(a, b, what)


@pytest.fixture
def x(rng):
    return rng.standard_normal((6, 3, 32)).astype(np.float32)


POSITIONS = np.array([0, 1, 5, 4095, 70000, 2**31], np.uint32)


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("rotary_dim", [2, 16, 32])
@pytest.mark.parametrize("base", [10000.0, 1e6, 500.5])
def test_p26_15_a_table_of_frequencies_gives_the_bits_of_the_base(
    pairing, rotary_dim, base, isa, x
):
    k = np.arange(rotary_dim // 2, dtype=np.float64)
    table = np.exp(-2 * k / rotary_dim * np.log(np.float64(np.float32(base)))).astype(np.float32)

    def by_base(g):
        return T.rope(
            g.port("x", x),
            g.port("p", POSITIONS),
            rotary_dim=rotary_dim,
            pairing=pairing,
            base_name=g.scalar("base", base),
        )

    def by_table(g):
        return T.rope(
            g.port("x", x),
            g.port("p", POSITIONS),
            frequencies=g.port("f", table),
            rotary_dim=rotary_dim,
            pairing=pairing,
        )

    same(open_runtime(isa), by_base, by_table, "frequencies")


def test_p26_47_positions_of_tokens_equal_expanded_positions(isa, x):
    def rope(positions):
        return lambda g: T.rope(
            g.port("x", x), g.port("p", positions), rotary_dim=32, base_name=g.scalar("base", 1e4)
        )

    same(open_runtime(isa), rope(POSITIONS), rope(np.repeat(POSITIONS, 3)), "positions")


def test_p26_31_defaults_are_what_the_signature_says(isa, x):
    runtime = open_runtime(isa)
    flat = x.reshape(18, 32)
    weight = np.resize(x, (32, 9))

    def product(**options):
        return lambda g: T.matmul(g.port("x", flat), g.port("w", weight), **options)

    def rope(**options):
        return lambda g: T.rope(
            g.port("x", x),
            g.port("p", POSITIONS),
            rotary_dim=32,
            base_name=g.scalar("base", 1e4),
            **options,
        )

    def soft(**options):
        return lambda g: T.softmax(g.port("x", x), **options)

    def gelu(**options):
        return lambda g: T.gelu(g.port("x", x), **options)

    same(runtime, product(), product(w_order="kn"), "w_order")
    same(runtime, rope(), rope(pairing="adjacent"), "pairing")
    same(runtime, soft(), soft(axis=2), "axis")
    same(runtime, gelu(), gelu(form="erf"), "form")
    assert (outcome(runtime, gelu())[0] != outcome(runtime, gelu(form="tanh"))[0]).any()
    adjacent, halves = (outcome(runtime, rope(pairing=p))[0] for p in ("adjacent", "halves"))
    assert (adjacent != halves).any()


def test_operators_written_as_signs(isa, x):
    flat = x.reshape(18, 32)

    def signs(g):
        t = g.port("x", flat)
        return (t + t * t - t * t * t) @ g.port("w", flat[:5].T.copy())

    def words(g):
        t = g.port("x", flat)
        total = T.add(t, T.mul(t, t))
        cube = T.mul(T.mul(t, t), t)
        return T.matmul(T.sub(total, cube), g.port("w", flat[:5].T.copy()))

    same(open_runtime(isa), signs, words, "signs")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_takes_the_last_axis_alone(axis, isa, x):
    g = Graph(open_runtime(isa))
    T.softmax(g.port("x", x.reshape(18, 32)), axis=axis)
    assert (g.builder.err() is None) == (axis != 0)
