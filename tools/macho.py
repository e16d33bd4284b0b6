#!/usr/bin/env python3
"""Says whether a file is a shared library for macOS, of which machine, and what it loads.

macho.py FILE --machine arm64|x86_64 --system 14.0 [--needs NAME ...]
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

MACHINES = {0x0100000C: "arm64", 0x01000007: "x86_64"}
MAGIC, DYLIB = 0xFEEDFACF, 6
LOAD_DYLIB, LOAD_WEAK_DYLIB, BUILD_VERSION = 0x0C, 0x80000018, 0x32
MACOS = 1


def read(data: bytes) -> dict:
    """Machine, file type, platform, oldest system and loaded libraries of a 64-bit Mach-O file."""
    magic, machine, _, kind, commands = struct.unpack_from("<5I", data)
    if magic != MAGIC:
        raise ValueError(f"the first word is {magic:#x} and must be {MAGIC:#x}")
    found = {"machine": MACHINES.get(machine, hex(machine)), "kind": kind, "loads": []}
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command in (LOAD_DYLIB, LOAD_WEAK_DYLIB):
            (name,) = struct.unpack_from("<I", data, at + 8)
            text = data[at + name : at + size].split(b"\0")[0].decode()
            found["loads"].append(text.rsplit("/", 1)[-1])
        elif command == BUILD_VERSION:
            platform, oldest = struct.unpack_from("<2I", data, at + 8)
            found["platform"] = platform
            found["system"] = f"{oldest >> 16}.{oldest >> 8 & 0xFF}"
        at += size
    return found


def faults(found: dict, machine: str, system: str, needs: list[str]) -> list[str]:
    wanted = {"machine": machine, "kind": DYLIB, "platform": MACOS, "system": system}
    wrong = [
        f"{key} is {found.get(key)} and must be {value}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    for name in needs:
        if not any(load.split(".")[0] == name for load in found["loads"]):
            wrong.append(f"{name} is not loaded")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--machine", required=True, choices=sorted(MACHINES.values()))
    parser.add_argument("--system", required=True)
    parser.add_argument("--needs", nargs="*", default=[])
    args = parser.parse_args()
    found = read(args.file.read_bytes())
    if wrong := faults(found, args.machine, args.system, args.needs):
        raise SystemExit(f"{args.file}: " + "; ".join(wrong))
    print(f"{args.file}: macOS {found['system']} {found['machine']}, loads", *found["loads"])


if __name__ == "__main__":
    main()
