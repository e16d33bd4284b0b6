"""The errors of accel.llm: the library's own classes, with the fields that their readers expect."""

from __future__ import annotations

import accel


def _fill(error, **fields):
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def format_error(path, message: str):
    """A file that is truncated or corrupt; message names an offset or a tensor."""
    return _fill(accel.FormatError(f"{path}: {message}"), code="format", path=str(path))


def unsupported(message: str):
    return _fill(accel.UnsupportedError(message), code="unsupported")


def attr_error(op: str, operand: str, is_: object, must: str):
    """A mistake of the caller, in the words of every other refusal."""
    message = f"{op}: {operand} is {is_} and must be {must}"
    return _fill(accel.AttrError(message), code="attr", op=op, operand=operand, message=message)


def bind_error(code: str, name: str, message: str):
    problem = accel.Problem(code, name, message)
    return _fill(accel.BindError(message), code=code, problems=[problem])
