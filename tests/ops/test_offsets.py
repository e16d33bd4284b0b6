"""Operands that begin one element behind an aligned address: kernels that read several elements at
once have a way for those too, of the same bits."""

import math

import pytest
from case import In, Int4, Quantized
from conftest import open_runtime
from runner import equal_bytes, record, run
from test_rows import POINTS, generator

WIDE_READS = {
    "matmul", "linear", "quant_matmul", "int4_matvec", "int4_matmul", "grouped_matmul", "attention",
}  # fmt: skip


def elements(operand) -> int:
    if isinstance(operand, Int4):
        return operand.weights
    return math.prod(operand.shape) if isinstance(operand, In | Quantized) else 0


# Larger rows of the operators have the kernels of these.
CHOSEN = [
    (case, point)
    for case, point in POINTS
    if case.op in WIDE_READS and sum(map(elements, point.operands)) < 2**18
]


@pytest.mark.parametrize(("case", "point"), CHOSEN, ids=[f"{c.op}-{p}" for c, p in CHOSEN])
def test_an_offset_of_one_element_changes_no_bit(case, point, isa):
    runtime = open_runtime(isa)
    r = record(runtime, case.op, point, generator(case, point))
    plan = r.builder.compile()
    want = run(runtime.device, r, plan)
    equal_bytes(run(runtime.device, r, plan, guard=1), want, f"{case.op} {point}")
