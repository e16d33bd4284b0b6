#!/usr/bin/env python3
"""Turns Metal Shading Language text into C++ that clang compiles on Linux, for the emulator of
tests/metal. to_cuda.py beside it turns the same text into CUDA C++.

1. clang -E with empty <metal_*> headers, so that macros and includes are expanded and line
   markers keep every error and every trace at the .metal text;
2. a token rewrite: kernel signatures lose their [[...]], `threadgroup T x[N];` becomes storage
   of the group, function constants become load-time constants, `float4(...)` becomes a call;
3. a table of kernels with one binder each is appended.

mslc.py [-D NAME[=V]] [--metal-version 310] IN.metal [-o OUT] [--lint OUT] [--reflect OUT]
"""

import argparse
import json
import sys

from rewrite import Rewriter
from tokens import MslError, preprocess, tokenize


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("input")
    ap.add_argument("-o", help="C++ to run")
    ap.add_argument("--lint", help="C++ with real address spaces, to be parsed only")
    ap.add_argument("--reflect", help="kernels, their arguments and instances, as JSON")
    ap.add_argument("-D", action="append", default=[])
    ap.add_argument("--metal-version", type=int, default=310)
    a = ap.parse_args()
    try:
        text = Rewriter(tokenize(preprocess(a.input, a.D, a.metal_version)))
        text.run()
    except MslError as e:
        sys.stderr.write(str(e))
        return 1
    if text.problems:
        sys.stderr.write("".join(f"{p} [mslc]\n" for p in text.problems))
        return 1
    core, body = '#include "msl_core.h"\n', text.body()
    table = "\n".join(text.table())
    outputs = {
        a.o: f'{core}{body}\n# 1 "<mslc table>"\nMSL_TABLE_BEGIN\n{table}\nMSL_TABLE_END\n',
        a.lint: "#define MSL_LINT 1\n" + core + body,
        a.reflect: json.dumps({"kernels": text.kernels, "instances": text.instances}, indent=1),
    }
    for path, content in outputs.items():
        if path:
            with open(path, "w") as f:
                f.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
