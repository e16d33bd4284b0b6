"""The include rule: a layer includes itself and what is below; pybind11 stays in bindings/."""

import re

import pytest
from tree import ROOT, files, name

pytestmark = pytest.mark.rules


# What each layer may include besides itself. shaders/shared is open to every layer.
BELOW = {
    "base": [],
    "ops": ["base"],
    "graph": ["ops", "base"],
    "plan": ["graph", "ops", "base"],
    "oracle": ["graph", "ops", "base"],
    "exec": ["plan", "ops", "base"],
    "backends/cpu": ["exec", "plan", "ops", "base"],
    "backends/metal": ["exec", "plan", "ops", "base"],
    "backends/cuda": ["exec", "plan", "ops", "base"],
    "runtime": [
        *("backends/cpu", "backends/metal", "backends/cuda"),
        *("exec", "plan", "oracle", "graph", "ops", "base"),
    ],
    "bindings": ["runtime", "oracle", "exec", "plan", "graph", "ops", "base"],
    "tests": None,
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def layer_of(path: str) -> str | None:
    return next((layer for layer in BELOW if path.startswith(layer + "/")), None)


def violations(file: str, source: str) -> list[str]:
    """file is relative to cpp/."""
    layer = layer_of(file)
    if layer is None:
        return [f"cpp/{file}: belongs to no layer"]
    found = []
    for bracket, included in INCLUDE.findall(source):
        if included.startswith("pybind11/") and layer != "bindings":
            found.append(f"cpp/{file} includes {included}: pybind11 belongs in cpp/bindings")
        if bracket == "<" or BELOW[layer] is None or included.startswith("shared/"):
            continue
        target = layer_of(included)
        if target is None and "/" in included:
            found.append(f"cpp/{file} includes {included}, which is no layer")
        elif target not in (None, layer, *BELOW[layer]):
            found.append(f"cpp/{file} ({layer}) includes {included} ({target})")
    return found


def test_layers_include_only_what_is_below():
    found = []
    for path in files(".h", ".cc", ".inl", ".inc", under="cpp"):
        found += violations(path.relative_to(ROOT / "cpp").as_posix(), path.read_text())
    assert not found, "\n".join(found)


def test_layers_of_the_rule_exist():
    assert not [layer for layer in BELOW if not (ROOT / "cpp" / layer).is_dir()]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("base/shape.cc", '#include "ops/opdef.h"'),
        ("graph/builder.cc", '#include "exec/device.h"'),
        ("backends/cpu/executor.cc", '#include "graph/builder.h"'),
        ("oracle/oracle.cc", '#include "plan/plan.h"'),
        ("runtime/plan.cc", "#include <pybind11/pybind11.h>"),
        ("elsewhere/x.cc", ""),
    ],
)
def test_a_wrong_include_is_found(file, line):
    assert violations(file, line)


def test_shared_headers_include_only_shared_headers():
    for path in files(".h", under="shaders/shared"):
        for bracket, included in INCLUDE.findall(path.read_text()):
            assert bracket == '"' and included.startswith("shared/"), (
                f"{name(path)} includes {included}"
            )


# Names that <cmath>, <atomic> and the like look up on every include path: a header of ours with
# such a name would hide the C library's where the C++ library wraps it by name.
STANDARD = re.compile(
    r"(assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal"
    r"|stdalign|stdarg|stdatomic|stdbit|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string"
    r"|tgmath|threads|time|uchar|wchar|wctype)\.h"
)


def test_no_header_hides_one_of_the_c_library():
    for folder in ("cpp", "shaders"):
        heads = [p.relative_to(ROOT / folder).as_posix() for p in files(".h", under=folder)]
        assert heads
        assert not list(filter(STANDARD.fullmatch, heads))


def test_a_hiding_header_is_found():
    assert STANDARD.fullmatch("math.h")
    assert not STANDARD.fullmatch("float_math.h")
    assert not STANDARD.fullmatch("shared/string.h")
