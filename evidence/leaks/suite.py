"""The programs of evidence/leaks/programs, and how each is run under cuptimem."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import cuptimem
from evidence.leaks import judge
from evidence.leaks.truth import ROOT
from tests import pythons

PROGRAMS = ROOT / "evidence" / "leaks" / "programs"
STEPS = 36  # of the short run, where a program does not say "# STEPS 48"; the long one has three times as many
TIMEOUT_S = 180
VERSIONS = {"transformers": "5.23.0", "accelerate": "1.15.0"}  # of what programs may need beside torch
LABELS = ("LEAK", "GROWS", "NEGLIGIBLE")  # what growth is: evidence/leaks/programs/README.md


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the suite. Its comments are for the judge; nothing else reads them."""

    path: Path
    steps: int
    label: str  # of its marked lines, one of LABELS; "" of a clean program
    marks: tuple[int, ...]  # its marked lines
    needs: tuple[str, ...]  # packages
    about: str

    @property
    def name(self) -> str:
        return self.path.stem


def program(path: Path) -> Program:
    """Raises ValueError for one that breaks the suite's rules (evidence/leaks/programs/README.md)."""
    text = path.read_text()
    said = re.search(r"^# STEPS (\d+)$", text, re.MULTILINE)
    steps = int(said[1]) if said else STEPS
    ends = tuple(f"  # {label}" for label in LABELS)
    marked = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.endswith(ends)]
    if len(marked) != len(re.findall("|".join(LABELS), text)):
        raise ValueError(f"{path.name}: a mark is a line's last comment, '  # LEAK', and nothing else says {LABELS}")
    labels = sorted({line.rpartition(" ")[2] for _, line in marked})
    if len(labels) > 1:
        raise ValueError(f"{path.name}: one answer is right, not {' and '.join(labels)}")
    said = re.search(r"^# NEEDS (.+)$", text, re.MULTILINE)
    needs = tuple(said[1].split()) if said else ()
    if not set(needs) <= set(VERSIONS):
        raise ValueError(f"{path.name}: needs {' '.join(needs)}, of which VERSIONS does not have all")
    if not 24 <= steps <= 48:
        raise ValueError(f"{path.name}: {steps} steps, must be 24 to 48")
    if not re.fullmatch(r"p\d{2,3}", path.stem):
        raise ValueError(f"{path.name}: names tell nothing: p and a number")
    if re.search(r"cuptimem|tests\.|evidence", text) or "sys.argv[1]" not in text:
        raise ValueError(f"{path.name}: a program knows its number of steps, sys.argv[1], and nothing of us")
    if not text.startswith('"""'):
        raise ValueError(f"{path.name}: begins with what it does, in a line")
    return Program(
        path,
        steps,
        label="".join(labels),
        marks=tuple(number for number, _ in marked),
        needs=needs,
        about=text.splitlines()[0].strip('"'),
    )


def programs(names: Iterable[str] = ()) -> list[Program]:
    """All, or those named. Raises ValueError for an unknown name."""
    wanted = set(names)
    found = [program(path) for path in sorted(PROGRAMS.glob("*.py"))]
    unknown = wanted - {p.name for p in found}
    if unknown:
        raise ValueError(f"no program {sorted(unknown)[0]!r} in {PROGRAMS}")
    return [p for p in found if not wanted or p.name in wanted]


def interpreter(folder: Path) -> Path:
    """A Python as a user has it: an environment with cuptimem, its .pth, and everything that this one sees."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    site = next(folder.glob("lib/python3.*/site-packages"))
    seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    # The first letter puts it before cuptimem.pth, which needs it.
    (site / "__paths.pth").write_text("\n".join([str(ROOT), *seen]) + "\n")
    pythons.add_startup(site)
    return folder / "bin" / "python"


def record(program: Program, steps: int, python: Path, folder: Path) -> judge.Said:
    """Runs it under `cuptimem run` in a process of its own and reads the trace."""
    trace = folder / f"{program.name}-{steps}.cmem"
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("CUPTIMEM", "PYTEST", "PYTHON"))}
    command = [str(python), "-m", "cuptimem", "run", "-q", "-f", "-o", str(trace), str(program.path), str(steps)]
    try:
        done = subprocess.run(
            command,
            env={**variables, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return _failed(steps, f"still running after {TIMEOUT_S} s")
    if done.returncode != 0:
        return _failed(steps, f"exit {done.returncode}: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
    return read(trace, program, steps)


def read(trace: Path, program: Program, steps: int) -> judge.Said:
    report = cuptimem.open(trace)
    if not report.complete or not report.lost.heap_is_exact:
        return _failed(steps, f"the trace is {report.state}, {report.lost.events} events lost")
    loops = report.loops
    return judge.Said(
        steps,
        report.clock.kind,
        report.nodes is not None,
        tuple(judge.entry(leak, loops, program.path) for leak in report.leaks),
        tuple(judge.entry(leak, loops, program.path) for leak in report.suspects),
    )


def _failed(steps: int, why: str) -> judge.Said:
    return judge.Said(steps, None, False, (), (), why)
