"""What the text of the tree must not hold, and names in the documents that must exist."""

import importlib
import os
import re
from functools import cache

import pytest
from tree import CODE, ROOT, TEXT, every_file, files, name

pytestmark = pytest.mark.rules


# Each pattern is written so that it does not find itself.
HOSTS = "|".join(["py" + "pi", "n" + "pm", "deb" + "ian", "python" + "h"])
FORBIDDEN = {
    "a path of one machine": r"(^|[^A-Za-z0-9_.])/(" + "|".join(["work", "root", "home"]) + ")/",
    "the address of a package registry": r"https?://[^ )\"]*(" + HOSTS + ")",
    "an unfinished word": r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bX" + r"XX\b|\bHA" + r"CK\b",
    "an unfinished sentence": r"not impl" + "emented|place" + "holder",
    "history": r"(?i)\bprev" + r"iously\b",
}
DOCUMENTS = [p for p in files(".md") if "shared" not in p.parts]
SKIPPED = re.compile(r"[ $<>…*{}]|\.\.\.")


def forbidden(text: str) -> list[str]:
    return [what for what, pattern in FORBIDDEN.items() if re.search(pattern, text)]


def test_no_forbidden_text():
    found = []
    for path in files(*TEXT) + [ROOT / "Makefile", ROOT / ".ci/run", ROOT / "LICENSE"]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [
                f"{name(path)}:{number}: {what}: {line.strip()[:80]}" for what in forbidden(line)
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["see /ro" + "ot/x", "# TO" + "DO: later", "prev" + "iously", "https://py" + "pi.org/x"]
)
def test_forbidden_text_is_found(line):
    assert forbidden(line)


EMPTY = ("__init__.py", "py.typed")


def stray(path, content: bytes) -> bool:
    """A compiler's output, or what a command left behind: nobody writes such a file."""
    program = os.access(path, os.X_OK) and not content.startswith(b"#!")
    return program or b"\0" in content or (not content and path.name not in EMPTY)


def test_no_file_is_in_the_tree_by_accident():
    held = [p for p in every_file() if stray(p, p.read_bytes())]
    assert not held, [name(p) for p in held]


@pytest.mark.parametrize("mode, content", [(0o755, b""), (0o755, b"text"), (0o644, b"\x7fELF\0")])
def test_a_stray_file_is_found(tmp_path, mode, content):
    path = tmp_path / "a.out"
    path.write_bytes(content)
    path.chmod(mode)
    assert stray(path, content)


def source_text() -> str:
    paths = files(*CODE, ".sh", ".toml") + [ROOT / "CMakeLists.txt", ROOT / "Makefile"]
    return "\n".join([*(path.read_text() for path in paths), *(path.stem for path in paths)])


@cache
def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def unknown_name(span: str, everything: str, targets: set[str]) -> bool:
    """Whether a code span of a document names something missing. Spans that are no name pass."""
    if span.startswith("make "):
        return span.split()[1] not in targets
    if SKIPPED.search(span):
        return False
    if re.fullmatch(r"\.?[\w.-]+(/[\w.-]+)+/?", span):
        return not any(path.exists() for path in (ROOT / span, ROOT / "cpp" / span)) and (
            span not in everything
        )
    if re.fullmatch(r"ACCEL_\w+", span):
        return span not in everything
    if re.fullmatch(r"accel(\.\w+)+(\(\))?", span):
        return not resolves(span.removesuffix("()"))
    if re.fullmatch(r"[a-z]\w*(\(\))?", span) and ("_" in span or span.endswith("()")):
        # A name that ends in a number may be put together, as the plans of one bucket each are.
        word = span.removesuffix("()").rstrip("0123456789").rstrip("_")
        if span[-1].isdigit():
            return not any(known.startswith(word) for known in words(everything))
        return word not in words(everything)
    return False


def resolves(dotted: str) -> bool:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


def test_names_in_documents_exist():
    everything = source_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    found = []
    for path in DOCUMENTS:
        prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
        for span in re.findall(r"`([^`\n]+)`", prose):
            if unknown_name(span, everything, targets):
                found.append(f"{name(path)}: `{span}`")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "span",
    ["make nothing", "cpp/nowhere/x.cc", "ACCEL_NO_SUCH", "accel.no_such_name", "no_such_word()"],
)
def test_an_unknown_name_is_found(span):
    assert unknown_name(span, "nothing here", {"test"})


def test_links_of_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{name(path)}: {target}"
