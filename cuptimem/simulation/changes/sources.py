"""The program's source, which a change edits before it is compiled; its files stay as they are."""

import ast
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from cuptimem.simulation.changes.change import patch

Wants = Callable[[str], bool]  # of a file
# Edits a tree in place: of a source, its file, and whether that is the script. Whether it did is the answer.
Edit = Callable[[ast.Module, str | bytes, str, bool], bool]

_edits: list[tuple[Wants, Edit]] = []


def edit(wants: Wants, make: Edit) -> None:
    """make(tree, source, file, is_script) is asked for each file that it wants."""
    if not _edits:
        patch(SourceFileLoader, "get_code", _of_module)
    _edits.append((wants, make))


def compiled(source: str | bytes, file: str) -> CodeType:
    """The script's. Raises SyntaxError or ValueError."""
    return _edited(source, file, True) or compile(source, file, "exec", dont_inherit=True)


def _of_module(original: Any) -> Any:
    def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
        file = self.get_filename(name)
        found: CodeType | None = _edited(self.get_data(file), file, False) or original(self, name)
        return found

    return get_code


def _edited(source: str | bytes, file: str, is_script: bool) -> CodeType | None:
    if not (mine := [make for wants, make in _edits if wants(file)]):
        return None
    tree = ast.parse(source, file)
    are_edited = [make(tree, source, file, is_script) for make in mine]
    return compile(tree, file, "exec", dont_inherit=True) if any(are_edited) else None
