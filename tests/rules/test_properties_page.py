"""Every property that tests must show has one, and the page that lists them is fresh."""

import subprocess
import sys

import pytest
from tree import ROOT

pytestmark = pytest.mark.rules


def test_every_property_has_a_test_and_the_page_is_fresh():
    command = [sys.executable, "tools/properties.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
