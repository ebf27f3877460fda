"""Location tables against CPython's own reading of them, for every code object of many modules."""

import ctypes
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("linetable_check.py")


def pythons() -> list[str]:
    """This interpreter, and whichever other versions with location tables run here."""
    found = [sys.executable]
    for minor in (11, 12, 13, 14):
        path = shutil.which(f"python3.{minor}")
        if path is None or minor == sys.version_info.minor:
            continue
        probe = subprocess.run([path, "-c", ""], check=False, capture_output=True)
        if probe.returncode == 0:
            found.append(path)
    pyenv = Path.home() / ".pyenv" / "versions"
    for minor in (12, 13):
        if not any(f"3.{minor}" in path for path in found):
            found += [str(path) for path in sorted(pyenv.glob(f"3.{minor}.*/bin/python"))[:1]]
    return found


@pytest.mark.parametrize("python", pythons())
def test_against_co_positions(lib: Any, python: str) -> None:
    done = subprocess.run([python, "-I", str(PROGRAM), lib._name], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    codes, positions, wrong = map(int, done.stdout.split())
    assert wrong == 0
    assert codes > 5000 and positions > 300_000


def find(lib: Any, table: bytes, offset: int, first_line: int = 100) -> tuple[bool, list[int]]:
    out = (ctypes.c_int * 4)()
    found = lib.cm_linetable_find(table, len(table), first_line, offset, out)
    return bool(found), list(out)


def test_any_bytes(lib: Any) -> None:
    """No table makes it read outside or loop: short ones, endless varints, no start bits."""
    assert find(lib, b"", 0) == (False, [-1] * 4)
    assert find(lib, b"\x00\x01", 0) == (False, [-1] * 4)
    assert find(lib, b"\xe8", 0) == (True, [100, 100, -1, -1])  # its line delta is missing: 0
    assert find(lib, b"\xe8" + b"\x7f" * 50, 0)[0]
    assert find(lib, b"\xf0" + b"\x7f" * 3, 0)[0]
    for first in range(256):
        for second in (0, 0x3F, 0x7F, 0xFF):
            for length in range(6):
                found, position = find(lib, bytes([first]) + bytes([second]) * length, length, 2**31 - 1)
                assert found or position == [-1] * 4


def f(x: int) -> int:
    return (
        x +
        len("é" * x)
    )  # fmt: skip


def test_lines_and_columns_of_a_function(lib: Any) -> None:
    code: types.CodeType = f.__code__
    assert len(set(code.co_positions())) > 4
    for i, (line, end_line, column, end_column) in enumerate(code.co_positions()):
        found, position = find(lib, code.co_linetable, i, code.co_firstlineno)
        assert found
        assert position == [-1 if value is None else value for value in (line, end_line, column, end_column)]
