"""The real checkpoint with all its layers: the greedy tokens on Metal are those on the CPU."""

import accel
import pytest
from accel import llm
from checkpoint import checkpoint_path
from driver import no_faults  # noqa: F401

pytestmark = pytest.mark.slow

PROMPT = "Explain step by step how a bicycle works, from pedal to wheel."


def greedy(device, count: int) -> list[int]:
    model = llm.load(checkpoint_path(), device=device, context=256)
    try:
        return [token.id for token in model.generate(PROMPT, count)]
    finally:
        model.close()


# As many as take the emulator about three minutes on two cores.
@pytest.mark.parametrize(("plain", "count"), [(False, 160), (True, 40)], ids=["simd", "plain"])
def test_the_greedy_tokens_are_those_of_the_cpu(plain, count):
    want = greedy(accel.open_cpu(threads=1), count)
    assert len(want) == count and len(set(want)) > 20
    assert greedy(accel.open_metal(plain=plain), count) == want
