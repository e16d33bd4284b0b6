#!/usr/bin/env python3
"""Write what follows from the op table: python/accel/tensor.py, python/accel/_core.pyi,
docs/operators.md and cpp/graph/operators.h. With --check nothing is written and a stale file fails.

    python tools/generate.py [--check]

Needs the built module: installed, or on PYTHONPATH.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
import textwrap
from pathlib import Path

from operators_h import operators_h

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "tools" / "templates"
OPERAND_TYPES = {
    "tensor": "Tensor",
    "state": "State",
    "int4": "Int4",
    "quantized": "Quantized",
    "weight": "Tensor | Int4 | Quantized",
    "tensors": "Tensor",
}
ATTR_TYPES = {
    "integer": "int",
    "real": "float",
    "text": "str",
    "flag": "bool",
    "dtype": "DType",
    "ints": "Sequence[int]",
    "scalar_f32": "str",
    "scalar_u32": "str",
}
# Functions that the templates hold.
VIEWS = ["broadcast", "layer_state", "permute", "read_state", "reshape", "slice", "transpose"]
OTHERS = ["declare_sampling_scalars", "derive", "f32", "sample", "sample_rows", "u32"]


def op_table() -> list[dict]:
    """The core's table, without importing the package: its generated file may be stale."""
    spec = importlib.util.find_spec("accel")
    if spec is None:
        sys.exit("accel is not importable: build it, or set PYTHONPATH to <build>/py")
    sys.modules["accel"] = importlib.util.module_from_spec(spec)
    from accel import _core

    return [op for op in _core._ops() if not op["internal"]]


# ---------------------------------------------------------------- signatures


def positional_operands(op: dict) -> list[dict]:
    return [
        o for o in op["operands"] if not o["keyword"] and (o["positional"] or not o["optional"])
    ]


def keyword_operands(op: dict) -> list[dict]:
    return [o for o in op["operands"] if o not in positional_operands(op)]


def attrs(op: dict, positional: bool) -> list[dict]:
    return [a for a in op["attrs"] if a["positional"] == positional]


def operand_text(operand: dict, defaulted: bool) -> str:
    star = "*" if operand["kind"] == "tensors" else ""
    text = f"{star}{operand['name']}: {OPERAND_TYPES[operand['kind']]}"
    if operand["optional"] or defaulted:
        text += " | None = None"
    return text


def attr_text(attr: dict, defaulted: bool) -> str:
    kind = ATTR_TYPES[attr["type"]]
    default = "None" if attr["fallback"] is None else attr["fallback"].replace("'", '"')
    if attr["required"] and not defaulted:
        return f"{attr['name']}: {kind}"
    if attr["required"] or default == "None":
        return f"{attr['name']}: {kind} | None = None"
    return f"{attr['name']}: {kind} = {default}"


def parameters(op: dict) -> list[str]:
    first = [operand_text(o, False) for o in positional_operands(op)]
    first += [attr_text(a, False) for a in attrs(op, True)]
    keywords = [operand_text(o, True) for o in keyword_operands(op)]
    keywords += [attr_text(a, True) for a in attrs(op, False)]
    # What is required comes first, as a reader expects.
    required = {o["name"] for o in op["operands"] if not o["optional"]}
    required |= {a["name"] for a in op["attrs"] if a["required"]}
    keywords.sort(key=lambda text: text.partition(":")[0] not in required)
    star = [] if any(text.startswith("*") for text in first) else ["*"]
    return first + (star + keywords if keywords else [])


def result_type(op: dict) -> str:
    return op["returns"] or ("State" if op["writes"] >= 0 else "Tensor")


def signature(op: dict) -> str:
    """The def line, wrapped as the formatter wraps it."""
    one = f"def {op['name']}({', '.join(parameters(op))}) -> {result_type(op)}:"
    if len(one) <= 100:
        return one
    inner = f"    {', '.join(parameters(op))}"
    if len(inner) <= 100 and "*" not in parameters(op):
        return f"def {op['name']}(\n{inner}\n) -> {result_type(op)}:"
    lines = "".join(f"    {p},\n" for p in parameters(op))
    return f"def {op['name']}(\n{lines}) -> {result_type(op)}:"


def paragraphs(op: dict) -> list[str]:
    return [" ".join(p.split()) for p in op["doc"].strip().split("\n\n")]


