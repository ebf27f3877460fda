"""What a program imports of libraries, as its text has it: without running it."""

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

_FILES = 200  # of the program's own that are read


def of_program(words: Sequence[str]) -> list[str]:
    """Names of modules, in the order of their imports. Those that are imported in functions count as well."""
    if words[0] == "-c":
        return [] if len(words) < 2 else list(dict.fromkeys(_of_text(words[1], os.getcwd(), set())))
    if words[0] == "-m":
        return []  # its package would be imported to find it: the first run says what was used
    home = os.path.dirname(os.path.abspath(words[0]))
    return list(dict.fromkeys(_of_file(words[0], home, set())))


def _of_file(path: str, home: str, seen: set[str]) -> Iterator[str]:
    if path in seen or len(seen) >= _FILES:
        return
    seen.add(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return
    yield from _of_text(text, home, seen)


def _of_text(text: str, home: str, seen: set[str]) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # the program will say it
        return
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            own = _own(name, home)
            if own:
                yield from _of_file(own, home, seen)
            elif not _own(name.partition(".")[0], home) and name.partition(".")[0] not in sys.stdlib_module_names:
                yield name


def _own(name: str, home: str) -> str:
    """The program's own file of this module, or ""."""
    path = os.path.join(home, *name.split("."))
    for file in (f"{path}.py", os.path.join(path, "__init__.py")):
        if os.path.isfile(file):
            return file
    return path if os.path.isdir(path) and not _is_library(name) else ""


def _is_library(name: str) -> bool:
    try:
        return "." in name or find_spec(name) is not None
    except (ImportError, ValueError):
        return False
