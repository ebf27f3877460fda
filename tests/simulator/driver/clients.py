"""Builds the C client of the driver: with everything that the driver stands on, CUPTI's hooks doubled."""

import re
import shutil
from pathlib import Path

from tests.simulator.objects import SOURCES, Objects

HERE = Path(__file__).parent
# The other surfaces are not needed; what of the runtime the shared objects stand on is.
LEFT_OUT = re.compile(
    r"cu(blas|blaslt|dnn_\w+|fft|solver|sparse|sparselt|pti_\w+)\.c|libraries\.c"
    r"|runtime_(?!error\.c|symbol\.c)\w+\.c"
)


PROGRAM = ["client.c", "memory.c", "code.c", "threads.c", "told.c"]


def cases() -> list[str]:
    """The named cases of the client."""
    tables = [(HERE / name).read_text().partition("test_case ")[2] for name in PROGRAM[1:4]]
    return [name for table in tables for name in re.findall(r'\{"(\w+)", \w+\}', table)]


def build(folder: Path, objects: Objects) -> Path:
    """The client, with every call of the driver's and NVML's tables in it."""
    tables = folder / "tables"
    tables.mkdir()
    for name in ("cuda.txt", "nvml.txt"):
        shutil.copy(SOURCES / "tables" / name, tables)
    sources = [path for path in sorted(SOURCES.glob("*/*.c")) if not LEFT_OUT.fullmatch(path.name)]
    compiled = objects.of([*sources, objects.entries(tables)])
    # cuGetProcAddress looks through what the program exports.
    return objects.link(folder / "client", compiled, *(HERE / name for name in PROGRAM), f"-I{HERE}", "-rdynamic")
