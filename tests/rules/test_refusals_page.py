"""The rows and tests that specs/015-refusals.md names exist."""

import re

import pytest
from test_host_refusals import ALL as HOST
from test_llm_refusals import MODELS
from test_op_errors import ALL as OPERATORS
from tree import ROOT, files

pytestmark = pytest.mark.rules

PAGE = ROOT / "specs/015-refusals.md"


def known() -> set[str]:
    tests = "\n".join(path.read_text() for path in files(".py", under="tests"))
    rows = {row.name for row in (*OPERATORS, *HOST, *MODELS)}
    return rows | set(re.findall(r"^def (test_\w+)", tests, re.M))


def clauses(text: str) -> list[tuple[str, list[str]]]:
    """Each clause of the tables with the names that stand beside it."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    lines = [line for line in lines if line[0] not in ("clause", "---")]
    return [(clause, re.findall(r"`([^`]+)`", rows)) for clause, rows in lines]


def unknown(text: str, names: set[str]) -> list[str]:
    found = [f"{clause}: no row" for clause, rows in clauses(text) if not rows]
    return found + [
        f"{c}: `{row}`" for c, rows in clauses(text) for row in rows if row not in names
    ]


def test_every_row_of_the_page_exists():
    text = PAGE.read_text()
    assert len(clauses(text)) > 100, "the tables are not found"
    assert not unknown(text, known()), "\n".join(unknown(text, known()))


@pytest.mark.parametrize("line", ["| a | `add: no such row` |", "| a | none |"])
def test_a_row_that_is_missing_is_found(line):
    assert unknown(line, known())
