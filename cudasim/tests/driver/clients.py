"""Builds the C client of the driver: with everything that the driver stands on, CUPTI's hooks doubled."""

import re
import shutil
import tempfile
from pathlib import Path

from cudasim.tests.objects import SOURCES, TABLES, client, entries

HERE = Path(__file__).parent
# The other surfaces are not needed; what of the runtime the shared objects stand on is.
LEFT_OUT = re.compile(
    r"cu(blas|blaslt|dnn_\w+|fft|solver|sparse|sparselt|pti_\w+)\.c|libraries\.c"
    r"|runtime_(?!error\.c|symbol\.c)\w+\.c"
)


PROGRAM = ["client.c", "memory.c", "code.c", "threads.c", "reported.c"]


def cases() -> list[str]:
    """The named cases of the client."""
    tables = [(HERE / name).read_text().partition("test_case ")[2] for name in PROGRAM[1:4]]
    return [name for table in tables for name in re.findall(r'\{"(\w+)", \w+\}', table)]


def build(sanitizer: str) -> Path:
    """The client, with every call of the driver's and NVML's tables in it."""
    with tempfile.TemporaryDirectory() as tables:
        for name in ("cuda.txt", "nvml.txt"):
            shutil.copy(TABLES / name, tables)
        listed = entries(Path(tables))
    sources = [path for path in SOURCES.glob("*/*.c") if not LEFT_OUT.fullmatch(path.name)]
    # cuGetProcAddress looks through what the program exports.
    return client("client", sanitizer, [*sources, listed, *(HERE / name for name in PROGRAM)], ["-rdynamic"])
