"""The emulated Metal device from Python: messages by their selectors, through objc_msgSend.

lib = load()                      # builds the library when it is stale
with lib.pool():
    run = Run(lib, source)
    run.dispatch("kernel", [array, array], groups=4, threads=32)
"""

import contextlib
import ctypes
import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("METALEMU_BUILD", ROOT / "build" / "metal"))
CXX = os.environ.get("MSLEMU_CXX", "clang++-19")
P, U = ctypes.c_void_p, ctypes.c_size_t
UNTRACKED, MANAGED, PRIVATE = 0x100, 0x10, 0x20
SERIAL, CONCURRENT = 0, 1
COMPLETED, ERROR = 4, 5


class Size(ctypes.Structure):
    _fields_ = [("w", U), ("h", U), ("d", U)]


class Range(ctypes.Structure):
    _fields_ = [("location", U), ("length", U)]


class Block(ctypes.Structure):
    _fields_ = [
        ("isa", P),
        ("flags", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("invoke", P),
        ("descriptor", P),
    ]


def available() -> bool:
    """Whether what builds the emulator is installed."""
    if shutil.which(CXX) is None or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    probe = [CXX, "-x", "c++", "-", "-fblocks", "-lBlocksRuntime", "-o", "/dev/null"]
    code = "int main() { int x = 1; int (^f)() = ^{ return x; }; return f(); }"
    return subprocess.run(probe, input=code, text=True, capture_output=True).returncode == 0


@functools.cache
def load() -> "Emulator":
    build = subprocess.run(
        [HERE / "build.sh", BUILD],
        env=os.environ | {"CXX": CXX},
        capture_output=True,
        text=True,
    )
    assert build.returncode == 0, build.stderr
    return Emulator(BUILD / "libmetalemu.so")


def argument(value):
    """A ctypes value: objects and None are pointers, integers words, str an NSString."""
    if value is None or isinstance(value, ctypes.Structure | ctypes._SimpleCData):
        return P(None) if value is None else value
    if isinstance(value, bool):
        return ctypes.c_bool(value)
    if isinstance(value, int):
        return ctypes.c_uint64(value & (1 << 64) - 1)
    if isinstance(value, float):
        return ctypes.c_double(value)
    if isinstance(value, np.ndarray):
        return P(value.ctypes.data)
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    return value


class MetalError(Exception):
    def __init__(self, text, domain, code, encoders=()):
        super().__init__(text)
        self.domain, self.code, self.encoders = domain, code, encoders


class Emulator:
    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(str(path))
        for name, result in (
            ("sel_registerName", P),
            ("objc_lookUpClass", P),
            ("MTLCreateSystemDefaultDevice", P),
            ("MTLCopyAllDevices", P),
            ("objc_autoreleasePoolPush", P),
            ("metalemu_fault_text", ctypes.c_char_p),
            ("metalemu_live_text", ctypes.c_char_p),
            *((f"metalemu_{n}", ctypes.c_long) for n in ("faults", "live", "archive_hits")),
            *((f"metalemu_{n}", ctypes.c_long) for n in ("compiles", "dispatches")),
        ):
            getattr(lib, name).restype = result
        self.send = ctypes.cast(lib.objc_msgSend, P).value
        self.send_float = ctypes.cast(lib.objc_msgSend_fpret, P).value
        self.selectors = {}
        self.kept = []  # blocks stay where the emulator may call them

    # ---- messages

    def selector(self, name):
        if name not in self.selectors:
            self.selectors[name] = self.lib.sel_registerName(name.encode())
        return self.selectors[name]

    def msg(self, receiver, selector, *values, returns=P):
        values = [self.string(v) if isinstance(v, str) else v for v in values]
        sent = [argument(v) for v in values]
        types = [type(v) for v in sent]
        address = self.send_float if returns in (ctypes.c_double, ctypes.c_float) else self.send
        call = ctypes.CFUNCTYPE(returns, P, P, *types)(address)
        return call(receiver, self.selector(selector), *sent)

    def cls(self, name):
        return self.lib.objc_lookUpClass(name.encode())

    def string(self, text):
        return P(
            self.msg(
                self.cls("NSString"),
                "stringWithCString:encoding:",
                ctypes.c_char_p(text.encode()),
                4,
            )
        )

    def text(self, string):
        return self.msg(string, "UTF8String", returns=ctypes.c_char_p).decode() if string else None

    def new(self, name):
        return self.msg(self.msg(self.cls(name), "alloc"), "init")

    pointer, size = P, Size

    def array(self, objects):
        held = (P * len(objects))(*objects)
        return P(
            self.msg(
                self.cls("NSArray"), "arrayWithObjects:count:", ctypes.cast(held, P), len(objects)
            )
        )

    def release(self, *objects):
        for o in objects:
            self.msg(o, "release", returns=None)

    def block(self, function, *types):
        """A block without captures around a Python function."""
        call = ctypes.CFUNCTYPE(None, P, *types)(lambda _, *a: function(*a))
        descriptor = (U * 2)(0, ctypes.sizeof(Block))
        isa = ctypes.addressof(P.in_dll(self.lib, "_NSConcreteGlobalBlock"))
        made = Block(
            isa, 1 << 28, 0, ctypes.cast(call, P), ctypes.cast(ctypes.pointer(descriptor), P)
        )
        self.kept += [call, descriptor, made]
        return P(ctypes.addressof(made))

    @contextlib.contextmanager
    def pool(self):
        token = self.lib.objc_autoreleasePoolPush()
        try:
            yield
        finally:
            self.lib.objc_autoreleasePoolPop(P(token))

    def with_error(self, receiver, selector, *values, returns=P):
        """A message whose last argument is NSError**; raises what it reports."""
        error = P()
        out = self.msg(receiver, selector, *values, P(ctypes.addressof(error)), returns=returns)
        if not out:
            raise self.error(error) if error else MetalError("no object and no error", "", 0)
        return out

    def error(self, e):
        return MetalError(
            self.text(self.msg(e, "localizedDescription")),
            self.text(self.msg(e, "domain")),
            self.msg(e, "code", returns=ctypes.c_long),
        )

    # ---- the emulator itself

    def mode(self, check=False, seed=1, family=8, os=15, grace=3):
        self.lib.metalemu_set_check(int(check))
        self.lib.metalemu_set_seed(seed)
        self.lib.metalemu_set_family(family)
        self.lib.metalemu_set_os(os)
        self.lib.metalemu_set_grace(grace)

    def fail(self, what, nth=1):
        self.lib.metalemu_fail(what.encode() if what else None, nth)

    def faults(self):
        return self.lib.metalemu_fault_text().decode()

    def taken(self):
        """The faults so far, which are then forgotten: a test that expects them looks at these."""
        text = self.faults()
        self.lib.metalemu_clear_faults()
        return text

    def clear(self):
        self.lib.metalemu_clear_faults()
        self.fail(None, 0)

    def live(self, name):
        return self.lib.metalemu_live(name.encode())

    # ---- Metal

    def device(self):
        return self.lib.MTLCreateSystemDefaultDevice()

    def library(self, device, source, fast=False, version=0x30001):
        options = self.new("MTLCompileOptions")
        self.msg(options, "setFastMathEnabled:", fast, returns=None)
        self.msg(options, "setLanguageVersion:", version, returns=None)
        try:
            return self.with_error(
                device, "newLibraryWithSource:options:error:", source, P(options)
            )
        finally:
            self.release(options)

    def function(self, library, name, constants=None):
        if constants is None:
            f = self.msg(library, "newFunctionWithName:", name)
            if not f:
                raise MetalError(f"no function {name}", "", 0)
            return f
        values = self.new("MTLFunctionConstantValues")
        for index, v in constants.items():
            kind, data = (
                (53, np.array([v], np.bool_)) if isinstance(v, bool) else (29, np.int32([v]))
            )
            self.msg(values, "setConstantValue:type:atIndex:", data, kind, index, returns=None)
        selector = "newFunctionWithName:constantValues:error:"
        try:
            return self.with_error(library, selector, name, P(values))
        finally:
            self.release(values)

    def pipeline(self, device, function):
        return self.with_error(device, "newComputePipelineStateWithFunction:error:", P(function))

    def contents(self, buffer, dtype=np.uint8):
        address = self.msg(buffer, "contents")
        length = self.msg(buffer, "length", returns=U)
        raw = (ctypes.c_uint8 * length).from_address(address)
        return np.frombuffer(raw, dtype)

    def buffer(self, device, data, options=0):
        """Of an array's bytes, or of so many."""
        length = data if isinstance(data, int) else data.nbytes
        b = self.msg(device, "newBufferWithLength:options:", length, options)
        if b and not isinstance(data, int):
            self.contents(b)[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return b


class Run:
    """One source on one queue; everything that it made is released by close()."""

    def __init__(self, emu, source=None, **options):
        self.e = emu
        self.device = emu.device()
        self.queue = emu.msg(self.device, "newCommandQueue")
        self.made, self.pipelines = [], {}
        self.library = emu.library(self.device, source, **options) if source else None

    def close(self):
        self.e.release(*self.made, *self.pipelines.values(), self.library, self.queue, self.device)

    def pipeline(self, name, constants=None):
        key = (name, repr(constants))
        if key not in self.pipelines:
            f = self.e.function(self.library, name, constants)
            self.pipelines[key] = self.e.pipeline(self.device, f)
            self.e.release(f)
        return self.pipelines[key]

    def buffer(self, data, options=0):
        self.made.append(self.e.buffer(self.device, data, options))
        return self.made[-1]

    def new(self, selector):
        self.made.append(self.e.msg(self.device, selector))
        return self.made[-1]

    def commands(self, unretained=False):
        return Commands(self, unretained)

    def dispatch(self, name, arguments, groups, threads, constants=None, memory=0):
        """Arrays are bound in order and written back; bytes are set."""
        c = self.commands()
        bound = [a if isinstance(a, bytes) else self.buffer(a) for a in arguments]
        with c.compute() as e:
            e.dispatch(name, bound, groups, threads, constants, memory)
        c.finish()
        for a, b in zip(arguments, bound, strict=True):
            if not isinstance(a, bytes):
                a.reshape(-1).view(np.uint8)[:] = self.e.contents(b)


class Commands:
    def __init__(self, run, unretained):
        self.run, self.e = run, run.e
        how = "commandBufferWithUnretainedReferences" if unretained else "commandBuffer"
        self.it = self.e.msg(run.queue, how)

    def compute(self, kind=SERIAL):
        return Compute(self, self.e.msg(self.it, "computeCommandEncoderWithDispatchType:", kind))

    def signal(self, event, value):
        self.e.msg(self.it, "encodeSignalEvent:value:", P(event), value, returns=None)

    def wait_for(self, event, value):
        self.e.msg(self.it, "encodeWaitForEvent:value:", P(event), value, returns=None)

    def commit(self):
        self.e.msg(self.it, "commit", returns=None)

    def wait(self):
        self.e.msg(self.it, "waitUntilCompleted", returns=None)
        return self.e.msg(self.it, "status", returns=U)

    def finish(self):
        self.commit()
        return self.wait()


class Compute:
    def __init__(self, commands, it):
        self.commands, self.e, self.it = commands, commands.e, it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.send("endEncoding")

    def send(self, selector, *values):
        self.e.msg(self.it, selector, *values, returns=None)

    def dispatch(self, name, bound, groups, threads, constants=None, memory=0):
        self.send("setComputePipelineState:", P(self.commands.run.pipeline(name, constants)))
        for i, b in enumerate(bound):
            if isinstance(b, bytes):
                self.send("setBytes:length:atIndex:", b, len(b), i)
            else:
                self.send("setBuffer:offset:atIndex:", P(b), 0, i)
        if memory:
            self.send("setThreadgroupMemoryLength:atIndex:", memory, 0)
        g, t = ((v, 1, 1) if isinstance(v, int) else v for v in (groups, threads))
        self.send("dispatchThreadgroups:threadsPerThreadgroup:", Size(*g), Size(*t))

    def barrier(self):
        self.send("memoryBarrierWithScope:", 1)

    def update(self, fence):
        self.send("updateFence:", P(fence))

    def wait(self, fence):
        self.send("waitForFence:", P(fence))
