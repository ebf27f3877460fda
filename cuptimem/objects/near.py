"""What names of the program's own lead to: variables of its running functions, then of its modules.

However many objects the process has, a bounded number of them is read: while the program runs nothing else may be.
Objects are read as in cuptimem/objects/referrers.py: no code of the program runs.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from cuptimem import _core, interpreter
from cuptimem.objects.living import mro

WEAK = 2  # what a name of a library's, a kept result or a traceback costs, in steps of a path
OWN = str(Path(__file__).parents[1]) + os.sep

_Shown = tuple[str, int, bool]  # of a module: name, cost, whether it is a notebook

module_dict = type.__dict__["__dict__"].__get__(types.ModuleType)["__dict__"].__get__
_libraries: set[str] = set()  # names of modules that are no more looked at: a look at each would take milliseconds


def modules() -> Iterator[tuple[dict[str, Any], _Shown]]:
    """All namespaces."""
    for name in list(sys.modules):
        space = _space(name)
        if space is not None:
            yield space, _shown(name, space)


def own_modules() -> list[tuple[dict[str, Any], _Shown]]:
    """The namespaces of the program's own modules."""
    found = []
    for name in list(sys.modules):
        if name not in _libraries:
            space = _space(name)
            shown = None if space is None else _shown(name, space)
            if space is not None and shown is not None and shown[1] == 1 and not is_part(name, space):
                found.append((space, shown))
            elif type(name) is str and name != "__main__":
                _libraries.add(name)
    return found


def is_part(name: str, space: dict[str, Any]) -> bool:
    """Whether it is ours, or inside a module of C (torch._C._nn)."""
    file = space.get("__file__")
    return file.startswith(OWN) if type(file) is str else "." in name


def _space(name: object) -> dict[str, Any] | None:
    module = sys.modules.get(name) if type(name) is str and name != "__mp_main__" else None
    if type(module) is not types.ModuleType and not any(one is types.ModuleType for one in mro(type(module))):
        return None
    space = module_dict(module)
    return space if type(space) is dict else None


def _shown(name: str, space: dict[str, Any]) -> _Shown:
    file = space.get("__file__")
    is_notebook = name == "__main__" and type(space.get("Out")) is dict and "get_ipython" in space
    if name == "__main__":  # its __file__ is gone when the script has ended
        script = file if type(file) is str else interpreter.script_of(sys.orig_argv)
        name = Path(script).stem if script.endswith(".py") else name
    is_weak = name in sys.stdlib_module_names or (type(file) is str and is_library(file))
    return name, 1 + (WEAK if is_weak else 0), is_notebook


@lru_cache(1 << 13)
def is_library(file: str) -> bool:
    return _core.is_library(file)


def outwards(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """A frame and those that called it, without our own."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OWN):
            yield frame
        frame = frame.f_back


def objects(most: int) -> list[Any]:
    """The nearest to names of the program's own."""
    spaces = [space for space, _ in own_modules()]
    values: list[Any] = []
    current = sys._current_frames()
    while current:
        # Not a variable of its own: this frame is among them, and would be a cycle with what they refer to.
        for one in list(outwards(current.popitem()[1])):
            if not is_library(one.f_code.co_filename):
                values.extend(_core.frame_locals(one).values())
    return _core.reachable([*values, *(value for space in spaces for value in list(space.values()))], spaces, most)
