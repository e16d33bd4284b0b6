"""Preprocessing and tokens of Metal Shading Language text."""

import os
import re
import subprocess
from pathlib import Path

CLANG = os.environ.get("MSLC_CLANG", "clang++-19")
EMPTY = Path(__file__).parent / "empty"  # <metal_*> headers without content
TOKEN = re.compile(
    r"""
   (?P<pp>^\#[^\n]*\n?)
 | (?P<ws>\s+)
 | (?P<str>"(?:\\.|[^"\\])*")
 | (?P<chr>'(?:\\.|[^'\\])*')
 | (?P<num>\.?\d(?:[eEpP][+-]|[\w.'])*)
 | (?P<id>[A-Za-z_]\w*)
 | (?P<punct>::|->|\+\+|--|<<=|>>=|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""",
    re.X | re.M | re.S,
)


class MslError(Exception):
    pass


class Tok:
    __slots__ = ("k", "s", "line", "file")

    def __init__(self, k, s, line, file):
        self.k, self.s, self.line, self.file = k, s, line, file


def preprocess(path, defines, version):
    """The text with macros and includes expanded; the library's own headers are empty here."""
    folders = [str(EMPTY), str(Path(path).resolve().parent)]
    return expand(CLANG, folders, defines, version, [path])


def preprocess_text(text, cxx, defines, version):
    """The same of a text whose includes stand in their places, by any C++ compiler."""
    return expand(cxx, [str(EMPTY)], defines, version, ["-"], text)


def expand(cxx, folders, defines, version, rest, text=None):
    command = [cxx, "-E", "-x", "c++", "-std=c++17", "-nostdinc", "-undef", "-w"]
    command += [f"-I{folder}" for folder in folders]
    command += ["-D__METAL__=1", f"-D__METAL_VERSION__={version}", "-D__METAL_MACOS__=1"]
    command += ["-D__HAVE_BFLOAT__=1"] + [f"-D{d}" for d in defines] + rest
    r = subprocess.run(command, input=text, capture_output=True, text=True)
    if r.returncode:
        raise MslError(r.stderr)
    return r.stdout


def tokenize(text):
    out, line, file, pos = [], 1, "?", 0
    while pos < len(text):
        m = TOKEN.match(text, pos)
        k, s = m.lastgroup, m.group()
        if k == "pp":
            marker = re.match(r'#\s*(?:line\s+)?(\d+)\s+"([^"]*)"', s)
            out.append(Tok("ws", s, line, file))
            if marker:
                line, file = int(marker.group(1)), marker.group(2)
            elif s.startswith("#pragma"):
                line += 1
        else:
            out.append(Tok(k, s, line, file))
            line += s.count("\n")
        pos = m.end()
    return out


class Text:
    """The significant tokens of a text, which passes change in place."""

    def __init__(self, tokens):
        self.t = tokens
        self.sig = [i for i, t in enumerate(tokens) if t.k != "ws"]
        self.problems = []

    def tok(self, n):
        return self.t[self.sig[n]] if 0 <= n < len(self.sig) else Tok("eof", "", 0, "")

    def s(self, n):
        return self.tok(n).s

    def problem(self, n, message):
        t = self.tok(n)
        self.problems.append(f"{t.file}:{t.line}: {message}")

    def match(self, n, opening, closing):
        depth, first = 0, n
        while n < len(self.sig):
            if self.s(n) == opening:
                depth += 1
            elif self.s(n) == closing:
                depth -= 1
                if depth == 0:
                    return n
            n += 1
        t = self.tok(first)
        raise MslError(f"{t.file}:{t.line}: unbalanced {opening}{closing}\n")

    def match_angle(self, n):
        """The '>' that closes the '<' at n; '<' after anything but a name is a comparison."""
        depth, par, first = 0, 0, n
        while n < len(self.sig):
            c = self.s(n)
            if c and c in "([{":
                par += 1
            elif c and c in ")]}":
                par -= 1
            elif par == 0 and c == "<" and (n == first or self.tok(n - 1).k == "id"):
                depth += 1
            elif par == 0 and c == ">":
                depth -= 1
                if depth == 0:
                    return n
            n += 1
        raise MslError("unbalanced <>")

    def blank(self, a, b):
        for n in range(a, b + 1):
            self.tok(n).s = ""

    def text(self, a, b):
        """Significant text of [a, b], spaces between words."""
        return " ".join(self.s(n) for n in range(a, b + 1) if self.s(n))

    def is_attr(self, n):
        return self.s(n) == "[" and self.s(n + 1) == "["

    def attr_end(self, n):
        return self.match(n, "[", "]")

    def attr_items(self, n, end):
        """[(name, arguments or None), ...] of the [[...]] at n."""
        items, m = [], n + 2
        while m < end - 1:
            name, arguments = self.s(m), None
            if self.s(m + 1) == "(":
                c = self.match(m + 1, "(", ")")
                arguments = self.text(m + 2, c - 1)
                m = c
            items.append((name, arguments))
            m += 1
            if self.s(m) == ",":
                m += 1
        return items

    def attrs_in(self, a, b):
        """[(start, end, items), ...] for every [[...]] in [a, b]."""
        out, n = [], a
        while n < b:
            if self.is_attr(n):
                e = self.attr_end(n)
                out.append((n, e, self.attr_items(n, e)))
                n = e
            n += 1
        return out

    def body(self):
        return "".join(t.s for t in self.t)
