"""tools/macho.py tells a macOS library of one machine from anything else."""

import struct
import sys

import pytest
from tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import macho  # noqa: E402

pytestmark = pytest.mark.rules
ARM64, X86_64 = 0x0100000C, 0x01000007


def library(
    machine=ARM64, kind=6, platform=1, system=14 << 16, loads=("/usr/lib/libobjc.A.dylib",)
):
    commands = [struct.pack("<6I", 0x32, 24, platform, system, system, 0)]
    for load in loads:
        text = load.encode() + b"\0" * (8 - len(load) % 8)
        commands.append(struct.pack("<6I", 0x0C, 24 + len(text), 24, 0, 0, 0) + text)
    body = b"".join(commands)
    head = struct.pack("<8I", 0xFEEDFACF, machine, 0, kind, len(commands), len(body), 0, 0)
    return head + body


@pytest.mark.parametrize("machine, name", [(ARM64, "arm64"), (X86_64, "x86_64")])
def test_a_library_is_read(machine, name):
    assert not macho.faults(macho.read(library(machine)), name, "14.0", ["libobjc"])


@pytest.mark.parametrize(
    "changed, fault",
    [
        ({"machine": X86_64}, "machine is x86_64 and must be arm64"),
        ({"kind": 2}, "kind is 2 and must be 6"),
        ({"platform": 2}, "platform is 2 and must be 1"),
        ({"system": 15 << 16}, "system is 15.0 and must be 14.0"),
        ({"loads": ()}, "libobjc is not loaded"),
    ],
)
def test_what_differs_is_named(changed, fault):
    assert macho.faults(macho.read(library(**changed)), "arm64", "14.0", ["libobjc"]) == [fault]


def test_a_file_of_linux_is_refused():
    with pytest.raises(ValueError, match="must be 0xfeedfacf"):
        macho.read(b"\x7fELF" + bytes(60))
