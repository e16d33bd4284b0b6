"""Runs one point: a graph through the Python API, guarded buffers, and the oracle beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

import accel
import numpy as np
from accel import _core
from accel import tensor as T
from case import EXACT, In, Int4, Point, Quantized, Scalar
from values import NAMES, NUMPY

GUARD = 64  # elements before and after each bound range
SENTINEL = 0xA5  # byte


@dataclass
class Recorded:
    """A builder with one operator, its port contents and scalars."""

    builder: object
    backend: str = "cpu"  # whose orders the oracle walks
    ports: dict = field(
        default_factory=dict
    )  # name -> array: inputs, weights, states before the run
    scalars: dict = field(default_factory=dict)  # name -> (kind, value)
    outputs: dict = field(default_factory=dict)  # name -> (dtype, shape)
    written: list = field(default_factory=list)  # states that the graph writes
    arrays: list = field(
        default_factory=list
    )  # what each tensor operand holds, for outside formulas


class Graph(Recorded):
    """A graph written by hand: each port is declared from the array that fills it."""

    def __init__(self, runtime, label: str = "graph", builder=None):
        backend = orders_of(runtime.device) if runtime else "cpu"
        super().__init__(builder or runtime.new_builder(label), backend)

    def port(self, name: str, array, kind: str = "input"):
        array = np.ascontiguousarray(array)
        self.ports[name] = array
        return getattr(self.builder, kind)(name, dtype_of(NAMES[array.dtype]), array.shape)

    def scalar(self, name: str, value, kind: str = "f32") -> str:
        self.scalars[name] = (kind, value)
        return self.builder.scalar(name, T.ScalarKind.F32 if kind == "f32" else T.ScalarKind.U32)

    def output(self, name: str, value) -> None:
        self.builder.output(name, value)
        self.outputs[name] = (str(value.dtype), tuple(value.shape))

    def writes(self, state) -> None:
        self.written.append(state.name)


def orders_of(device) -> str:
    """Whose orders the oracle walks for a device."""
    info = device.info
    if "matrix" in info.capabilities:
        return "cuda_matrix"
    return "metal_plain" if info.isa == "plain" else info.backend


def dtype_of(name: str):
    return getattr(accel, name.upper())


def record(runtime, op: str, point: Point, rng) -> Recorded:
    r = Recorded(runtime.new_builder(op), orders_of(runtime.device))
    operands = [_operand(r, f"x{i}", o, rng) for i, o in enumerate(point.operands)]
    # A word given by name is an option; a dtype stands by position.
    keywords = {
        k: v if isinstance(v, str) else _operand(r, k, v, rng) for k, v in point.keywords.items()
    }
    result = getattr(T, op)(*operands, **keywords)
    finish(r, result)
    return r


def finish(r: Recorded, result) -> None:
    for i, value in enumerate(result if isinstance(result, tuple) else (result,)):
        if isinstance(value, T.State):
            r.written.append(value.name)
        else:
            r.builder.output(f"out{i}", value)
            r.outputs[f"out{i}"] = (str(value.dtype), tuple(value.shape))


def _operand(r: Recorded, name: str, o, rng):
    if isinstance(o, In):
        array = o.values(rng)
        r.ports[name] = array
        r.arrays.append(array)
        t = getattr(r.builder, o.kind)(name, dtype_of(o.dtype), o.shape)
        return o.view(t, T) if o.view else t
    if isinstance(o, Scalar):
        r.scalars[name] = (o.kind, o.value)
        return r.builder.scalar(name, T.ScalarKind.F32 if o.kind == "f32" else T.ScalarKind.U32)
    if isinstance(o, Int4):
        return _int4(r, name, o, rng)
    if isinstance(o, Quantized):
        return _quantized(r, name, o, rng)
    return dtype_of(o) if isinstance(o, str) and o in NUMPY else o


def _int4(r: Recorded, name: str, o: Int4, rng):
    groups = -(-o.weights // o.group)
    words = rng.integers(0, 2**32, -(-o.weights // 8), dtype=np.uint64).astype(np.uint32)
    if o.weights % 8:
        words[-1] &= np.uint32((1 << 4 * (o.weights % 8)) - 1)
    scales = (rng.random(groups) * 0.2 + 0.01).astype(NUMPY[o.dtype])
    offsets = (
        rng.uniform(-1, 1, groups)
        if o.affine
        else rng.integers(0, 16, groups) + rng.choice([0, 0.3, 1e-5], groups)
    )
    if o.constant_groups:
        scales[::2] = 0
    second = "biases" if o.affine else "zeros"
    planes = {"codes": words, "scales": scales, second: offsets.astype(NUMPY[o.dtype])}
    handles = {}
    for plane, array in planes.items():
        r.ports[f"{name}.{plane}"] = array
        handles[plane] = r.builder.weight(
            f"{name}.{plane}", dtype_of("u32" if plane == "codes" else o.dtype), array.shape
        )
    return T.Int4(weights=o.weights, group=o.group, **handles)


def _quantized(r: Recorded, name: str, o: Quantized, rng):
    n = int(np.prod(o.shape))
    r.ports[f"{name}.quants"] = rng.integers(-127, 128, o.shape).astype(np.int8)
    r.ports[f"{name}.scales"] = (rng.random(-(-n // 32)) * 0.1).astype(np.float16)
    return T.Quantized(
        quants=r.builder.weight(f"{name}.quants", accel.I8, o.shape),
        scales=r.builder.weight(f"{name}.scales", accel.F16, [-(-n // 32)]),
    )


# ------------------------------------------------------------------ running


def guarded(device, dtype: str, array: np.ndarray | None, count: int, guard: int = GUARD):
    """A view of `count` elements between sentinel bytes, and the bytes of the whole buffer."""
    buffer = device.new_buffer(dtype_of(dtype), count + 2 * guard)
    whole = np.full(buffer.bytes, SENTINEL, np.uint8)
    size = NUMPY[dtype].itemsize
    if array is not None:
        whole[guard * size : (guard + count) * size] = (
            np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        )
    buffer.write(whole.view(NUMPY[dtype]))
    return buffer.view(guard, count), whole


def run(
    device, r: Recorded, plan=None, ports: dict | None = None, guard: int = GUARD
) -> dict[str, np.ndarray]:
    """Outputs and written states as arrays; guards and unwritten ports are checked."""
    plan = plan or r.builder.compile()
    contents = {**r.ports, **(ports or {})}
    bindings, wholes = {}, {}
    for port in plan.ports():
        n = int(np.prod(port.shape))
        bindings[port.name], wholes[port.name] = guarded(
            device, str(port.dtype), contents.get(port.name), n, guard
        )
    assert plan.submit(bindings, scalar_values(r)).wait()
    results = {}
    for port in plan.ports():
        size = NUMPY[str(port.dtype)].itemsize
        old, edge = wholes[port.name], guard * size
        whole = bindings[port.name].buffer.read().view(np.uint8)
        changed = np.flatnonzero(whole != old)
        if port.name in r.outputs or port.name in r.written:
            assert not len(changed) or (changed[0] >= edge and changed[-1] < len(whole) - edge), (
                f"{port.name}: bytes outside the bound range were written"
            )
            inner = whole[edge : len(whole) - edge].copy()
            results[port.name] = inner.view(NUMPY[str(port.dtype)]).reshape(tuple(port.shape))
        else:
            assert not len(changed), (
                f"{port.name}: an operand was written at byte {changed[0] - edge}"
            )
    return results


def scalar_values(r: Recorded) -> dict:
    return {name: T.f32(v) if kind == "f32" else T.u32(v) for name, (kind, v) in r.scalars.items()}


def scalar_bits(r: Recorded) -> dict[str, int]:
    return {
        name: int(np.float32(v).view(np.uint32)) if kind == "f32" else int(v)
        for name, (kind, v) in r.scalars.items()
    }


def oracle(r: Recorded, level: str = "f64", ports: dict | None = None) -> dict:
    """{port: (values, budgets or None)} as float64 arrays."""
    contents = {
        name: np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        for name, a in {**r.ports, **(ports or {})}.items()
    }
    return _core.oracle(
        r.builder,
        contents,
        scalar_bits(r),
        level=level,
        budgets=level == "f64",
        backend=r.backend,
    )


# ------------------------------------------------------------------ judging


def equal_bits(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Equal values and signs; a NaN must meet a NaN."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, must be {want.shape}"
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    if not same.all():
        at = tuple(int(i[0]) for i in np.nonzero(~same))
        raise AssertionError(
            f"{what}: {(~same).sum()} of {same.size} differ, first at {at}: "
            f"{got[at]!r} and must be {want[at]!r}"
        )


def within(got: np.ndarray, want: np.ndarray, budget: np.ndarray, what: str) -> float:
    """Every error within its budget; gives the largest share of a budget that was used."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, must be {want.shape}"
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want)
    free = np.isinf(budget)
    special = ~np.isfinite(want)
    ok = np.where(special, (got == want) | (np.isnan(got) & np.isnan(want)), error <= budget) | free
    if not ok.all():
        at = tuple(int(i[0]) for i in np.nonzero(~ok))
        raise AssertionError(
            f"{what}: {(~ok).sum()} of {ok.size} beyond the budget, first at {at}: {got[at]!r} and "
            f"must be {want[at]!r} within {budget[at]:.3g}"
        )
    usual = ~special & ~free & (budget > 0)
    return float((error[usual] / budget[usual]).max()) if usual.any() else 0.0


def judge(bound: str, got: dict, want: dict, what: str) -> float:
    assert got.keys() == want.keys(), f"{what}: {sorted(got)} and must be {sorted(want)}"
    used = 0.0
    for name, (values, budget) in want.items():
        if bound == EXACT:
            equal_bits(got[name], values, f"{what} {name}")
        else:
            used = max(used, within(got[name], values, budget, f"{what} {name}"))
    return used


def assert_not_trivial(results: dict, what: str) -> None:
    for name, values in results.items():
        values = np.asarray(values, np.float64).ravel()
        assert len(values) < 2 or len(np.unique(values[~np.isnan(values)])) > 1, (
            f"{what} {name}: one value everywhere"
        )


def equal_bytes(a: dict, b: dict, what: str) -> None:
    """Bit for bit, NaN payloads left aside."""
    assert a.keys() == b.keys()
    for name in a:
        equal_bits(a[name], b[name], f"{what} {name}")


def kernels_of(plan) -> list[str]:
    return [s.kernel for s in plan.selections()]
