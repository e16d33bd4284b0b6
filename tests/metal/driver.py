"""What the emulator offers to tests of the executor, beside Metal itself (emu/metalemu.h)."""

import ctypes
import gc
import os
from functools import cache

import accel
import pytest

if not any(d.backend == "metal" for d in accel.enumerate_devices().devices):
    if os.environ.get("ACCEL_TEST_METAL") == "1":
        raise RuntimeError("ACCEL_TEST_METAL=1: this build holds no Metal backend")
    pytest.skip("this build holds no Metal backend", allow_module_level=True)


@cache
def library() -> ctypes.CDLL:
    accel.enumerate_devices()  # the module brings the emulator along
    lib = ctypes.CDLL("libmetalemu.so")
    lib.metalemu_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint]
    lib.metalemu_fault_text.restype = ctypes.c_char_p
    lib.metalemu_live_text.restype = ctypes.c_char_p
    lib.metalemu_ran_text.restype = ctypes.c_char_p
    for name in ("faults", "archive_hits", "compiles", "dispatches"):
        getattr(lib, f"metalemu_{name}").restype = ctypes.c_long
    return lib


def fail(what: str, nth: int = 1) -> None:
    """The nth call of that kind from now fails; nth = 0: every one."""
    library().metalemu_fail(what.encode(), nth)


def nothing_fails() -> None:
    library().metalemu_fail(None, 0)


def ran(check: bool) -> set[str]:
    """Functions of shaders that ran since the last clear, in check mode or outside of it."""
    return set(library().metalemu_ran_text(int(check)).decode().split())


def live() -> dict[str, int]:
    """Objects that exist, by class."""
    gc.collect()
    lines = library().metalemu_live_text().decode().splitlines()
    return {name: int(n) for name, n in (line.rsplit(" ", 1) for line in lines)}


def count(what: str) -> int:
    """How often something happened so far; emu/metalemu.h says what is counted."""
    counter = getattr(library(), f"metalemu_{what}")
    counter.restype = ctypes.c_long
    return counter()


@pytest.fixture(autouse=True)
def no_faults():
    """The emulator found no misuse of Metal, and nothing is left to fail."""
    lib = library()
    lib.metalemu_clear_faults()
    yield
    nothing_fails()
    assert lib.metalemu_faults() == 0, lib.metalemu_fault_text().decode()
