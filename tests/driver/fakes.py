"""fakes.c, compiled: NVIDIA's libraries as far as finding and subscribing see them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fakes.c")


def build(path: Path, *macros: str) -> Path:
    """One of them at this path; the file's name is its SONAME."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    words += [*(f"-D{macro}" for macro in macros), str(SOURCE), "-o", str(path)]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(words, env=plain, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{SOURCE.name} was not compiled: {done.stderr[-1000:]}")
    return path
