"""What the executor makes of a kernel's text where nodes of a graph overlap
(cpp/backends/cuda/overlap.cc), written a second time."""

import re

PAIRS = (
    (r"\A\.version 7\.0\n", ".version 7.8\n"),
    (r"^\.target sm_80$", ".target sm_90"),
    (r"^//accel: wait for earlier grids$", "griddepcontrol.wait;"),
    (r"^//accel: later grids may start$", "griddepcontrol.launch_dependents;"),
    (r"\bld\.global\.nc\.", "ld.global."),
)


def overlapped(ptx: str) -> str:
    for pattern, by in PAIRS:
        ptx = re.sub(pattern, by, ptx, flags=re.M)
    return ptx
