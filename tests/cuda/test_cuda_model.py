"""A model whose host writes are refused by the driver: the step that reads them fails."""

import accel
import numpy as np
import pytest
import tiny_llama
from accel import llm
from accel.tensor import SamplingOptions
from cuda_driver import fail, library, no_faults, nothing_fails  # noqa: F401

library()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    shape = tiny_llama.Shape()
    weights = tiny_llama.random_weights(shape, {"*": "F32"}, True, np.random.default_rng(5))
    path = tmp_path_factory.mktemp("model") / "t.gguf"
    tiny_llama.write(path, shape, weights)
    with llm.load(path, device=accel.open_cuda(), context=32) as m:
        yield m


def tokens(model, **options):
    return [t.id for t in model.generate([65] * 3, max_tokens=3, ignore_eos=True, **options)]


@pytest.mark.parametrize("sampling", [None, SamplingOptions(temperature=1.0, presence=0.5)])
def test_a_write_of_a_cell_that_failed_is_raised_by_the_step_that_reads_it(model, sampling):
    """Without it the step would run with what the cell held before, and be right about nothing."""
    want = tokens(model, sampling=sampling)
    met = set()
    for nth in range(1, 40):
        fail("cuMemcpyHtoDAsync", nth)
        try:
            got = tokens(model, sampling=sampling)
            met.add("none")
            assert got == want, f"copy {nth} failed and nobody said so"
        except accel.DeviceError:
            met.add("raised")
        finally:
            nothing_fails()
    assert met == {"none", "raised"}
    assert tokens(model, sampling=sampling) == want
