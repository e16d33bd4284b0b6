"""Nodes of a graph that overlap, on the stand-in of the driver: which do, who is told where none
does, and that a kernel which does not wait is found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import accel
import pytest
from accel import tensor as T
from cuda_driver import (  # noqa: F401
    INVALID_VALUE,
    OUT_OF_MEMORY,
    calls,
    emulator,
    fail,
    library,
    live,
    no_faults,
    nothing_fails,
)
from overlap import overlapped
from test_executor import ROWS, WIDTH, bindings, bits, data, expected, norms

library()


def edges(call):
    """How many programmatic edges a call adds."""
    before = calls("cuGraphAddDependencies")
    call()
    return calls("cuGraphAddDependencies") - before


def branches(runtime):
    """A norm, five that read it, and a chain of sums."""
    b = runtime.new_builder("branches")
    x = b.input("x", accel.F32, [ROWS, WIDTH])
    x = T.rms_norm(x, b.weight("gain", accel.F32, [WIDTH]), eps=1e-5)
    parts = [op(x) for op in (T.exp, T.tanh, T.sigmoid, T.silu, T.softplus)]
    total = parts[0]
    for part in parts[1:]:
        total = T.add(total, part)
    b.output("y", total)
    return b.compile(fuse=False)


@pytest.mark.parametrize("serial", [False, True])
def test_a_node_behind_one_other_begins_beside_it(serial):
    runtime = accel.Runtime(accel.open_cuda(serial=serial))
    assert edges(lambda: norms(runtime, times=4)) == 3
    # Behind one: the five, and three of the sums. The first sum is behind five nodes.
    assert edges(lambda: branches(runtime)) == (9 if serial else 8)
    plain = accel.Runtime(accel.open_cuda(serial=serial, overlap=False))
    assert plain.device.notes == ()
    assert edges(lambda: branches(plain)) == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_a_kernel_s_text_has_instructions_where_nodes_overlap(overlap):
    library().fakecuda_module_text()
    norms(accel.Runtime(accel.open_cuda(overlap=overlap)))
    text = library().fakecuda_module_text().decode()
    assert text.startswith(f".version {'7.8' if overlap else '7.0'}\n.target sm_")
    assert ("griddepcontrol.wait;" in text) == overlap == ("//accel" not in text)
    norms(accel.Runtime(accel.open_cuda(overlap=False)))
    plain = library().fakecuda_module_text().decode()
    assert "ld.global.nc" in plain
    assert text == (overlapped(plain) if overlap else plain)


@pytest.fixture
def forgotten():
    """Modules are loaded as if their kernels did not wait."""
    library().fakecuda_forget_waits(1)
    emulator().metalemu_set_check(1)
    yield
    library().fakecuda_forget_waits(0)
    emulator().metalemu_set_check(0)


def test_a_kernel_that_does_not_wait_is_found(forgotten):
    device = accel.open_cuda()
    plan, bound = norms(accel.Runtime(device), times=3), bindings(device, data())
    faults = library().fakecuda_fault_text().decode()
    assert "rms_norm_f32 has a programmatic edge and does not wait" in faults
    library().fakecuda_set_order(2)
    assert plan.submit(bound).wait()
    library().fakecuda_set_order(1)
    assert "race" in emulator().metalemu_fault_text().decode()
    assert bits(bound["y"].read()) != bits(expected(data(), 3))
    library().fakecuda_clear_faults()
    emulator().metalemu_clear_faults()


OVERLAP = """
import ctypes, json, accel, numpy as np
from accel import tensor as T
device = accel.open_cuda()
lib = ctypes.CDLL("libcuda.so.1")
lib.fakecuda_calls.argtypes, lib.fakecuda_calls.restype = [ctypes.c_char_p], ctypes.c_long
lib.fakecuda_fault_text.restype = ctypes.c_char_p
def plan(record):
    before = lib.fakecuda_calls(b"cuGraphAddDependencies")
    b = accel.Runtime(device).new_builder("p")
    b.output("y", record(b))
    plan = b.compile(fuse=False)
    ports = {p.name: device.new_buffer(p.dtype, int(np.prod(p.shape))) for p in plan.ports()}
    assert plan.submit(ports).wait()
    return lib.fakecuda_calls(b"cuGraphAddDependencies") - before, plan.explain()
def product(b, x, w):
    return T.matmul(x, w, w_order="nk")
row = lambda b: b.input("x", accel.F32, [1, 2048])
weight = lambda b: b.weight("w", accel.F32, [64, 2048])
def written(b):
    w = T.exp(weight(b))
    b.output("w2", w)
    return product(b, row(b), w)
found = {
    "bound": plan(lambda b: product(b, T.exp(row(b)), weight(b))),
    "computed": plan(lambda b: product(b, row(b), T.exp(weight(b)))),
    "written": plan(written),
}
print(json.dumps([found, [list(n) for n in device.notes], device.info.capabilities,
                  lib.fakecuda_fault_text().decode()]))
"""


def overlap_of(**variables):
    done = subprocess.run(
        [sys.executable, "-c", OVERLAP], env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_ring_whose_weight_the_plan_writes_does_not_begin_early():
    found, notes, _, faults = overlap_of(FAKECUDA_GROUP_BYTES="232448")
    assert all("matmul_nk_f32_f32_ring" in text for _, text in found.values()) and not faults
    assert {name: n for name, (n, _) in found.items()} == {"bound": 1, "computed": 0, "written": 0}
    assert notes == []
    # The plain row of the same product reads nothing before it waits.
    found, *_ = overlap_of()
    assert {name: n for name, (n, _) in found.items()} == {"bound": 1, "computed": 1, "written": 1}


@pytest.fixture
def older(tmp_path):
    """The stand-in without the function that CUDA 12.3 brought."""
    (path,) = (p for p in os.environ["LD_LIBRARY_PATH"].split(":") if p.endswith("/cuda"))
    text = Path(path, "libcuda.so.1").read_bytes()
    name = b"cuGraphAddDependencies_v2\0"
    assert text.count(name) >= 1
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "libcuda.so.1").write_bytes(text.replace(name, b"x" + name[1:]))
    (tmp_path / "libmetalemu.so").symlink_to(os.path.realpath(f"{path}/../libmetalemu.so"))
    return {"LD_LIBRARY_PATH": f"{tmp_path}/cuda"}


@pytest.mark.parametrize("because", ["sm_86", "CUDA 12.2", "cuGraphAddDependencies_v2"])
def test_plain_edges_are_told_where_nodes_cannot_overlap(because, older):
    variables = {"sm_86": {"FAKECUDA_CAPABILITY": "86"}, "CUDA 12.2": {"FAKECUDA_DRIVER": "12020"}}
    found, notes, capabilities, faults = overlap_of(**variables.get(because, older))
    assert [n for n, _ in found.values()] == [0, 0, 0] and not faults
    ((backend, stage, why),) = notes
    assert (backend, stage) == ("cuda", "overlap") and because in why
    assert "overlap" not in capabilities


def edge_fails(code, error):
    device = accel.open_cuda()
    fail("cuGraphAddDependencies", 2, code)
    with pytest.raises(error):
        norms(accel.Runtime(device), times=4)
    nothing_fails()
    assert edges(lambda: norms(accel.Runtime(device), times=4)) == 3


@pytest.mark.parametrize(
    ("code", "error"),
    [(INVALID_VALUE, accel.DeviceError), (OUT_OF_MEMORY, accel.CapacityError)],
)
def test_an_edge_that_fails_leaves_nothing_alive(code, error):
    assert live() == {}
    edge_fails(code, error)
    assert live() == {}
