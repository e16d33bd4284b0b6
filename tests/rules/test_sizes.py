"""Sizes of files, functions and lines: what is over the limit is listed and may only shrink."""

import pytest
from tree import CODE, ROOT, cpp_functions, files, name, python_functions

pytestmark = pytest.mark.rules


FILE_LINES, HOST_FUNCTION, KERNEL_FUNCTION, COLUMNS = 800, 80, 150, 100
GENERATED = {"python/accel/tensor.py", "python/accel/_core.pyi"}
LISTED = ROOT / "tests/rules/sizes.txt"


def is_kernel(file: str) -> bool:
    return "/kernels/" in file or file.startswith("shaders/")


def offenders_of(file: str, source: str) -> dict[str, int]:
    """What of one file is over its limit, with its size."""
    found = {}
    lines = source.splitlines()
    if len(lines) > FILE_LINES:
        found[f"{file} lines"] = len(lines)
    wide = sum(len(line) > COLUMNS for line in lines)
    if wide:
        found[f"{file} wide"] = wide
    limit = KERNEL_FUNCTION if is_kernel(file) else HOST_FUNCTION
    functions = python_functions(source) if file.endswith(".py") else cpp_functions(source)
    for function, _, length in functions:
        if length > limit:
            found[f"{file} {function}"] = length
    return found


def listed() -> dict[str, int]:
    rows = [row for row in LISTED.read_text().splitlines() if row and not row.startswith("#")]
    return {key: int(size) for size, key in (row.split(" ", 1) for row in rows)}


def test_sizes_only_shrink():
    found = {}
    for path in files(*CODE):
        if name(path) not in GENERATED:
            found |= offenders_of(name(path), path.read_text())
    allowed = listed()
    grown = [f"{size} {key}" for key, size in sorted(found.items()) if size > allowed.get(key, 0)]
    assert not grown, "over the limit (or over their row in sizes.txt):\n" + "\n".join(grown)
    stale = [f"{size} {key}" for key, size in allowed.items() if found.get(key) != size]
    assert not stale, "sizes.txt lists more than there is; shrink it:\n" + "\n".join(stale)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("cpp/base/x.cc", "\n" * 801),
        ("cpp/base/x.cc", "// " + "x" * 98),
        ("cpp/base/x.cc", "namespace a {\nvoid f(int x) {\n" + "  x++;\n" * 79 + "}\n}\n"),
        (
            "cpp/base/x.cc",
            "struct S {\n  S() : a_{1} {\n" + "    a_++;\n" * 80 + "  }\n  int a_;\n};\n",
        ),
        ("cpp/backends/cpu/kernels/x.inl", "static void f() {\n" + "  ;\n" * 150 + "}\n"),
        ("tools/x.py", "def f():\n" + "    pass\n" * 80),
    ],
)
def test_what_is_too_big_is_found(file, source):
    assert offenders_of(file, source)


def test_what_fits_is_not_found():
    body = "void f(int x) {\n" + "  x++;\n" * 78 + "}\n"
    table = "int table[] = {\n" + "  1,\n" * 200 + "};\n"
    fits = "namespace a {\n" + body + table + "}\n"
    assert not offenders_of("cpp/base/x.cc", fits)
    assert [f[0] for f in cpp_functions(fits)] == ["f"]
