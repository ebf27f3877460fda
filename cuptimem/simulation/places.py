"""Lines of the program, as notes of a simulated process have them.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import stat
import sys
from functools import lru_cache
from itertools import islice
from types import FrameType

from cuptimem import interpreter

Place = tuple[str, int, str]  # file, line, function; "" and 0: no Python line

_COMPOUND = re.compile(r"\s*(for|while|if|with|try|async|def|class|match(?=.*:\s*(?:#.*)?$))\b")
_LARGEST = 4 << 20  # bytes of a source file, as CM_SOURCE_READ_MAX of csrc/capture/source_text.h
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_library(file: str) -> bool:
    """As reports decide it."""
    from cuptimem import _core  # not above: the manual page is made of parsers that import this, before there is one

    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(script, str):  # gone when the script has ended
        script = interpreter.script_of(sys.orig_argv)
    return _core.is_library(file, "", os.path.abspath(script) if "\0" not in script else "")


@lru_cache(None)
def is_programs(file: str) -> bool:
    """Whether its code is the program's own: no library's, and none of this package."""
    return not file.startswith(_PACKAGE) and not is_library(file)


def user_place(frame: FrameType | None) -> Place:
    """The innermost frame of the user's own code, else of any."""
    nearest: Place | None = None
    while frame is not None:
        place = _place(frame)
        if place is not None:
            if not is_library(place[0]):
                return place
            nearest = nearest or place
        frame = frame.f_back
    return nearest or ("", 0, "")


def call_place(frame: FrameType | None) -> Place | None:
    """The innermost frame of the user's own code outside of calls of modules; None: there is none."""
    found = None
    while frame is not None:
        if frame.f_code.co_name == "_call_impl":
            found = None
        elif found is None and is_programs(frame.f_code.co_filename):
            found = _place(frame)
        frame = frame.f_back
    return found


def library_place(frame: FrameType | None) -> Place:
    """The innermost frame: of a library, where the user's code has called one."""
    while frame is not None:
        place = _place(frame)
        if place is not None and not place[0].endswith(("/torch/_tensor.py", "/torch/utils/_device.py")):
            return place
        frame = frame.f_back
    return ("", 0, "")


def all_places(frame: FrameType | None) -> list[Place]:
    """The innermost first."""
    found = []
    while frame is not None:
        place = _place(frame)
        if place is not None:
            found.append(place)
        frame = frame.f_back
    return found


def _place(frame: FrameType) -> Place | None:
    code = frame.f_code
    if code.co_filename.startswith(_PACKAGE):
        return None
    return code.co_filename, frame.f_lineno, code.co_qualname


class Places:
    """The text of lines, as it was when they were first asked for."""

    def __init__(self) -> None:
        self._text: dict[tuple[str, int], str] = {}

    def text(self, place: Place) -> str:
        file, line, _ = place
        if (file, line) not in self._text:
            self._text[file, line] = _line_of(file, line)
        return self._text[file, line]


def _line_of(file: str, line: int) -> str:
    """The line as a traceback would show it."""
    return linecache.getline(file, line).rstrip("\r\n") if _is_source(file) else ""


def call_text(frame: FrameType) -> str:
    """The lines of the call that a frame makes."""
    first, last, *_ = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None, None))
    if first is None or last is None:
        return _line_of(frame.f_code.co_filename, frame.f_lineno)
    return "\n".join(_line_of(frame.f_code.co_filename, line) for line in range(first, last + 1))


def statement(file: str, line: int) -> str:
    """The word that begins a statement with a body (for, while, if, with, ...); "" for a line that has none."""
    found = _COMPOUND.match(_line_of(file, line))
    return found[1] if found else ""


def source(file: str) -> str:
    """The whole text, as tracebacks have it; "" if there is none."""
    return "".join(linecache.getlines(file)) if _is_source(file) else ""


@lru_cache(None)
def tree(file: str) -> ast.Module | None:
    """What the text of a file is parsed to; None: it is no Python, or none that can be read."""
    try:
        return ast.parse(source(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_source(file: str) -> bool:
    """Code may name any file as its own: devices, pipes and files that are too large are not read."""
    if file in linecache.cache:
        return True
    try:
        found = os.stat(file)
    except (OSError, ValueError):  # ValueError: a NUL
        return False
    return stat.S_ISREG(found.st_mode) and 0 < found.st_size <= _LARGEST  # those of /proc have no size
