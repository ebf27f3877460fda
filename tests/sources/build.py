"""Builds a `cuptimem._core` of the real sources and a one-page capture (double.c) for these tests."""

import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]


def build(folder: Path) -> Path:
    """Compiles into `folder` and returns the path of the extension module."""
    target = folder / "_core.so"
    sources = [
        *sorted((ROOT / "csrc" / "sources").glob("*.c")),
        ROOT / "csrc" / "python" / "module.c",
        ROOT / "csrc" / "python" / "py_sources.c",
        ROOT / "tests" / "sources" / "double.c",
    ]
    command = ["gcc", *FLAGS, *WARNINGS, f"-I{sysconfig.get_paths()['include']}", f"-I{ROOT / 'csrc'}"]
    subprocess.run([*command, *map(str, sources), "-o", str(target), "-ldl", "-lpthread"], check=True)
    return target


if __name__ == "__main__":
    import sys

    print(build(Path(sys.argv[1])))
