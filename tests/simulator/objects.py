"""The simulator's sources as object files: compiled once for each sanitizer, and linked by several tests' clients."""

import runpy
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT

SOURCES = ROOT / "csrc" / "simulator"
# GCC warns of fences, which ThreadSanitizer cannot follow; the report's is not at work here.
FLAGS = ["-std=gnu11", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-Wno-tsan"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-fno-sanitize-recover=all"]
FLAGS += ["-fPIC", "-fvisibility=hidden", f"-I{SOURCES}"]
LIBRARIES = ["-lpthread", "-ldl", "-lm", "-lrt"]


def gcc(sanitizer: str, *words: str | Path, folder: Path) -> None:
    done = subprocess.run(
        ["gcc", *FLAGS, f"-fsanitize={sanitizer}", *words], capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert done.returncode == 0, done.stderr


@dataclass
class Objects:
    """Those of one sanitizer, in a folder of their own."""

    sanitizer: str
    folder: Path
    made: dict[Path, Path] = field(default_factory=dict)

    def of(self, sources: list[Path]) -> list[Path]:
        """Compiles what nobody has asked for yet."""
        missing = [path for path in sources if path not in self.made]
        if missing:
            gcc(self.sanitizer, "-c", *missing, folder=self.folder)
            self.made.update({path: self.folder / path.with_suffix(".o").name for path in missing})
        return [self.made[path] for path in sources]

    def all(self, tables: Path = SOURCES / "tables") -> list[Path]:
        """Everything, with the entry points that the tables list."""
        return self.of([*sorted(SOURCES.glob("*/*.c")), self.entries(tables)])

    def entries(self, tables: Path = SOURCES / "tables") -> Path:
        target = self.folder / f"entries_{tables.parent.name}.c"
        if not target.exists():
            target.write_text(runpy.run_path(str(SOURCES / "tables" / "generate.py"))["generate"](tables))
        return target

    def link(self, target: Path, objects: list[Path], *words: str | Path) -> Path:
        """A program or library of those objects and more sources."""
        gcc(self.sanitizer, *words, *objects, "-o", target, *LIBRARIES, folder=target.parent)
        return target
