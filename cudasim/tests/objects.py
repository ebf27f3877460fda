"""Clients of the simulator, with its sources, under a sanitizer."""

import runpy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudasim.cards import CARDS
from tests.build import SANITIZERS, WARNINGS, build, generated, kept_tree
from tests.conftest import ROOT

SOURCES = ROOT / "cudasim" / "csrc"
TABLES = ROOT / "cudasim" / "tables"
if not TABLES.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)
generator = SimpleNamespace(**runpy.run_path(str(TABLES / "generate.py")))


def _headers() -> Path:
    with tempfile.TemporaryDirectory() as folder:
        generator.write(Path(folder), TABLES, CARDS)
        return kept_tree(Path(folder) / "generated").parent


INCLUDE = [f"-I{SOURCES}", f"-I{_headers()}"]
# GCC warns of fences, which ThreadSanitizer cannot follow; the report's is not at work here.
FLAGS = ["-std=gnu11", "-O1", "-g1", *WARNINGS, "-Wno-tsan", "-fno-sanitize-recover=all"]
FLAGS += ["-fPIC", "-fvisibility=hidden", *INCLUDE]
LIBRARIES = ["-lpthread", "-ldl", "-lm", "-lrt"]


def entries(tables: Path = TABLES) -> Path:
    """The source of the entry points that the tables of a folder list."""
    return generated("entries.c", generator.generate(tables))


def everything() -> list[Path]:
    return [*SOURCES.glob("*/*.c"), entries()]


def client(name: str, sanitizer: str, sources: Sequence[Path], link: Sequence[str | Path] = ()) -> Path:
    """A program or library of them."""
    return build(name, sources, *FLAGS, SANITIZERS[sanitizer], link=[*link, *LIBRARIES])
