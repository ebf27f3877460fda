"""The stress program, and Python programs in child processes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from capture_support import ROOT, Program, Stress, compile_stress


@pytest.fixture(scope="session")
def stress_program() -> Path:
    return compile_stress()


@pytest.fixture
def stress(stress_program: Path, tmp_path: Path) -> Stress:
    rings = tmp_path / "rings"
    rings.mkdir()
    return Stress(stress_program, tmp_path, rings)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs a program with `c` (the extension), `path` (a trace to write) and `rings` (a folder) defined."""
    rings = tmp_path / "rings"
    rings.mkdir()

    def run(text: str, *words: object, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        prelude = f"""\
            import os, signal, sys, threading, time
            from cuptimem import _core as c
            path, rings = {str(tmp_path / "t.cmem")!r}, {str(rings)!r}
        """
        whole = textwrap.dedent(prelude) + textwrap.dedent(text)
        done = subprocess.run(
            [sys.executable, "-c", whole, *map(str, words)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "CUPTIMEM_RING_DIR": str(rings), **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check:
            assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode} {done.stdout}{done.stderr}"
        return done

    return run
