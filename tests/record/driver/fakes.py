"""fakes.c, compiled: NVIDIA's libraries as far as finding and subscribing see them."""

import re
import shutil
from pathlib import Path

from tests import build as builds

SOURCE = Path(__file__).with_name("fakes.c")
EXPORTS = Path(__file__).parents[3] / "cudasim/tables/cupti.txt"


def build(path: Path, *macros: str) -> Path:
    """One of them at this path; the file's name is its SONAME."""
    return _library(path, SOURCE, *(f"-D{macro}" for macro in macros))


def build_deadly(path: Path) -> Path:
    """A libcupti with all that any release exports, which ends the process whatever is called; and when it is loaded,
    unless MAY_LOAD is set, for PyTorch loads one."""
    names = re.findall(r"\bcupti[A-Z]\w*", EXPORTS.read_text())
    text = "#include <stdlib.h>\n" + "".join(f"void {name}(void)\n{{\n    abort();\n}}\n" for name in names)
    text += "__attribute__((constructor)) static void load(void)\n{\n"
    text += '    if (!getenv("MAY_LOAD"))\n        abort();\n}\n'
    return _library(path, builds.generated("deadly.c", text))


def _library(path: Path, source: Path, *flags: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    return Path(shutil.copy(builds.build(path.name, [source], *words, link=[f"-Wl,-soname,{path.name}"]), path))
