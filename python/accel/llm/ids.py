"""Token ids as callers give them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import Any


def ids_of(op: str, operand: str, ids: Any) -> list[int]:
    """The ints of a list, an array or another iterable. Text, bytes, mappings and sets iterate too,
    and mean something else; a bool is no id."""
    if not isinstance(ids, (str, bytes, bytearray, Mapping, Set)):
        try:
            found = list(ids)
            if bool not in set(map(type, found)):
                return [operator.index(i) for i in found]
        except TypeError:
            pass
    raise TypeError(f"{op}: {operand} is {ids!r:.60} and must hold ints")
