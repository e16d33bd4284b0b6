"""The gate: every operator, option and enum value has a value case and an error case, and each runs
on every executor that is asked for: ACCEL_TEST_DEVICE=metal asks for the Metal device."""

import ast
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import _core
from case import Point
from cases import CASES
from conftest import chosen_tables, open_runtime
from runner import judge, kernels_of, oracle, record, run
from test_op_errors import ALL
from test_rows import generator

OPS = [op for op in _core._ops() if not op["internal"]]
POINTS = {case.op: case.points for case in CASES}
# Values that a text option takes. One that is not here is refused.
ENUMS = {
    "w_order": {"kn", "nk"},
    "pairing": {"adjacent", "halves"},
    "form": {"erf", "tanh"},
    "rule": {"delta", "add"},
    "activations": {"int8", "f16", "bf16"},
    "operands": {"f16"},
}
# An option of one operator alone takes fewer.
FEWER = {}
BACKENDS = ("cpu", "metal", "cuda")
HERE = Path(__file__).parent


def value_of(op: dict, option: str, point: Point):
    """What a row of an operator gives for an option, by position or by name, or None."""
    names = [o["name"] for o in op["operands"] if not o["keyword"] and not o["optional"]]
    names += [a["name"] for a in op["attrs"] if a["positional"]]
    if option in point.keywords:
        return point.keywords[option]
    if option in names and names.index(option) < len(point.operands):
        return point.operands[names.index(option)]
    if option == "bias" and len(point.operands) > len(names):
        return point.operands[len(names)]
    return None


def given(op: dict, option: str) -> list:
    values = [value_of(op, option, point) for point in POINTS[op["name"]]]
    return [v for v in values if v is not None]


def elements(point: Point) -> int:
    """How large a row is, about."""
    shapes = [getattr(o, "shape", ()) for o in (*point.operands, *point.keywords.values())]
    return sum(int(np.prod(shape)) for shape in shapes)


def runs(op: dict, isa: str, wanted) -> None:
    """The smallest row of an operator that `wanted` takes runs on the device of `isa`, by one of
    the kernels that the operator has for it, and is right."""
    (case,) = (c for c in CASES if c.op == op["name"])
    rows = [point for point in case.points if wanted(point)]
    assert rows, f"{op['name']} has no such row"
    point, runtime = min(rows, key=elements), open_runtime(isa)
    r = record(runtime, case.op, point, generator(case, point))
    plan = r.builder.compile()
    judge(case.bound, run(runtime.device, r, plan), oracle(r), f"{case.op} {point}")
    backend = runtime.device.info.backend
    mine = {k["kernel"] for k in op["kernels"] if k["backend"] == backend}
    assert mine & set(kernels_of(plan)), f"{case.op} {point} ran no kernel of its own on {backend}"


def options(op: dict) -> list[str]:
    return [o["name"] for o in op["operands"] if o["optional"]] + [a["name"] for a in op["attrs"]]


OPTIONS = [(op, name) for op in OPS for name in options(op)]


@pytest.mark.parametrize(
    ("op", "option"), OPTIONS, ids=lambda v: v if isinstance(v, str) else v["name"]
)
def test_p26_32_every_option_has_a_value_case_away_from_its_default(op, option):
    spec = next((a for a in op["attrs"] if a["name"] == option), {"fallback": "None"})
    values = given(op, option)
    default = ast.literal_eval(spec["fallback"]) if spec["fallback"] else None
    # The last axis is the only one there is.
    if (op["name"], option) == ("softmax", "axis"):
        return
    assert [v for v in values if v != default], f"{op['name']}({option}=) has no value case"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op["name"])
def test_every_operand_and_option_has_an_error_case(op):
    refused = {row.operand for row in ALL if row.op == op["name"]}
    named = {name.split(".")[0].split("[")[0] for name in refused}
    for o in op["operands"]:
        assert o["name"] in named, f"{op['name']}: no row refuses {o['name']}"
    for a in op["attrs"]:
        if a["type"] == "flag":  # True and False are all there is; the rest is a TypeError
            continue
        assert a["name"] in named, f"{op['name']}: no row refuses {a['name']}"


TEXTS = [(op, a["name"]) for op in OPS for a in op["attrs"] if a["type"] == "text"]


