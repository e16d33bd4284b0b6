"""Steps that run together, and on pieces of one another: reported, and of equal bits without."""

import accel
import numpy as np
import pytest
from accel import tensor as T

SHAPES = ((1, 64, 48), (1, 576, 1536), (5, 33, 17), (40, 128, 96), (97, 64, 256), (130, 96, 33))


def ports(b, m, k, n, order="kn"):
    x = b.input("x", accel.F32, [m, k])
    shape = [k, n] if order == "kn" else [n, k]
    return x, b.weight("gate", accel.F32, shape), b.weight("up", accel.F32, shape)


def run(builder, threads, fuse, seed=3):
    plan = builder(accel.Runtime(accel.open_cpu(threads=threads, debug_fill=0xFF))).compile(
        fuse=fuse
    )
    rng = np.random.default_rng(seed)
    bound, outputs = {}, {}
    for port in plan.ports():
        if str(port.kind) == "output":
            outputs[port.name] = np.full(port.shape, np.nan, "f4")
        else:
            bound[port.name] = rng.standard_normal(port.shape).astype("f4")
    assert plan.submit(bound | outputs).wait()
    return plan, outputs


def same(builder):
    """The plan with fusing; its outputs equal those without, for one and two threads."""
    _, want = run(builder, 1, False)
    for threads in (1, 2):
        plan, got = run(builder, threads, True)
        for name in want:
            assert got[name].tobytes() == want[name].tobytes(), name
            assert np.isfinite(want[name]).all()
    return plan


def fused(plan):
    return [s.op for s in plan.selections() if "fused: runs on each piece" in s.reason]


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("order", ["kn", "nk"])
def test_a_gated_pair_and_a_residual(m, k, n, order):
    def build(rt):
        b = rt.new_builder("pair")
        x, gate, up = ports(b, m, k, n, order)
        h = T.swiglu(T.matmul(x, gate, w_order=order), T.matmul(x, up, w_order=order))
        down = b.weight("down", accel.F32, [n, k] if order == "kn" else [k, n])
        b.output("y", T.add(x, T.matmul(h, down, w_order=order)))
        return b

    plan = same(build)
    assert fused(plan) == ["swiglu", "add"]
    reasons = [s.reason for s in plan.selections()]
    assert any("matmul of node 1 and matmul of node 2" in reason for reason in reasons)


def test_a_chain_follows_through(m=9, k=40, n=65):
    def build(rt):
        b = rt.new_builder("chain")
        x, gate, up = ports(b, m, k, n)
        g = T.gelu(x @ gate)
        b.output("y", T.sigmoid(T.mul(g, x @ up)))
        return b

    assert fused(same(build)) == ["gelu", "mul", "sigmoid"]


def test_an_operand_from_outside_may_repeat(m=70, k=32, n=48):
    def with_row(rt):
        b = rt.new_builder("row")
        x = b.input("x", accel.F32, [m, k])
        w = b.weight("w", accel.F32, [k, n])
        b.output("y", T.add(x @ w, b.input("row", accel.F32, [n])))
        return b

    assert fused(same(with_row)) == ["add"]


def square(rt, record):
    b = rt.new_builder("square")
    x = b.input("x", accel.F32, [64, 64])
    b.output("y", record(b, x, b.weight("w", accel.F32, [64, 64])))
    return b


NOT_FUSED = {
    "reads another product of the run": lambda b, x, w: T.add(x @ w, (x @ w) @ w),
    "reads a transposed result": lambda b, x, w: T.add(x, T.contiguous(T.transpose(x @ w, 0, 1))),
    "reads one row of the result": lambda b, x, w: T.add(x, T.slice(x @ w, 0, 3, 4)),
    "reads rows as a whole": lambda b, x, w: T.rms_norm(
        x @ w, T.reshape(T.slice(x, 0, 0, 1), [64]), eps=1e-5
    ),
}


@pytest.mark.parametrize("why", NOT_FUSED)
def test_what_is_not_its_own_piece_is_not_fused(why):
    plan = same(lambda rt: square(rt, NOT_FUSED[why]))
    assert "rms_norm" not in fused(plan)
    if why == "reads another product of the run":
        # The second product reads the first, so only the last of the two is followed.
        assert fused(plan) == ["add"]
    else:
        assert fused(plan) == []


def test_memory_of_what_a_piece_still_reads_is_kept():
    """Without the rule of alias, y would take the bytes of the normalised rows."""

    def build(rt):
        b = rt.new_builder("kept")
        x = b.input("x", accel.F32, [48, 64])
        n = T.rms_norm(x, b.weight("gain", accel.F32, [64]), eps=1e-5)
        w, v = b.weight("w", accel.F32, [64, 64]), b.weight("v", accel.F32, [64, 64])
        y = T.swiglu(n @ w, n @ v)
        b.output("y", T.softmax(y @ w))
        return b

    assert fused(same(build)) == ["swiglu"]


@pytest.mark.parametrize("m", [1, 7, 64])
@pytest.mark.parametrize("activations", [None, "int8", "f16", "bf16"])
def test_products_of_one_operand_share_its_packing(m, activations):
    """Of three widths, as queries, keys and values are; and one of another operand beside them."""
    rng = np.random.default_rng(5)
    widths = {"q": 96, "k": 32, "v": 33, "o": 96}
    weights = {
        name: accel.quant.int4_quantize(rng.standard_normal((n, 96)).astype("f4"), 32)
        for name, n in widths.items()
    }

    def build(rt):
        b = rt.new_builder("three")
        x, other = b.input("x", accel.F32, [m, 96]), b.input("other", accel.F32, [m, 96])
        for name, operand in (("q", x), ("k", x), ("v", x), ("o", other)):
            w = b.int4("w" + name, [widths[name], 96], group=32)
            b.output(name, T.int4_matmul(operand, w, w_order="nk", activations=activations))
        return b

    def outputs(threads, fuse):
        plan = build(accel.Runtime(accel.open_cpu(threads=threads, debug_fill=0xFF))).compile(
            fuse=fuse
        )
        data = np.random.default_rng(6)
        bound = {n: data.standard_normal((m, 96)).astype("f4") for n in ("x", "other")}
        found = {}
        for name in ("q", "k", "v", "o"):
            for plane in ("codes", "scales", "zeros"):
                bound[f"w{name}.{plane}"] = getattr(weights[name], plane)
            found[name] = np.full((m, widths[name]), np.nan, "f4")
        assert plan.submit(bound | found).wait()
        return plan, found

    _, want = outputs(1, False)
    for threads in (1, 2):
        plan, got = outputs(threads, True)
        assert all(got[name].tobytes() == want[name].tobytes() for name in want)
    assert "4 steps, 1 barriers, 1 dispatches" in plan.explain()


def test_without_fusing_nothing_is_said_of_it():
    def build(rt):
        b = rt.new_builder("pair")
        x, gate, up = ports(b, 4, 32, 32)
        b.output("y", T.swiglu(x @ gate, x @ up))
        return b

    alone, _ = run(build, 2, False)
    assert fused(alone) == [] and "dispatches" not in alone.explain()
    together, _ = run(build, 2, True)
    assert "3 steps, 2 barriers, 1 dispatches" in together.explain()
    assert together.identity != alone.identity
