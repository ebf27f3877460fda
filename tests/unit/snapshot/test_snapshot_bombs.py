"""The memory that docs/exports.md promises, for pickles that were made to take the most."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.snapshot.bombs import BOMBS

ROOT = Path(__file__).resolve().parents[3]
PER_BYTE, ALWAYS = 64, 16 << 20


@pytest.mark.parametrize("name", BOMBS)
def test_memory_of_a_bomb(name: str) -> None:
    words = [sys.executable, "-m", "tests.unit.snapshot.bombs", name]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    length, taken, said = done.stdout.split(" ", 2)
    assert int(taken) < PER_BYTE * int(length) + ALWAYS, said
