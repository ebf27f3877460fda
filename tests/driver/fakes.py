"""fakes.c, compiled: NVIDIA's libraries as far as finding and subscribing see them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fakes.c")
EXPORTS = Path(__file__).parents[2] / "csrc/simulator/tables/cupti.txt"


def compile_library(path: Path, *words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run([*command, *words, "-o", str(path)], env=plain, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name} was not compiled: {done.stderr[-1000:]}")


def build(path: Path, *macros: str) -> Path:
    """One of them at this path; the file's name is its SONAME."""
    compile_library(path, *(f"-D{macro}" for macro in macros), str(SOURCE))
    return path


def build_deadly(path: Path) -> Path:
    """A libcupti with all that any release exports, which ends the process whatever is called; and when it is loaded,
    unless MAY_LOAD is set, for PyTorch loads one."""
    names = [line.split()[0] for line in EXPORTS.read_text().splitlines() if line.startswith("cupti")]
    text = "#include <stdlib.h>\n" + "".join(f"void {name}(void)\n{{\n    abort();\n}}\n" for name in names)
    text += "__attribute__((constructor)) static void load(void)\n{\n"
    text += '    if (!getenv("MAY_LOAD"))\n        abort();\n}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(text)
    compile_library(path, str(source))
    return path
