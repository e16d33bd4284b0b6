"""Whole steps of a two-layer model on the emulator: the same bits in any order of threads, groups
and unordered commands, and those of the orders that the kernels register."""

import accel
import numpy as np
import pytest
import tiny
from driver import library, no_faults  # noqa: F401
from runner import equal_bits, equal_bytes, oracle, run

SEEDS = (1, 2, 3, 20, 77)  # natural, reversed, shuffled


@pytest.fixture
def plain(request):
    """On a device of a family that lacks what plain kernels must do without."""
    library().metalemu_set_family(5 if request.param else 8)
    yield request.param
    library().metalemu_set_family(8)


@pytest.fixture
def seeds():
    yield library().metalemu_set_seed
    library().metalemu_set_seed(1)


@pytest.mark.parametrize("plain", [False, True], ids=["simd", "plain"], indirect=True)
@pytest.mark.parametrize("form", ["decode", "ragged"])
def test_a_step_has_the_bits_of_its_orders_in_every_order_of_threads(form, plain, seeds):
    runtime = accel.Runtime(accel.open_metal(debug_fill=255))
    assert runtime.device.info.isa == ("plain" if plain else "apple7")
    weights = tiny.weights_of(tiny.Size(), np.random.default_rng(3))
    g, ports = tiny.step(runtime, weights, form)
    plan = g.builder.compile()
    first = None
    for seed in SEEDS:
        seeds(seed)
        got = run(runtime.device, g, plan, ports)
        first = first or got
        equal_bytes(got, first, f"{form} with seed {seed}")
    for name, (values, _) in oracle(g, "fma", ports).items():
        equal_bits(first[name], values, f"{form}: {name}")
