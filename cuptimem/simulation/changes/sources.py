"""The program's source, which a change edits before it is compiled; its files stay as they are."""

import ast
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from cuptimem.simulation.changes.change import patch

Edit = Callable[[str | bytes, str, bool], ast.Module | None]  # of a source, its file, and whether that is the script

_edits: list[Edit] = []


def edit(make: Edit) -> None:
    """make(source, file, is_script) is asked for each file; None: it stays as it is."""
    if not _edits:
        patch(SourceFileLoader, "get_code", _of_module)
    _edits.append(make)


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
    trees = (make(source, file, is_script) for make in _edits)
    tree = next((one for one in trees if one is not None), None)
    return None if tree is None else compile(tree, file, "exec", dont_inherit=True)
