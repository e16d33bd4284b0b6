"""ONNX's own node cases against our operators, each at its own tolerance.

A case that the contract cannot express names the clause that excludes it; how many pass is stated
per operator, so that an exclusion cannot grow unseen.
"""

import collections

import pytest
from onnx_adapter import ADAPTERS, UNMAPPED
from onnx_cases import Excluded, Net, agree, all_cases

pytestmark = pytest.mark.peers

CASES = [c for c in all_cases() if c.op in ADAPTERS or c.op in UNMAPPED]

# Operator: cases that the contract expresses, of all there are.
EXPRESSED = {}


def outcome(case) -> str | None:
    """None after a case that ran and agreed; otherwise the clause that excludes it."""
    if case.op in UNMAPPED:
        return UNMAPPED[case.op]
    try:
        got = ADAPTERS[case.op](case, Net())
    except Excluded as clause:
        return str(clause)
    agree(case, got)
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case):
    clause = outcome(case)
    if clause is not None:
        assert "CONTRACT" in clause


def test_what_is_expressed_is_stated():
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for case in CASES:
        counts[case.op][1] += 1
        counts[case.op][0] += outcome(case) is None
    assert {op: tuple(n) for op, n in counts.items()} == EXPRESSED


def test_a_wrong_result_is_seen():
    case = next(c for c in CASES if c.name == "softmax_axis_2")
    got = ADAPTERS[case.op](case, Net())
    agree(case, got)
    got[0].flat[7] *= 1.01
    with pytest.raises(AssertionError):
        agree(case, got)
