"""Clients of the simulator, with its sources, under a sanitizer."""

import runpy
from collections.abc import Sequence
from pathlib import Path

from tests.build import SANITIZERS, WARNINGS, build, generated
from tests.conftest import ROOT

SOURCES = ROOT / "csrc" / "simulator"
TABLES = SOURCES / "tables"
# GCC warns of fences, which ThreadSanitizer cannot follow; the report's is not at work here.
FLAGS = ["-std=gnu11", "-O1", "-g1", *WARNINGS, "-Wno-tsan", "-fno-sanitize-recover=all"]
FLAGS += ["-fPIC", "-fvisibility=hidden", f"-I{SOURCES}"]
LIBRARIES = ["-lpthread", "-ldl", "-lm", "-lrt"]


def entries(tables: Path = TABLES) -> Path:
    """The source of the entry points that the tables of a folder list."""
    return generated("entries.c", runpy.run_path(str(TABLES / "generate.py"))["generate"](tables))


def everything() -> list[Path]:
    return [*SOURCES.glob("*/*.c"), entries()]


def client(name: str, sanitizer: str, sources: Sequence[Path], link: Sequence[str | Path] = ()) -> Path:
    """A program or library of them."""
    return build(name, sources, *FLAGS, SANITIZERS[sanitizer], link=[*link, *LIBRARIES])