def argument_docs(op: dict) -> list[tuple[str, str]]:
    docs = []
    for o in op["operands"]:
        docs.append(
            (o["name"], o["doc"] + ("; required" if o["keyword"] and not o["optional"] else ""))
        )
    for a in op["attrs"]:
        required = a["required"] and not a["positional"]
        docs.append((a["name"], a["doc"] + ("; required" if required else "")))
    return docs


# ---------------------------------------------------------------- the three files


def function(op: dict) -> str:
    first, *rest = paragraphs(op)
    doc = textwrap.wrap(f'    """{first}', 100, subsequent_indent="    ")
    for paragraph in rest:
        doc += ["", *textwrap.wrap(paragraph, 100, initial_indent="    ", subsequent_indent="    ")]
    doc += ["", "    Args:"]
    for name, text in argument_docs(op):
        doc += textwrap.wrap(
            f"{name}: {text}", 100, initial_indent="        ", subsequent_indent="            "
        )
    arguments = [o["name"] for o in op["operands"]] + [a["name"] for a in op["attrs"]]
    call = f"    return _core.{op['name']}({', '.join(arguments)})"
    return "\n".join([signature(op), *doc, '    """', call])


def tensor_py(ops: list[dict]) -> str:
    text = (TEMPLATES / "tensor.py.in").read_text()
    names = sorted([op["name"] for op in ops] + VIEWS + OTHERS)
    text = text.replace("# <names>\n", "".join(f'    "{name}",\n' for name in names))
    return text.replace("# <operators>", "\n\n\n".join(function(op) for op in ops).strip())


def stub(op: dict) -> str:
    """The core takes everything by position, None included."""
    kinds = {**OPERAND_TYPES, "tensors": "tuple[Tensor | None, ...]"}
    names = [f"{o['name']}: {kinds[o['kind']]} | None" for o in op["operands"]]
    names += [f"{a['name']}: {ATTR_TYPES[a['type']]} | None" for a in op["attrs"]]
    one = f"def {op['name']}({', '.join(names)}) -> {result_type(op)}: ..."
    if len(one) <= 100:
        return one
    lines = "".join(f"    {name},\n" for name in names)
    return f"def {op['name']}(\n{lines}) -> {result_type(op)}: ..."


def core_pyi(ops: list[dict]) -> str:
    text = (TEMPLATES / "core.pyi.in").read_text()
    return text.replace("# <operators>", "\n".join(stub(op) for op in ops))


def operator_section(op: dict) -> str:
    lines = [f"## {op['name']}", "", "```python", signature(op).removesuffix(":"), "```", ""]
    for paragraph in paragraphs(op):
        lines += [*textwrap.wrap(paragraph, 100), ""]
    lines += ["| argument | what it is |", "| --- | --- |"]
    lines += [
        f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in argument_docs(op)
    ]
    facts = ["exact" if op["exact"] else "within a derived bound"]
    facts += ["packs a repeated run"] if op["packs"] else []
    facts += ["accepts views"] if op["views"] else []
    lines += ["", f"Results: {', '.join(facts)}."]
    lines += ["", "| backend | kernel | accumulation order |", "| --- | --- | --- |"]
    lines += [f"| {k['backend']} | `{k['kernel']}` | {k['order']} |" for k in op["kernels"]]
    return "\n".join(lines)


def operators_md(ops: list[dict]) -> str:
    head = (
        "# Operators\n\n"
        "Generated by tools/generate.py from the op table; do not edit. Kernels are tried in the "
        "order of\ntheir rows; `plan.selections()` says which one runs and why. Those of the order "
        "matrix16 run on a\ndevice of `open_cuda(matrix=True)` alone.\n\n"
    )
    return head + "\n\n".join(operator_section(op) for op in ops) + "\n"


def main() -> int:
    ops = op_table()
    files = {
        "python/accel/tensor.py": tensor_py(ops),
        "python/accel/_core.pyi": core_pyi(ops),
        "docs/operators.md": operators_md(ops),
        "cpp/graph/operators.h": operators_h(ops),
    }
    stale = 0
    for name, text in files.items():
        path = ROOT / name
        old = path.read_text() if path.exists() else ""
        if old == text:
            continue
        if "--check" in sys.argv[1:]:
            stale += 1
            diff = difflib.unified_diff(
                old.splitlines(), text.splitlines(), name, "generated", lineterm="", n=1
            )
            print("\n".join(list(diff)[:40]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {name}")
    if stale:
        print(f"{stale} generated files are stale: run `make gen`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
