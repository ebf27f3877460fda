"""Views that keep a large tensor."""

import ast
import json
from typing import Any

import torch

from cuptimem.simulation.changes import sources
from cuptimem.simulation.changes.change import Change

_TAKES = ("narrow", "select", "__getitem__")  # methods


class CloneView(Change):
    """A copy of each part of a tensor that expressions of these lines take, in the program's source.

    value: lines by file, as JSON; "" for none.
    """

    why_not = "no view that keeps a large tensor is seen"

    def install(self) -> None:
        self._lines: dict[str, list[int]] = json.loads(self.value) if self.value else {}
        if self._lines:
            sources.edit(self._lines.__contains__, self._edited)

    def _edited(self, tree: ast.Module, source: str | bytes, file: str, is_script: bool) -> bool:
        cloning = _Cloning(frozenset(self._lines[file]))
        cloning.visit(tree)
        self.applied += cloning.count
        return cloning.count > 0


class _Cloning(ast.NodeTransformer):
    def __init__(self, lines: frozenset[int]) -> None:
        self.count = 0
        self._lines = lines

    def visit(self, node: ast.AST) -> Any:
        takes = (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKES
        )
        if not takes or not self._lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):  # type: ignore[attr-defined]
            return self.generic_visit(node)
        self.count += 1
        whole = ast.parse(f"__import__({__name__!r}, fromlist=['own']).own(0)", mode="eval").body
        assert isinstance(whole, ast.Call)
        for one in ast.walk(whole):
            ast.copy_location(one, node)
        whole.args = [node]  # type: ignore[list-item]
        return whole


def own(taken: Any) -> Any:
    """A part of a tensor, in memory of its own; anything else as it is."""
    is_part = isinstance(taken, torch.Tensor) and taken.untyped_storage().nbytes() >= 2 * taken.nbytes > 0
    return taken.clone() if is_part else taken
