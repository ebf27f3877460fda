"""Builds csrc/frames with a memory log into a test extension, and reads that log back."""

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [path for path in (str(ROOT),) if path not in sys.path]

from tests.build import build as build_library  # noqa: E402

FLAGS = [
    "-std=gnu11", "-O2", "-g", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing", "-fPIC", "-shared",
    "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Werror",
]  # fmt: skip

STACK_NONE, STACK_LOST, STACK_FIRST = 0, 1, 2
TRUNCATED, COLLAPSED = 1, 2


def compile_extension(name: str, *defines: str, csrc: Path = ROOT / "csrc") -> Path:
    """The library of the extension module, compiled for this interpreter with these -D options."""
    parts = [*(csrc / "frames").glob("*.c"), csrc / "python/py_frames.c"]
    flags = [*FLAGS, *defines, *os.environ.get("CUPTIMEM_TEST_CFLAGS", "").split()]
    flags += [f'-DMODULE_NAME="{name}"', f"-DMODULE_SYMBOL={name}", f"-I{csrc}", f"-I{HERE}"]
    flags.append(f"-I{sysconfig.get_paths()['include']}")
    return build_library(f"{name}.so", [*parts, HERE / "deflog_memory.c", HERE / "frames_testing.c"], *flags)


def load(library: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(library.stem, str(library))
    spec = importlib.util.spec_from_loader(library.stem, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def build(name: str = "frames_testing", *defines: str) -> ModuleType:
    """The extension module, ready to capture. One per process and name."""
    module = load(compile_extension(name, *defines))
    why = module.frames_init()
    assert why is None, why
    assert module.frames_init() is None, "asking again is allowed"
    return module


@dataclass(frozen=True)
class Code:
    file: str
    name: str
    first_line: int
    lines: bytes


@dataclass(frozen=True)
class Stack:
    parent: int
    code: int
    offset: int  # code units
    flags: int
    module: int
    class_name: str


@dataclass(frozen=True)
class Frame:
    file: str
    name: str
    line: int
    lasti: int  # bytes, as f_lasti
    module: int
    class_name: str
    flags: int


class Log:
    """The definitions in a log's bytes. Refers only to what came before, else it raises."""

    def __init__(self, data: bytes) -> None:
        self.strings: list[str] = [""]
        self.codes: list[Code] = [Code("", "", 0, b"")]
        self.stacks: list[Stack] = [Stack(0, 0, 0, 0, 0, "")] * STACK_FIRST
        self.names: list[str] = [""]
        self._data, self._at = data, 0
        while self._at < len(data):
            self._record()
        self.resolve = cache(self._resolve)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _bytes(self) -> bytes:
        length = self._varint()
        self._at += length
        assert self._at <= len(self._data)
        return self._data[self._at - length : self._at]

    def _record(self) -> None:
        kind = self._varint()
        if kind == 1:
            self.strings.append(self._bytes().decode())
        elif kind == 2:
            file, name, line = (self._varint() for _ in range(3))
            assert file > 0 and name > 0
            self.codes.append(Code(self.strings[file], self.strings[name], line, self._bytes()))
        elif kind == 3:
            parent, code, offset, flags, module, class_name = (self._varint() for _ in range(6))
            assert parent == 0 or STACK_FIRST <= parent < len(self.stacks)
            assert code < len(self.codes)
            assert (code == 0) == (flags == TRUNCATED)
            self.stacks.append(Stack(parent, code, offset, flags, module, self.strings[class_name]))
        elif kind == 4:
            self.names.append(self._bytes().decode())
        else:
            raise AssertionError(f"unknown record kind {kind}")

    def _resolve(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack id, innermost first."""
        assert stack == 0 or stack >= STACK_FIRST, stack
        frames = []
        while stack:
            s = self.stacks[stack]
            c = self.codes[s.code]
            line = line_at(c.lines, c.first_line, s.offset) if s.code else 0
            frames.append(Frame(c.file, c.name, line, s.offset * 2, s.module, s.class_name, s.flags))
            stack = s.parent
        return tuple(frames)


def line_at(table: bytes, first_line: int, offset: int) -> int:
    """The line of a code unit by the location table of CPython 3.11+; -1 where it has none."""
    line, unit, i = first_line, 0, 0

    def varint() -> int:
        nonlocal i
        value = shift = 0
        while True:
            byte = table[i]
            i += 1
            value |= (byte & 63) << shift
            shift += 6
            if not byte & 64:
                return value

    def svarint() -> int:
        value = varint()
        return -(value >> 1) if value & 1 else value >> 1

    while i < len(table):
        head = table[i]
        assert head & 0x80
        i += 1
        kind, length = head >> 3 & 15, (head & 7) + 1
        if kind == 14:
            line += svarint()
            for _ in range(3):
                varint()
        elif kind == 13:
            line += svarint()
        elif kind in (10, 11, 12):
            line += kind - 10
            i += 2
        elif kind < 10:
            i += 1
        unit += length
        if offset < unit:
            return -1 if kind == 15 else line
    return -1
