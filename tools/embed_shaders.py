#!/usr/bin/env python3
"""Write the shader texts of shaders/*.metal as C++ data: one flattened text a file, which file
holds each function, and a digest over all of it.

    embed_shaders.py --out <file.inc> [--cxx <compiler>]
    embed_shaders.py --texts <folder>          the flattened texts as files, for a compiler

An #include "..." is resolved here, once a text where the header says so, with #line in front, so
that the shader compiler's messages name the file and the line of the tree. Names of functions are
read from the preprocessed text, because some are made by macros.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "shaders"
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SYSTEM = re.compile(r"\s*#\s*include\s+<[^>]+>.*")
ONCE = re.compile(r"\s*#\s*pragma\s+once\b")
HOST_NAME = re.compile(r'host_name\s*\(\s*((?:"[^"]*"\s*)+)\)')
PLAIN = re.compile(r"(?:\[\[kernel\]\]|\bkernel)\s+void\s+(\w+)\s*\(")
LANGUAGE = "310"


def flatten(name: str, seen: set[str]) -> list[str]:
    """The lines of a file below shaders/ with its includes in their places."""
    lines = (ROOT / name).read_text().splitlines()
    if any(ONCE.match(line) for line in lines):
        if name in seen:
            return []
        seen.add(name)
    out = [f'#line 1 "{name}"']
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            beside = (Path(name).parent / match[1]).as_posix()
            found = match[1] if (ROOT / match[1]).is_file() else beside
            out += [*flatten(found, seen), f'#line {number + 1} "{name}"']
        else:
            out.append("" if ONCE.match(line) else line)
    return out


def functions_of(text: str, cxx: str) -> list[str]:
    """Names under which the host finds the kernels of a text."""
    bare = "\n".join("" if SYSTEM.match(line) else line for line in text.splitlines())
    command = [cxx, "-E", "-P", "-x", "c++", f"-D__METAL_VERSION__={LANGUAGE}", "-"]
    done = subprocess.run(command, input=bare, text=True, capture_output=True, check=True)
    names = ["".join(re.findall(r'"([^"]*)"', m[1])) for m in HOST_NAME.finditer(done.stdout)]
    for match in PLAIN.finditer(done.stdout):
        if not done.stdout[: match.start()].rstrip().endswith((">", "]")):
            names.append(match[1])
    return names


def quoted(text: str) -> str:
    """A raw string, in pieces that every compiler takes."""
    pieces = [text[i : i + 12000] for i in range(0, len(text), 12000)]
    return "\n".join(f'R"~~({piece})~~"' for piece in pieces)


def flattened() -> list[tuple[str, str]]:
    """Name and text of every shader file."""
    names = [path.name for path in sorted(ROOT.glob("*.metal"))]
    return [(name, "\n".join(flatten(name, set())) + "\n") for name in names]


def embedded(cxx: str) -> str:
    texts, functions = flattened(), {}
    for file, (name, text) in enumerate(texts):
        for function in functions_of(text, cxx):
            if function in functions:
                raise SystemExit(f"{name}: function {function} stands twice")
            functions[function] = file
    digest = hashlib.sha256(b"accel.shaders.1\n")
    for name, text in texts:
        digest.update(f"{name} {len(text)}\n{text}".encode())
    rows = [f'{{"{name}",\n{quoted(text)}}},' for name, text in texts]
    names = [f'{{"{name}", {file}}},' for name, file in sorted(functions.items())]
    return "\n".join(
        [
            "// Written by tools/embed_shaders.py.",
            "static const Shader kShaders[] = {",
            *rows,
            "};",
            "static const ShaderFunction kFunctions[] = {",
            *names,
            "};",
            f'static const char kDigest[] = "{digest.hexdigest()}";',
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--texts", type=Path)
    parser.add_argument("--cxx", default="c++")
    args = parser.parse_args()
    if args.texts:
        args.texts.mkdir(parents=True, exist_ok=True)
        for name, text in flattened():
            (args.texts / name).write_text(text)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(embedded(args.cxx))


if __name__ == "__main__":
    main()
