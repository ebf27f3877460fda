"""Builds the C client of the driver: with everything that the driver stands on, CUPTI's hooks doubled."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT

SOURCES = ROOT / "csrc" / "simulator"
HERE = Path(__file__).parent
FLAGS = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fno-sanitize-recover=all"]
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


def build(folder: Path, sanitizer: str) -> Path:
    """The client, with every call of the driver's and NVML's tables in it."""
    tables = folder / "tables"
    tables.mkdir()
    for name in ("cuda.txt", "nvml.txt"):
        shutil.copy(SOURCES / "tables" / name, tables)
    generate = runpy.run_path(str(SOURCES / "tables" / "generate.py"))["generate"]
    (folder / "entries.c").write_text(generate(tables))
    sources = [path for path in sorted(SOURCES.glob("*/*.c")) if not LEFT_OUT.fullmatch(path.name)]
    command: list[str | Path] = ["gcc", *FLAGS, f"-fsanitize={sanitizer}", f"-I{SOURCES}", f"-I{HERE}"]
    command += [*sources, folder / "entries.c", *(HERE / name for name in PROGRAM)]
    # cuGetProcAddress looks through what the program exports.
    command += ["-rdynamic", "-o", folder / "client", "-lpthread", "-ldl", "-lm", "-lrt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "client"
