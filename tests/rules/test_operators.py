"""What the recipe for an operator promises and no compiler checks: every kernel named in a row has
its source, every parameter struct a size assertion, every operator a file of its name."""

import re
import subprocess
import sys

import pytest
from tree import CODE, ROOT, files, name

pytestmark = pytest.mark.rules


ROW = re.compile(r'\{\s*Backend::(\w+),\s*"(\w+)"')
# A struct of parameters may stand in another: it is held to the same.
FIELD = re.compile(r"(unsigned|int|float|u32|i32|f32|\w+Params)\s+[\w\[\], ]+$")
KERNEL_SOURCES = {"cpu": "cpp/backends/cpu/kernels", "metal": "shaders", "cuda": "shaders"}


def operators() -> list[str]:
    return re.findall(r"^OP\((\w+)\)", (ROOT / "cpp/ops/list.inc").read_text(), re.M)


def rows() -> set[tuple[str, str]]:
    return {
        row for path in files(".cc", ".h", under="cpp/ops") for row in ROW.findall(path.read_text())
    }


def missing_kernels(wanted: set[tuple[str, str]], text_of: dict[str, str]) -> list[str]:
    return [f"{b} {kernel}" for b, kernel in wanted if not re.search(rf"\b{kernel}\b", text_of[b])]


def test_every_kernel_of_a_row_exists_in_a_source_file():
    text_of = {
        backend: "\n".join(path.read_text() for path in files(*CODE, under=folder))
        for backend, folder in KERNEL_SOURCES.items()
    }
    wanted = rows()
    assert len(wanted) >= len(operators()), "the rows are not found where they are looked for"
    assert not missing_kernels(wanted, text_of)
    assert missing_kernels({("cpu", "no_such_kernel")}, text_of)


def test_every_operator_has_its_definition_file():
    for op in operators():
        path = ROOT / f"cpp/ops/{op}.cc"
        assert path.exists(), f"{name(path)} is missing"
        assert f"def_{op}" in path.read_text(), name(path)


def test_every_parameter_struct_has_a_size_assertion():
    paths = files(".h", ".cc", ".inl", under="cpp") + files(".h", under="shaders")
    everything = "\n".join(path.read_text() for path in paths)
    for path in files(".h", under="shaders/shared/params"):
        for struct in re.findall(r"^struct (\w+)", path.read_text(), re.M):
            assertion = rf"static_assert\(sizeof\((\w+::)*{struct}\) == "
            assert re.search(assertion, everything), f"{struct} of {name(path)}"


def test_parameter_structs_hold_four_byte_fields():
    for path in files(".h", under="shaders/shared/params"):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        for body in re.findall(r"^struct \w+ \{(.*?)\};", text, re.M | re.S):
            for declaration in filter(None, (d.strip() for d in body.split(";"))):
                assert FIELD.match(declaration), f"{name(path)}: {declaration}"


def test_generated_files_are_fresh():
    command = [sys.executable, "tools/generate.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
