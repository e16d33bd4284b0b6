"""Prints requirements of pyproject.toml, one a line: `build` (to build and run) or an extra."""

import re
import sys
from pathlib import Path

# cmake, ninja: the machine's own may be missing or too old.
BUILD_TOOLS = ["cmake>=3.18", "ninja>=1.10"]


def array(text: str, section: str, key: str) -> list[str]:
    body = text.split(f"[{section}]", 1)[1]
    body = re.split(r"^\[[a-z]", body, maxsplit=1, flags=re.M)[0]
    found = re.search(rf"^{key} = \[(.*?)\]$", body, re.M | re.S)
    if not found:
        sys.exit(f"requirements: {key} is not in [{section}] of pyproject.toml")
    return re.findall(r'"([^"]+)"', found.group(1))


def main() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    what = sys.argv[1]
    if what == "build":
        names = array(text, "build-system", "requires") + BUILD_TOOLS
        names += array(text, "project", "dependencies")
    else:
        names = array(text, "project.optional-dependencies", what)
    print("\n".join(names))


if __name__ == "__main__":
    main()
