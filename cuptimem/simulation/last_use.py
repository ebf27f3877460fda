"""Which variables of the program's running functions hold what a `del` in their source would have let go of.

Where a `del` changes nothing else is read off the source (deletions.py). A name of another module than the script, or
of a class, may be read as an attribute from anywhere: it is never one of these.
"""

import ctypes
import re
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from cuptimem.simulation.deletions import Deletions
from cuptimem.simulation.places import is_programs, source

_FUNCTION = 0x1  # of co_flags: its variables have numbers
_READS_SCRIPT = re.compile(r"\bimport\s+__main__|\bfrom\s+__main__|\bmodules\b.*__main__|import_module.*__main__")


def unread(frame: FrameType | None) -> list[tuple[str, int, FrameType, Any]]:
    """Variables of the program's own frames, from this one outwards, that are not read again: the name, the line of the
    statement behind which it can be deleted, the frame and the value."""
    found: list[tuple[str, int, FrameType, Any]] = []
    while frame is not None:
        code = frame.f_code
        if is_programs(code.co_filename) and _is_private(frame) and (names := _deleted(code, frame.f_lasti)):
            variables = frame.f_locals
            found += [(name, line, frame, variables[name]) for name, line in names if name in variables]
            forget(frame, variables)
        frame = frame.f_back
    return found


def let_go(frame: FrameType, name: str) -> None:
    """Of what a variable holds."""
    variables = frame.f_locals
    variables[name] = None
    if _is_copy(frame):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    forget(frame, variables)


def forget(frame: FrameType, variables: Any) -> None:
    """A copy of a function's variables would hold what these let go of."""
    if _is_copy(frame):
        variables.clear()


def is_read_behind(frame: FrameType, name: str) -> bool:
    """Whether anything may read this variable of a running function behind the call that it makes."""
    return not _is_private(frame) or _is_read_behind(frame.f_code, frame.f_lasti, name)


def _is_copy(frame: FrameType) -> bool:
    """Whether f_locals is one of the variables: of functions until Python 3.12."""
    return sys.version_info < (3, 13) and bool(frame.f_code.co_flags & _FUNCTION)


def _is_private(frame: FrameType) -> bool:
    """Whether its variables are a function's, or those of the script that no other module reads."""
    if frame.f_code.co_flags & _FUNCTION:
        return True
    is_script = frame.f_globals is vars(sys.modules["__main__"]) and frame.f_code.co_filename == script()
    return is_script and not _is_imported(len(sys.modules))


def script() -> str:
    return str(getattr(sys.modules["__main__"], "__file__", None) or "")


@lru_cache(1)
def _is_imported(_: int) -> bool:
    """Whether a module of the program, of those loaded so far, reads the script's variables."""
    files = {getattr(one, "__file__", None) for one in list(sys.modules.values())}
    return any(_READS_SCRIPT.search(source(one)) for one in files if isinstance(one, str) and is_programs(one))


@lru_cache(None)
def _is_read_behind(code: CodeType, offset: int, name: str) -> bool:
    found = of_file(code.co_filename)
    return found is None or found.is_read_behind(code, offset, name)


@lru_cache(None)
def _deleted(code: CodeType, offset: int) -> tuple[tuple[str, int], ...]:
    found = of_file(code.co_filename)
    return found.deleted(code, offset) if found is not None else ()


@lru_cache(None)
def of_file(file: str) -> Deletions | None:
    try:
        return Deletions(source(file), file, file == script())
    except (SyntaxError, ValueError, RecursionError):  # no Python, or none that can be read
        return None
