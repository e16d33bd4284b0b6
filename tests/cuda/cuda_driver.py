"""What the stand-in of NVIDIA's driver offers to tests of the executor (fake/fakecuda.h)."""

import contextlib
import ctypes
import gc
import os
import time
from functools import cache

import accel
import pytest

OUT_OF_MEMORY, ILLEGAL_ADDRESS, INVALID_VALUE, INVALID_CONTEXT = 2, 700, 1, 201


@cache
def library() -> ctypes.CDLL:
    """The library that accel has loaded; without the stand-in the tests are left out."""
    if not any(d.backend == "cuda" for d in accel.enumerate_devices().devices):
        if os.environ.get("ACCEL_TEST_CUDA") == "1":
            raise RuntimeError("ACCEL_TEST_CUDA=1: there is no GPU and no stand-in of one")
        pytest.skip("there is no GPU and no stand-in of one", allow_module_level=True)
    lib = ctypes.CDLL("libcuda.so.1")
    if not hasattr(lib, "fakecuda_fail"):
        pytest.skip("this is a GPU's own driver, which fails for nobody", allow_module_level=True)
    lib.fakecuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_int]
    lib.fakecuda_calls.argtypes = [ctypes.c_char_p]
    for name in ("calls", "faults"):
        getattr(lib, f"fakecuda_{name}").restype = ctypes.c_long
    for name in ("live", "fault", "failed", "ran", "module"):
        getattr(lib, f"fakecuda_{name}_text").restype = ctypes.c_char_p
    return lib


@cache
def emulator() -> ctypes.CDLL:
    """What runs the kernels (tests/metal/emu/metalemu.h)."""
    library()
    lib = ctypes.CDLL("libmetalemu.so")
    lib.metalemu_fault_text.restype = ctypes.c_char_p
    lib.metalemu_faults.restype = ctypes.c_long
    return lib


def fail(function: str, nth: int = 1, code: int = INVALID_VALUE) -> None:
    """The nth call of that function from now fails; nth = 0: every one."""
    library().fakecuda_fail(function.encode(), nth, code)


def nothing_fails() -> None:
    library().fakecuda_fail(None, 0, 0)


def failed() -> list[str]:
    """The functions that failed since the last fail()."""
    return library().fakecuda_failed_text().decode().split()


def calls(function: str) -> int:
    return library().fakecuda_calls(function.encode())


def live() -> dict[str, int]:
    """Objects of the driver that exist, by kind."""
    gc.collect()
    accel.enumerate_devices()  # a call from Python drops what submissions held
    lines = library().fakecuda_live_text().decode().splitlines()
    return {name: int(n) for name, n in (line.rsplit(" ", 1) for line in lines)}


def until(condition, seconds=20.0):
    """Waits for what another thread is about to do."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


@contextlib.contextmanager
def held():
    """No launch begins on any stream inside, nor what is queued behind one."""
    library().fakecuda_hold(1)
    try:
        yield
    finally:
        library().fakecuda_hold(0)


def end_at_query(nth: int) -> None:
    """Launches wait for the nth look at an event that has not passed, which waits for its event."""
    library().fakecuda_end_at_query(nth)


@pytest.fixture(autouse=True)
def no_faults():
    """Neither the interface nor the memory was misused, and nothing is left to fail."""
    lib, emu = library(), emulator()
    lib.fakecuda_clear_faults()
    emu.metalemu_clear_faults()
    yield
    nothing_fails()
    lib.fakecuda_end_at_query(0)
    assert lib.fakecuda_faults() == 0, lib.fakecuda_fault_text().decode()
    assert emu.metalemu_faults() == 0, emu.metalemu_fault_text().decode()
