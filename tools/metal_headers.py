#!/usr/bin/env python3
"""Fetches the headers of metal-cpp (Apache-2.0) with pip out of a pinned wheel, on any system.

tools/metal_headers.py DEST             -> DEST/metal_cpp/Metal/Metal.hpp, LICENSE.txt, ...
tools/metal_headers.py DEST --kernels   -> DEST/kernels too: shaders that Apple's compiler accepts

The folder is a build output; nothing of it is kept in the tree.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "mlx-metal==0.32.4"
PLATFORM = ["--platform", "macosx_14_0_arm64", "--python-version", "3.12"]
HEADERS = "mlx/include/metal_cpp/"
KERNELS = "mlx/include/mlx/backend/metal/kernels/"


def unpack(wheel: Path, folder: str, dest: Path) -> None:
    """All of it or nothing: what an interrupted run left would pass for the whole."""
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest.parent) as beside, zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if name.startswith(folder) and not name.endswith("/"):
                out = Path(beside) / "all" / name.removeprefix(folder)
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_bytes(z.read(name))
        shutil.rmtree(dest, ignore_errors=True)
        (Path(beside) / "all").rename(dest)


def fetch(dest: Path, kernels: bool = False) -> Path:
    """The folder that holds Metal/Metal.hpp; downloads what is not there yet."""
    headers, shaders = dest / "metal_cpp", dest / "kernels"
    there = (headers / "Metal/Metal.hpp").exists() and (shaders.exists() or not kernels)
    if there:
        return headers
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--retries", "5", "--no-deps"]
        wheels = ["--only-binary=:all:", *PLATFORM, "-d", folder, PACKAGE]
        subprocess.run([*pip, *wheels], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        unpack(wheel, HEADERS, headers)
        if kernels:
            unpack(wheel, KERNELS, shaders)
    return headers


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("dest", type=Path)
    ap.add_argument("--kernels", action="store_true")
    a = ap.parse_args()
    print(fetch(a.dest, a.kernels))
