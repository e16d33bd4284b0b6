"""The exception classes. Each also derives from the built-in that Python users expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel._types import Diagnostic, Problem, Rejection


class Error(Exception):
    """Base of all errors of accel; ``code`` is a short word for matching."""

    code: str = ""
    op: str = ""
    operand: str = ""
    file: str = ""
    line: int = 0
    message: str = ""
    path: str = ""
    diagnostics: list[Diagnostic] = []
    problems: list[Problem] = []
    requested: int | None = None
    free: int | None = None
    limit: int | None = None


class GraphError(Error):
    """The recorded graph is wrong; ``diagnostics`` holds every mistake with its line."""


class ShapeError(GraphError, ValueError):
    """A wrong rank, shape or count."""


class DTypeError(GraphError, TypeError):
    """A wrong element type."""


class AttrError(GraphError, ValueError):
    """A wrong attribute, name, scalar, missing operand, stale state or output."""


class PlanError(Error):
    """The graph is fine; this device or plan cannot run it."""


class UnsupportedError(PlanError, NotImplementedError):
    """No kernel or capability; ``rejected`` holds each kernel that was tried, and why not."""

    rejected: list[Rejection] = []


class CapacityError(PlanError, MemoryError):
    """Not enough of something: ``requested``, ``free`` and ``limit``."""


class BindError(Error, ValueError):
    """Buffers, arrays or scalars do not fit; ``problems`` lists all."""


class DeviceError(Error, RuntimeError):
    """The driver refused."""


class CompileError(DeviceError):
    """A kernel's source did not compile; ``path`` is its source."""


class DeviceLostError(DeviceError):
    """The device is gone; nothing on it can be used any more."""


class FormatError(Error, ValueError):
    """A checkpoint is truncated or corrupt; ``path`` is the file."""


class InternalError(Error):
    """A defect of the library. Please report it."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "accel"