@pytest.mark.parametrize(
    ("op", "option"), TEXTS, ids=lambda v: v if isinstance(v, str) else v["name"]
)
def test_p26_32_every_enum_value_has_a_value_case(op, option):
    allowed = FEWER.get((op["name"], option), ENUMS[option])
    spec = next(a for a in op["attrs"] if a["name"] == option)
    seen = set(given(op, option))
    default = ast.literal_eval(spec["fallback"])
    if default is not None and any(option not in p.keywords for p in POINTS[op["name"]]):
        seen.add(default)
    assert seen == allowed, f"{op['name']}({option}=): {allowed ^ seen}"


@pytest.mark.parametrize("op", OPS, ids=lambda op: op["name"])
def test_p26_32_every_operator_has_kernels_and_cases_on_each_executor(op):
    assert {k["backend"] for k in op["kernels"]} >= set(BACKENDS)
    assert POINTS[op["name"]]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op["name"])
def test_every_operator_runs_on_each_executor(op, isa):
    runs(op, isa, lambda point: True)


@pytest.mark.parametrize(
    ("op", "option"), OPTIONS, ids=lambda v: v if isinstance(v, str) else v["name"]
)
def test_every_option_runs_on_each_executor(op, option, isa):
    if (op["name"], option) == ("softmax", "axis"):  # the last axis is the only one there is
        return
    spec = next((a for a in op["attrs"] if a["name"] == option), {"fallback": "None"})
    default = ast.literal_eval(spec["fallback"]) if spec["fallback"] else None
    runs(op, isa, lambda p: value_of(op, option, p) not in (None, default))


@pytest.mark.parametrize(
    ("op", "option", "value"),
    [(op, option, v) for op, option in TEXTS for v in sorted(ENUMS[option])],
    ids=lambda v: v if isinstance(v, str) else v["name"],
)
def test_every_enum_value_runs_on_each_executor(op, option, value, isa):
    spec = next(a for a in op["attrs"] if a["name"] == option)
    default = ast.literal_eval(spec["fallback"])
    runs(op, isa, lambda p: (value_of(op, option, p) or default) == value)


def test_every_executor_of_this_build_is_held_to_the_rows():
    found = accel.enumerate_devices()
    assert {d.backend for d in found.devices} <= set(BACKENDS)
    # What a build lacks it says so of.
    assert {d.backend for d in found.devices} | {n.backend for n in found.notes} >= set(BACKENDS)


def test_every_dtype_and_kind_has_a_case():
    used = {getattr(o, "dtype", None) for c in CASES for p in c.points for o in p.operands}
    for dtype in ("f32", "f16", "bf16", "i32", "u32", "i8", "u8"):
        assert dtype in used, dtype
    kinds = {getattr(o, "kind", None) for c in CASES for p in c.points for o in p.operands}
    assert {"input", "weight", "state"} <= kinds


def public_names() -> set[str]:
    """Functions, classes and members that a user can name."""
    names = set()
    for module in (accel, accel.tensor, accel.quant):
        for name in getattr(module, "__all__", dir(module)):
            if name.startswith("_"):
                continue
            names.add(name)
            value = getattr(module, name)
            if isinstance(value, type) and not issubclass(value, BaseException):
                names |= {m for m in vars(value) if not m.startswith("_")}
    return names


def test_every_public_name_is_used_by_a_test():
    """By its own word, in a call, an attribute or an argument."""
    words = set()
    for path in HERE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                words.add(node.arg)
    missing = sorted(public_names() - words)
    assert not missing, ", ".join(missing)


def test_the_gate_sees_what_is_missing():
    """An option that no row gives, and one that no row refuses, would fail."""
    op = {"name": "softmax", "operands": [], "attrs": [{"name": "mode", "positional": False}]}
    assert given(op, "mode") == []
    assert "mode" not in {row.operand for row in ALL}
    softmax = next(o for o in OPS if o["name"] == "softmax")
    with pytest.raises(AssertionError, match="softmax has no such row"):
        runs(softmax, chosen_tables()[0], lambda point: "mode" in point.keywords)
    elsewhere = softmax | {"kernels": [k | {"backend": "none"} for k in softmax["kernels"]]}
    with pytest.raises(AssertionError, match="ran no kernel of its own"):
        runs(elsewhere, chosen_tables()[0], lambda point: True)
