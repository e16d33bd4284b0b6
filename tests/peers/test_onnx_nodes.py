"""ONNX's own node cases against our operators, each at its own tolerance.

A case that the contract cannot express names the clause that excludes it; how many pass is stated
per operator, so that an exclusion cannot grow unseen.
"""

import collections
from functools import cache

import pytest
from onnx_adapter import ADAPTERS, UNMAPPED
from onnx_cases import Excluded, Net, agree, all_cases

pytestmark = pytest.mark.peers

CASES = [c for c in all_cases() if c.op in ADAPTERS or c.op in UNMAPPED]

BY_NAME = {c.name: c for c in CASES}
assert len(BY_NAME) == len(CASES)

# Operator: cases that the contract expresses, of all there are.
EXPRESSED = {
    "Add": (2, 8),
    "ArgMax": (8, 16),
    "Attention": (29, 93),
    "BitCast": (0, 10),
    "Cast": (6, 116),
    "CastLike": (3, 56),
    "CausalConvWithState": (12, 13),
    "Clip": (8, 12),
    "Concat": (12, 12),
    "CumSum": (0, 9),
    "DequantizeLinear": (0, 14),
    "Div": (0, 10),
    "DynamicQuantizeLinear": (0, 3),
    "Einsum": (0, 9),
    "Exp": (2, 2),
    "Expand": (2, 2),
    "FlexAttention": (0, 11),
    "Gather": (4, 4),
    "GatherElements": (0, 3),
    "GatherND": (0, 3),
    "Gelu": (4, 4),
    "Gemm": (11, 11),
    "LayerNormalization": (0, 19),
    "LinearAttention": (14, 14),
    "LogSoftmax": (7, 7),
    "MatMul": (7, 7),
    "MatMulInteger": (0, 1),
    "Max": (0, 14),
    "Min": (0, 14),
    "Mul": (3, 9),
    "Pow": (0, 12),
    "QuantizeLinear": (0, 13),
    "RMSNormalization": (19, 19),
    "ReduceMax": (0, 11),
    "ReduceMean": (0, 8),
    "ReduceSum": (0, 12),
    "Reshape": (9, 10),
    "RotaryEmbedding": (8, 8),
    "ScatterElements": (0, 7),
    "ScatterND": (0, 7),
    "Sigmoid": (2, 2),
    "Slice": (6, 8),
    "Softmax": (7, 7),
    "Softplus": (2, 2),
    "Split": (14, 16),
    "Squeeze": (2, 2),
    "Sub": (3, 9),
    "SwiGLU": (3, 3),
    "Swish": (1, 1),
    "Tanh": (2, 2),
    "TensorScatter": (3, 3),
    "Tile": (2, 2),
    "TopK": (2, 7),
    "Transpose": (7, 7),
    "Trilu": (0, 18),
    "Unsqueeze": (7, 7),
    "Where": (0, 2),
}


@cache
def outcome(name: str) -> str | None:
    """None after a case that ran and agreed; otherwise the clause that excludes it."""
    case = BY_NAME[name]
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
    clause = outcome(case.name)
    if clause is not None:
        assert "CONTRACT" in clause


def test_what_is_expressed_is_stated():
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for case in CASES:
        counts[case.op][1] += 1
        counts[case.op][0] += outcome(case.name) is None
    assert {op: tuple(n) for op, n in counts.items()} == EXPRESSED


def test_a_wrong_result_is_seen():
    case = next(c for c in CASES if c.name == "softmax_axis_2")
    got = ADAPTERS[case.op](case, Net())
    agree(case, got)
    got[0].flat[7] *= 1.01
    with pytest.raises(AssertionError):
        agree(case, got)
