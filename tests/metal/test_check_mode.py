"""Every function of the shader texts runs in check mode, in rows of the operators: no race, no
access out of bounds, nothing read that nothing wrote. A function that no row launches fails here,
and so does an operator of which no row ran on Metal."""

import functools
import math
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T
from case import Case, Point
from cases import CASES
from conftest import METAL, open_runtime
from driver import library, no_faults, ran  # noqa: F401
from runner import Graph, equal_bits, judge, kernels_of, oracle, record, run
from test_rows import generator
from test_sample_rows import graph, random_fields
from test_sampling import sampled

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import embed_shaders

HELPERS = ("copy_bytes", "segment_offsets")  # of a plan, beside the operator's own kernel
COMBINED = {"rope_write_f32", "rope_write_f16"}  # of runs of commands: test_rope_write.py
OPS = {op["name"]: op for op in _core._ops() if not op["internal"]}


@dataclass(frozen=True)
class Row:
    """One plan of a point: with these kernels switched off it launches these functions."""

    case: Case
    point: Point
    skipped: tuple[str, ...]
    groups: dict[str, int]  # of each function

    def compile(self, runtime):
        with skipping(self.skipped):
            r = record(runtime, self.case.op, self.point, generator(self.case, self.point))
            return r, r.builder.compile()


@contextmanager
def skipping(kernels):
    before = os.environ.get("ACCEL_SKIP_KERNEL", "")
    os.environ["ACCEL_SKIP_KERNEL"] = ",".join(kernels)
    try:
        yield
    finally:
        os.environ["ACCEL_SKIP_KERNEL"] = before


@functools.cache
def functions() -> frozenset[str]:
    """Of every shader text, by the names that the host finds them under."""
    texts = embed_shaders.flattened()
    return frozenset(f for _, text in texts for f in embed_shaders.functions_of(text, "c++"))


def plans(op: str, family: str):
    """Every plan of an operator's rows, by each kernel that takes the row, and its threads."""
    (case,) = (c for c in CASES if c.op == op)
    for point in case.points:
        builder = record(open_runtime(family), op, point, generator(case, point)).builder
        skipped = []
        while True:
            try:
                with skipping(skipped):
                    launches = _core._launches(builder, family)
            except accel.UnsupportedError:
                break
            groups = {}
            for one in launches:
                n = math.prod(one["groups"])
                groups[one["function"]] = max(n, groups.get(one["function"], 0))
            threads = sum(math.prod(one["groups"]) * one["threads"] for one in launches)
            yield threads, Row(case, point, tuple(skipped), groups)
            skipped.append(next(k for k in kernels_in(launches) if k not in HELPERS))


def kernels_in(launches: list[dict]) -> list[str]:
    return [one["kernel"] for one in launches]


@functools.cache
def chosen(op: str, family: str) -> tuple[Row, ...]:
    """For each function that the rows of an operator launch the cheapest plan, and the cheapest in
    which it has several groups, which may race."""
    found = sorted(plans(op, family), key=lambda p: p[0])
    rows, seen = [], set()
    for _, row in found:
        new = {(f, n > 1) for f, n in row.groups.items()} - seen
        if new or not rows:
            rows.append(row)
            seen |= new
    return tuple(rows)


def copies(family: str, rng) -> Graph:
    """A value that is two outputs is copied, whatever the size of its elements."""
    g = Graph(open_runtime(family))
    for dtype in (np.float32, np.float16, np.int8):
        x = g.port(f"x{dtype.__name__}", (rng.standard_normal((3, 700)) * 9).astype(dtype))
        y = T.contiguous(T.transpose(x, 0, 1))
        for i in range(2):
            g.output(f"y{i}{dtype.__name__}", y)
    return g


def policies(family: str, rng) -> Graph:
    fields = random_fields(rng, 5, 300)
    logits = rng.standard_normal((5, 300)).astype(np.float32)
    return graph(family, logits, rng.random(5).astype(np.float32), fields.pop("factor"), **fields)


def penalties(family: str, rng) -> Graph:
    options = T.SamplingOptions(temperature=0.8, repetition=1.3, presence=0.5, frequency=0.25)
    logits = rng.standard_normal((1, 300)).astype(np.float32)
    history = rng.integers(0, 300, 600).astype(np.uint32)
    return sampled(family, options, logits, np.float32([0.3]), history, 500)[0]


# What no operator of the table records by itself.
GRAPHS = (copies, policies, penalties)


def made(build, family: str) -> Graph:
    return build(family, np.random.default_rng(1))


@pytest.fixture
def check_mode():
    library().metalemu_set_check(1)
    yield
    library().metalemu_set_check(0)


@pytest.mark.parametrize("family", METAL)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.usefixtures("check_mode")
def test_the_rows_of_an_operator_show_no_fault(op, family):
    runtime, kernels = open_runtime(family), set()
    library().metalemu_clear_ran()
    for row in chosen(op, family):
        r, plan = row.compile(runtime)
        got = run(runtime.device, r, plan)
        judge(row.case.bound, got, oracle(r), f"{op} {row.point} without {row.skipped}")
        kernels |= set(kernels_of(plan))
    assert ran(check=True) == {f for row in chosen(op, family) for f in row.groups}
    mine = {k["kernel"] for k in OPS[op]["kernels"] if k["backend"] == "metal"}
    assert kernels & mine, f"no row of {op} ran a kernel of its own"


def launched(g: Graph, family: str) -> set[str]:
    return {one["function"] for one in _core._launches(g.builder, family)}


@pytest.mark.parametrize("family", METAL)
@pytest.mark.parametrize("build", GRAPHS)
@pytest.mark.usefixtures("check_mode")
def test_composites_show_no_fault(build, family):
    library().metalemu_clear_ran()
    g = made(build, family)
    got = run(open_runtime(family).device, g)
    for name, (values, _) in oracle(g, "fma").items():
        equal_bits(got[name], values, name)
    assert ran(check=True) == launched(g, family)


def test_every_function_of_the_shaders_is_launched_by_a_case():
    seen = {f for op in OPS for family in METAL for row in chosen(op, family) for f in row.groups}
    seen |= {
        f for build in GRAPHS for family in METAL for f in launched(made(build, family), family)
    }
    seen |= COMBINED
    assert seen == functions(), f"no case launches {sorted(functions() - seen)}"
