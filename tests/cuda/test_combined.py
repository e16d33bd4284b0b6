"""One launch for a run of commands has the bits of their own launches, and the report names it."""

import accel
import numpy as np
import pieces
import pytest
from accel import tensor as T
from runner import equal_bytes, run

DEVICES = [d for d in accel.enumerate_devices().devices if d.backend == "cuda"]
if not DEVICES:
    pytest.skip("there is no GPU and no stand-in of one", allow_module_level=True)
PRODUCTS = 5  # runs in pieces.products


def combined(plan) -> set[str]:
    """What the report says, each run once."""
    reasons = [s.reason for s in plan.selections() if "combined:" in s.reason]
    return {reason[reason.index("combined:") :] for reason in reasons}


def same_bits(make, runs: int) -> None:
    device = accel.open_cuda(debug_fill=255)
    runtime = accel.Runtime(device)
    g, plain = make(runtime), make(runtime)
    plan = g.builder.compile()
    assert len(combined(plan)) == runs, combined(plan)
    apart = plain.builder.compile(fuse=False)
    assert not combined(apart)
    want = run(device, plain, apart)
    got = run(device, g, plan)
    equal_bytes(got, want, "one launch a run")
    equal_bytes(run(device, g, plan), want, "again, from other memory")
    checked = accel.open_cuda(debug_fill=255, check=True)
    equal_bytes(run(checked, make(accel.Runtime(checked))), want, "command by command")


@pytest.mark.parametrize("kind", pieces.KINDS)
def test_products_with_what_stands_around_them(kind):
    if not DEVICES[0].limits["group_bytes"]:
        pytest.skip("rings need a GPU; test_cuda_rings_emulated.py holds their bits on the host")
    for size in pieces.sizes(kind):
        for data in ("normal", "special", "large"):
            same_bits(lambda r, s=size, d=data: pieces.products(r, kind, s, d), PRODUCTS)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("shape", [(9, 3, 64), (4, 4, 80), (32, 8, 128)])
def test_rope_and_what_is_written(dtype, shape):
    same_bits(lambda r: pieces.caches(r, dtype, *shape), 1)


def test_other_bindings_reach_a_combined_launch():
    """Each port of a run, bound anew alone, changes what the next run of the same plan gives."""
    device = accel.open_cuda(debug_fill=255)
    runtime = accel.Runtime(device)
    g = pieces.caches(runtime, "f16")
    plan = g.builder.compile()
    bound = {name: device.buffer(a) for name, a in g.ports.items()}
    bound["turned"] = device.buffer(np.zeros_like(g.ports["q"]))
    scalars = {"base": T.f32(10000.0)}
    assert plan.submit(bound, scalars).wait()
    first = {name: b.read() for name, b in bound.items()}
    for name in ("q", "k", "v", "at"):
        other = dict(bound)
        changed = g.ports[name] + 1
        other[name] = device.buffer(changed)
        assert plan.submit(other, scalars).wait()
        fresh = pieces.caches(runtime, "f16")
        fresh.ports |= {name: changed, "keys": first["keys"].reshape(g.ports["keys"].shape),
                        "values": first["values"].reshape(g.ports["keys"].shape)}  # fmt: skip
        want = run(device, fresh, fresh.builder.compile(fuse=False))
        got = {p: other[p].read().reshape(want[p].shape) for p in want}
        equal_bytes(got, want, f"another {name}")
        for p in ("keys", "values"):
            bound[p].write(first[p])


def test_a_checked_device_says_that_it_launches_command_by_command():
    device = accel.open_cuda(check=True)
    assert not combined(pieces.caches(accel.Runtime(device), "f16").builder.compile())


def test_explain_marks_the_steps_of_a_run():
    g = pieces.caches(accel.Runtime(accel.open_cuda()), "f16")
    text = g.builder.compile().explain()
    assert text.count("   &") + text.count("  |&") == 5 and "1 runs of steps" in text
