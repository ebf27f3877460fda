"""Text of source lines that no file has: cells of a notebook, code of exec, modules in a zip file.

The collector reads files by itself (csrc/capture/source_text.h) and asks for the rest. What Python's own tracebacks
would show is taken from where they find it, linecache; nothing is put there. Runs inside the profiled process: imports
nothing.
"""

import sys

from cuptimem.errors import own

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from types import ModuleType


def supply(core: "ModuleType") -> None:
    """Gives the collector the lines that it has asked for."""
    known: dict[str, list[str]] = {}
    for asked, file, line, raw, encoding in core.source_asked():
        if raw is not None:
            text = _decode(raw, encoding)
        else:
            if file not in known:
                known[file] = _lines_of(file)
            text = known[file][line - 1] if line <= len(known[file]) else ""
        if text:
            core.source_answer(asked, text)


def _decode(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding, "replace")
    except own(LookupError, ValueError):  # the program runs, so only an import hook has this one
        return ""


def _lines_of(file: str) -> "list[str]":
    """What linecache would show, else what the module's loader returns; [] if neither has it."""
    try:
        linecache = sys.modules.get("linecache")
        entry = getattr(linecache, "cache", {}).get(file)
        if entry is None:
            source = _from_loader(file)
        elif len(entry) == 1:  # not loaded yet
            source = entry[0]()
        else:
            return [str(line) for line in entry[2]]
        # Not splitlines, which ends lines where the compiler does not.
        return source.replace("\r\n", "\n").replace("\r", "\n").split("\n") if isinstance(source, str) else []
    except own(Exception):  # the program's own loaders and caches may do anything; the line is unknown then
        return []


def _from_loader(file: str) -> object:
    """From a module of this file, as in a zip file. A module of a class of its own is not asked: one that is loaded
    when it is first used (importlib.util.LazyLoader) would be."""
    for module in list(sys.modules.values()):
        if type(module) is not type(sys):
            continue
        names = module.__dict__
        if names.get("__file__") == file:
            spec = names.get("__spec__")
            get_source = getattr(getattr(spec, "loader", None), "get_source", None)
            return None if spec is None or get_source is None else get_source(spec.name)
    return None
