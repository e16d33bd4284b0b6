"""Where the kernels of a PTX text wait for the grids in front of them (specs/017-cuda.md).

A text stays good for every GPU: it has comments where a kernel waits and where the next one may
begin, which the executor makes instructions on devices that have them. Here an entry without such a
comment gets one in front of its first instruction, and what may run before the wait is looked at.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WAIT = "//accel: wait for earlier grids"
START = "//accel: later grids may start"
PARAMS = 27  # the place of the struct of parameters
MEMORY = -1  # of what was read, of whatever place

SEEN = {WAIT: "accel.wait;", START: "accel.start;"}
LABEL = re.compile(r"([$\w]+):\s*")
GUARDED = re.compile(r"@!?[%\w]+\s+")
NAME = re.compile(r"%?[A-Za-z_$][\w$]*(?:\.[xyz]\b)?")
OWN_MEMORY = {"shared", "param", "const", "local"}


class Refused(Exception):
    """What a kernel must not do before it waits."""


class Instruction(NamedTuple):
    text: str
    parts: list[str]  # of the operation: ld, global, f32
    operands: str
    guarded: bool


def marked(entry: str) -> str:
    """A function's text behind `.visible .entry `. Where it says nothing itself: the next kernel
    may start at once, and this one waits before it does anything."""
    if WAIT in entry:
        return entry
    if START in entry:
        raise Refused("lets the next kernel start and does not wait")
    lines = entry.split("\n")
    at = lines.index("{") + 1
    while lines[at].startswith("."):
        at += 1
    return "\n".join([*lines[:at], START, WAIT, *lines[at:]])


def instructions(entry: str) -> tuple[list[Instruction], dict[str, int], dict[str, list[str]]]:
    """In order; where labels stand; and the labels of tables of branches."""
    body = entry[entry.index("\n{") + 2 : entry.rindex("}")]
    for comment, own in SEEN.items():
        body = body.replace(comment, own)
    found, labels, tables = [], {}, {}
    for piece in body.split(";"):
        text = piece.strip()
        label = None
        while True:
            text = text.lstrip("{} \n\t")
            if not (match := LABEL.match(text)):
                break
            label = match[1]
            labels[label] = len(found)
            text = text[match.end() :]
        if text.startswith(".branchtargets"):
            tables[label] = NAME.findall(text)[1:]
        if not text or text.startswith("."):
            continue
        guard = GUARDED.match(text)
        operation, _, operands = (text[guard.end() :] if guard else text).partition(" ")
        found.append(Instruction(text, operation.split("."), operands, bool(guard)))
    return found, labels, tables


def before_wait(entry: str) -> list[Instruction]:
    """What some thread may do before it waits; refuses a way to the end that does not wait."""
    code, labels, tables = instructions(entry)
    todo, seen = [0], set()
    while todo:
        at = todo.pop()
        if at >= len(code):
            raise Refused("ends without a wait")
        if at in seen:
            continue
        one = code[at]
        kind = one.parts[0]
        if one.parts == ["accel", "wait"]:
            if one.guarded:
                raise Refused("waits on a condition")
            continue
        seen.add(at)
        if kind in ("ret", "exit"):
            raise Refused("ends without a wait")
        if kind == "call":
            raise Refused(f"calls before it waits: {one.text}")
        if kind == "bra":
            todo.append(labels[one.operands.strip()])
        if kind == "brx":
            todo += [labels[name] for name in tables[NAME.findall(one.operands)[-1]]]
        if one.guarded or kind not in ("bra", "brx", "trap"):
            todo.append(at + 1)
    return [code[at] for at in sorted(seen)]


def bracketed(operands: str) -> list[str]:
    return re.findall(r"\[([^\]]*)\]", operands)


def read_address(one: Instruction) -> str | None:
    """The address of device memory that an instruction before the wait reads; refuses one that
    writes there, or of which neither is known."""
    places = bracketed(one.operands)
    kind = one.parts[0]
    if not places or OWN_MEMORY & set(one.parts) - ({"shared"} if kind == "cp" else set()):
        return None
    if kind == "cp" and one.parts[1] == "async" and one.parts[-2:] == ["shared", "global"]:
        return places[1]
    if kind in ("ld", "ldu", "prefetch"):
        return places[0]
    if kind == "ldmatrix":
        return None
    raise Refused(f"writes or does what is not known before it waits: {one.text}")


def early_places(function: str, entry: str, places: list[int]) -> set[int]:
    """The places of the operands whose memory the function reads before it waits."""
    code = before_wait(entry)
    origin = {f"{function}_param_{i}": {place} for i, place in enumerate(places)}

    def of(text: str) -> set[int]:
        return set().union(*(origin.get(name, set()) for name in NAME.findall(text)))

    changed = True
    while changed:  # an address may go around a loop
        changed = False
        for one in code:
            operands = one.operands.strip()
            to, _, rest = (
                operands[1:].partition("}") if operands[:1] == "{" else (operands.partition(","))
            )
            sources = of(rest)
            # What stands in memory may be any address: nobody followed it there.
            if one.parts[0].startswith("ld") and not {"param", "const"} & set(one.parts):
                sources = sources | {MEMORY}
            for name in NAME.findall(to):
                known = origin.setdefault(name, set())
                changed |= not sources <= known
                known |= sources
    early: set[int] = set()
    for one in code:
        address = read_address(one)
        if address is None:
            continue
        own = of(address) - {PARAMS}
        if MEMORY in own:
            raise Refused(f"reads before it waits, at an address out of memory: {one.text}")
        if not own:
            raise Refused(f"reads before it waits, from no operand: {one.text}")
        early |= own
    return early
