"""The programs, their truth, and how they are run.

NAME.toml has what its author wrote: verdict, leaking line, holder, numbers of steps, sums. NAME.json has what
account.py counted, without cuptimem.
"""

import ast
import json
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pythons import WITH_LIBRARIES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "evidence" / "attribution"
PROGRAMS = FOLDER / "programs"
TIMEOUT = 300
KEYS = {"verdict", "leak", "leak_or", "holder", "device", "libraries", "diff", "together", "moment"}
TABLES = {"steps", "categories"}


def arithmetic(text: str) -> int:
    """The value of a sum that is written out: numbers, + - * / and brackets."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return value(left) + value(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return value(left) - value(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return value(left) * value(right)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return value(left) / value(right)
        raise ValueError(f"not a sum: {text}")

    result = value(ast.parse(text, mode="eval"))
    if result != int(result):
        raise ValueError(f"not a whole number: {text}")
    return int(result)


@dataclass(frozen=True)
class Program:
    name: str
    truth: Mapping[str, Any]  # NAME.toml
    counted: Mapping[str, Any]  # NAME.json; {} before it was counted

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    @property
    def device(self) -> str:
        return str(self.truth.get("device", "cpu"))

    @property
    def about(self) -> str:
        return ast.get_docstring(ast.parse(self.path.read_text())) or ""

    def numbers(self, table: str) -> dict[str, int]:
        """Of the truth's table of sums."""
        return {key: arithmetic(text) for key, text in self.truth.get(table, {}).items()}

    def line_of(self, code: str) -> int:
        """The number of the only line that has this code."""
        lines = [n for n, text in enumerate(self.path.read_text().splitlines(), 1) if code in text]
        if len(lines) != 1:
            raise ValueError(f"{self.name}: {code!r} is in {len(lines)} lines")
        return lines[0]

    def leaking(self) -> list[int]:
        """The lines that a leak may be told of: which makes it, which keeps it."""
        return [self.line_of(code) for code in [self.truth["leak"], *self.truth.get("leak_or", [])]]


def read(path: Path) -> Program:
    truth = tomllib.loads(path.read_text())
    unknown = set(truth) - KEYS - TABLES
    if unknown:
        raise ValueError(f"{path.name}: {unknown}")
    counted = path.with_suffix(".json")
    return Program(path.stem, truth, json.loads(counted.read_text()) if counted.exists() else {})


def programs(names: Sequence[str] = ()) -> list[Program]:
    found = [read(path) for path in sorted(PROGRAMS.glob("*.toml"))]
    missing = set(names) - {program.name for program in found}
    if missing:
        raise ValueError(f"no such program: {', '.join(sorted(missing))}")
    return [program for program in found if not names or program.name in names]


def run(command: Sequence[str | Path], device: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line of that interpreter, in the folder, with a simulated device for CUDA."""
    from tests.on_device.simulated import device as simulated

    clean = {k: v for k, v in os.environ.items() if not k.startswith("CUPTIMEM")}
    environment = {**clean, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    # What convolutions take for themselves depends on the CPU's instructions: use what all have.
    environment |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    if device == "cuda":
        environment |= simulated.environment()
    return subprocess.run(
        [WITH_LIBRARIES, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
