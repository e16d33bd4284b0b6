"""The tree as the rule tests see it: its files, and C++ functions with their lengths."""

import ast
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", "build", "dist", "results", "__pycache__"}
HIDDEN = (".venv", "build", ".pytest", ".hypothesis", ".mypy", ".ruff", ".cache")
CODE = (".h", ".cc", ".inl", ".inc", ".metal", ".cu", ".py")
TEXT = (*CODE, ".pyi", ".md", ".toml", ".yml", ".sh")

NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r'|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"'  # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # characters, but no digit separators
    r"|^[ \t]*#(?:\\\n|[^\n])*",  # preprocessor lines with their continuations
    re.S | re.M,
)


def files(*suffixes: str, under: str = "") -> list[Path]:
    """Files of the tree with one of the suffixes, sorted; build outputs are left out."""
    found = []
    for folder, names, leaves in os.walk(ROOT / under):
        names[:] = [n for n in names if not hidden(Path(n))]
        found += [Path(folder) / leaf for leaf in leaves if Path(leaf).suffix in suffixes]
    return sorted(found)


def every_file() -> list[Path]:
    """What the repository holds; in a source archive, all that is there."""
    git = ["git", "-C", ROOT, "ls-files", "-z"]
    try:
        listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [p for p in ROOT.rglob("*") if p.is_file() and not hidden(p.relative_to(ROOT))]
    return [ROOT / path for path in listed.split("\0")[:-1] if (ROOT / path).is_file()]


def hidden(path: Path) -> bool:
    return any(part in SKIPPED or part.startswith(HIDDEN) for part in path.parts)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blank_text(source: str) -> str:
    """C++ source with comments, literals and preprocessor lines blanked, line breaks kept."""
    return NO_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)


def cpp_functions(source: str) -> list[tuple[str, int, int]]:
    """(name, first line, number of lines) of every function body outside other functions."""
    text = blank_text(source)
    found, stack, head_start = [], [], 0
    for i, c in enumerate(text):
        if c == "{":
            head = text[head_start:i]
            inside = any(kind == "function" for kind, _, _ in stack)
            kind = "other" if inside else scope_of(head)
            line = text.count("\n", 0, head_start + len(head) - len(head.lstrip())) + 1
            stack.append((kind, function_name(head), line))
            if kind != "other":
                head_start = i + 1
        elif c == "}":
            kind, title, line = stack.pop() if stack else ("other", "", 0)
            if kind == "function":
                found.append((title, line, text.count("\n", 0, i) + 1 - line + 1))
            if kind != "other":
                head_start = i + 1
        elif c == ";" and not in_parentheses(text[head_start:i]):
            head_start = i + 1
    return found


def in_parentheses(head: str) -> bool:
    return head.count("(") > head.count(")")


def scope_of(head: str) -> str:
    """What a brace opens, from the text since the last statement."""
    flat = re.sub(r"\s+", " ", head).strip()
    if re.search(r"\b(namespace|extern)\b[^(]*$", flat):
        return "scope"
    if re.search(r"\b(class|struct|union|enum)\b[^()=]*$", flat):
        return "scope"
    if "(" in flat and not re.search(r"[^=!<>]=[^=]", flat.split("(")[0]):
        # A body, unless the brace initialises a member: `: a_{1}` or `, b_{2}`.
        return "other" if re.search(r"[:,]\s*\w+$", flat) and ")" in flat else "function"
    return "other"


def function_name(head: str) -> str:
    found = re.search(r"([\w~:]+|operator[^\s(]+)\s*\(", head)
    return found.group(1) if found else ""


def python_functions(source: str) -> list[tuple[str, int, int]]:
    return [
        (node.name, node.lineno, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
