#!/usr/bin/env python3
"""Write specs/014-properties.md: the properties of the contract's section 26, each with its tests.

    python tools/properties.py [--check]

A test belongs to property N when its name holds `p26_NN_` (two digits). With --check nothing is
written and a stale page, or a property without a test, fails.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "specs/014-properties.md"
NAME = re.compile(r"^(?:\s*def (test_\w*?p26_\w+)\(|TEST\((\w*?p26_\w+)\))", re.M)
GROUPS = {
    "Graph and planner": {
        1: "the golden example; random graphs planned as naive, byte for byte, over any memory",
        2: "each hazard makes its edge and barrier; no barrier is spare; disjoint halves make none",
        3: "too_large and out_of_memory carry their numbers; close rules of every parent",
        4: "two submits in a tight loop, and racing threads: right results or a clean refusal",
        5: "plans are identical from run to run; explain is stable",
    },
    "Builder": {
        6: "one mistake, one diagnostic at the user's line, composites too; three come sorted",
        7: "None is named for each operand of each operator; poison stays silent",
        8: "unused ports and scalars are all listed; states only written, plans without effect",
        9: "every row of the table of outputs; shapes given are copied",
        10: "stale handles are refused at every use; layers apart are never stale; unused ranges",
    },
    "Operators": {
        11: "every refusal by its class and key words",
        12: "scatter: duplicates, ids out of range, dtypes, layers; gather: edges, computed tables",
        13: "views composed at random then contiguous equal an index walk; packing by strides",
        14: "f16 elementwise is f32 rounded once, over all values; casts over every source",
        15: "softmax at its ends; rope at large positions, both pairings, frequencies = base",
        16: "products: odd sizes, every pair, orders, int4 by a dot product, the last word",
        17: "grouped products: zero counts, one expert, counts beyond T, padding rows",
        18: "attention: forms, pages, chunks, lengths, head sizes, caches, unwritten rows",
        19: "linear attention: T at once = T calls, identity, gates, padding, slots reused",
        20: "samplers: ties, NaN, edges of draws, exactly k, the crossing entry, a sort",
        21: "stream vectors; tokens do not depend on slot, batch or neighbours",
        22: "quant vectors; NaN index; stored scale; bounds on every kind of data",
    },
    "Plan, cache, pools": {
        23: "a bad submit changes nothing; all problems; scalars each time; buffers narrowed",
        24: "after warm-up no counter moves",
        25: "close with work in flight waits; Runtime.close counts; compile races close",
        26: "identity: what moves which digest; collisions; a closed cached plan",
        27: "buckets and block pool against a model; failed calls change nothing",
    },
    "Numerics and determinism": {
        28: "each function within its ceiling; each operator within its derived budget",
        29: "determinism line by line; a whole transformer step",
        30: "compared results are not trivial; a planted mutation applies and fails",
        31: "each extension at its default changes nothing; away from it, its formula",
        32: "a gate over every public operator, option and enum value",
    },
    "Bindings, queues, threads": {
        33: "prepared bindings: bits of the dicts, failed updates, later values, two in turn",
        34: "queues: order within one, after between two, failed fences, bits of one",
        35: "threads, signals, time-outs, fork, fresh buffers, collection in any order",
        36: "check=True names each kind of bad data; good data gives the same bits",
        37: "from_dlpack: no copy where none is needed, refusal, lifetime",
    },
    "Orders, packing, narrow operands": {
        38: "instruction sets of one level give equal bits; slow walks of each order",
        39: "no contraction; ceilings everywhere; no approximate instruction",
        40: "factored groups within their own bound; int8 activations bit for bit",
        41: "f16 and bf16 operands equal rounding first; overflow; f32 caches refused",
        42: "packed = plain bit for bit; one set of packed buffers; wrong layouts by name",
        43: "no operand is rounded below its storage width unless asked",
    },
    "Further operators, checkpoints": {
        44: "scales, zeros and biases of each dtype; mixed ones refused; Q4_K bit for bit",
        45: "gguf_planes against the gguf package; headers under mutation",
        46: "b.int4 and b.quantized declare what the checks want; grouped bias",
        47: "rope with positions of tokens = expanded positions bit for bit",
        48: "rms_norm of f16; clamp at its ends; log_softmax at 88 and beyond",
        49: "one decay a key and rule add against a float64 loop; equal decays",
        50: "sample_categorical's vector and running sums; sample_rows against a sort",
        51: "a packing read in place leaves no copy entry and gives the bits of the copy",
        52: "accel.llm: every member, refusal and stop reason; the command line agrees",
    },
}


def tests() -> dict[int, list[tuple[str, str]]]:
    """(file, name) of the tests of each property."""
    found: dict[int, list[tuple[str, str]]] = {}
    for folder, pattern in (("tests", "*.py"), ("cpp/tests", "*.cc")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            for match in NAME.finditer(path.read_text()):
                name = match.group(1) or match.group(2)
                for number in re.findall(r"p26_(\d\d)", name):
                    found.setdefault(int(number), []).append((str(path.relative_to(ROOT)), name))
    return found


def page() -> str:
    found = tests()
    lines = [
        "# Properties and their tests",
        "",
        "Status: generated by tools/properties.py; do not edit. Each property that tests must",
        "show, and the tests whose names carry its number. A parametrised test stands once.",
    ]
    for group, titles in GROUPS.items():
        lines += ["", f"## {group}", "", "| property | test | file |", "| --- | --- | --- |"]
        for number, title in titles.items():
            entries = found.get(number, [("", "**no test**")])
            for i, (file, name) in enumerate(entries):
                first = f"{number}. {title}" if i == 0 else ""
                lines.append(f"| {first} | {name} | {file} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    missing = sorted({n for group in GROUPS.values() for n in group} - set(tests()))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page())
        print(f"wrote {PAGE.relative_to(ROOT)}; without a test: {missing or 'none'}")
        return 0
    if missing:
        print("properties without a test:", ", ".join(map(str, missing)))
    stale = not PAGE.exists() or PAGE.read_text() != page()
    if stale:
        print("specs/014-properties.md is stale: run tools/properties.py")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
