"""Operands that end, and operands that begin, where memory ends: no kernel reads or writes a byte
beyond what it was given, at any element-aligned address (CONTRACT 3.6). A device that takes no
memory of the host gets buffers of just that size."""

import ctypes
import mmap

import numpy as np
import pytest
from conftest import open_runtime
from placing import submit_arrays
from runner import equal_bytes, record, run, scalar_values
from test_rows import IDS, POINTS, generator
from values import NUMPY

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)


class Fenced:
    """Pages between two that may not be touched."""

    def __init__(self, size: int):
        self.pages = -(-size // PAGE) or 1
        self.map = mmap.mmap(-1, (self.pages + 2) * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for fence in (address, address + (self.pages + 1) * PAGE):
            if libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def array(self, dtype: np.dtype, count: int, at_end: bool) -> np.ndarray:
        room = self.pages * PAGE - count * dtype.itemsize
        return np.frombuffer(self.map, dtype, count, PAGE + (room if at_end else 0))


def run_fenced(device, r, plan, at_end: bool) -> dict[str, np.ndarray]:
    bound = {}
    for port in plan.ports():
        dtype, n = NUMPY[str(port.dtype)], int(np.prod(port.shape))
        array = Fenced(n * dtype.itemsize).array(dtype, n, at_end)
        if port.name in r.ports:
            array[:] = r.ports[port.name].reshape(-1)
        bound[port.name] = array
    assert submit_arrays(device, plan, bound, scalar_values(r))
    names = [*r.outputs, *r.written]
    shapes = {port.name: tuple(port.shape) for port in plan.ports()}
    return {name: bound[name].reshape(shapes[name]) for name in names}


@pytest.mark.parametrize(("case", "point"), POINTS, ids=IDS)
def test_no_byte_beyond_an_operand_is_touched(case, point, isa):
    runtime = open_runtime(isa)
    r = record(runtime, case.op, point, generator(case, point))
    plan = r.builder.compile()
    want = run(runtime.device, r, plan)
    for at_end in (True, False):
        equal_bytes(run_fenced(runtime.device, r, plan, at_end), want, f"{case.op} {point}")


def test_the_fence_holds():
    """A child that reads one element beyond dies of it."""
    import subprocess
    import sys

    code = (
        "import ctypes, numpy as np, test_page_edges as t\n"
        "a = t.Fenced(64).array(np.dtype(np.float32), 16, True)\n"
        "print(a[15], flush=True)\n"
        "ctypes.c_float.from_address(a.ctypes.data + 64).value\n"
        "print('alive')\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + code],
        capture_output=True,
        text=True,
    )
    # A sanitizer catches the signal, reports it and exits.
    died = child.returncode < 0 or "AddressSanitizer: SEGV" in child.stderr
    assert died and child.stdout == "0.0\n"
