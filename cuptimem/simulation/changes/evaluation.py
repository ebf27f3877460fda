"""What an evaluation keeps."""

import ast
import json
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from cuptimem.simulation.changes import calls, sources
from cuptimem.simulation.changes.change import Change, patch, refuse

_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert)


class NoGrad(Change):
    """torch.no_grad() around statements of the program, in its source, or around calls of models in evaluation mode,
    unless a gradient is to go through them.

    value: lines of the statements by file, as JSON; "" for those calls.
    """

    why_not = "no model is called in evaluation mode while autograd is on"

    def install(self) -> None:
        self._lines: dict[str, list[int]] = json.loads(self.value) if self.value else {}
        if self._lines:
            sources.edit(self._lines.__contains__, self._edited)
        else:
            calls.around(self._around)

    def _edited(self, tree: ast.Module, source: str | bytes, file: str, is_script: bool) -> bool:
        lines = set(self._lines[file])
        statements = [one for one in ast.walk(tree) if isinstance(one, _SIMPLE) and not _suspends(one)]
        chosen: set[ast.stmt] = {
            one for one in statements if lines & set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
        }
        for line in lines:
            if not any(one.lineno <= line <= (one.end_lineno or 0) for one in chosen):
                refuse(f"line {line} is no statement of its own, around which torch.no_grad() could be")
        _Around(chosen).visit(tree)
        self.applied += len(chosen)
        return bool(chosen)

    def _around(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> AbstractContextManager[Any] | None:
        if module.training or not torch.is_grad_enabled():
            return None
        given = _pytree.tree_leaves((arguments, keywords))
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in given):
            return None
        self.applied += 1
        self.write = "with torch.no_grad(): around this line"
        self.saw(calls.elements(given))
        return torch.no_grad()


def _suspends(statement: ast.stmt) -> bool:
    """Whether other code runs before it ends, which would be without gradients, too."""
    return any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await) for one in ast.walk(statement))


class _Around(ast.NodeTransformer):
    def __init__(self, chosen: set[ast.stmt]) -> None:
        self._chosen = chosen

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        if node not in self._chosen:
            return found
        guard = ast.parse("with __import__('torch').no_grad(): pass").body[0]
        assert isinstance(guard, ast.With)
        for one in ast.walk(guard):
            ast.copy_location(one, node)
        guard.body = [found]
        return guard


class KeepEvaluation(Change):
    """Trainer's eval_accumulation_steps=1: what an evaluation gathers goes to the host after each step."""

    why_not = "no evaluation of a transformers Trainer gathers outputs on the device"

    def install(self) -> None:
        try:
            trainer: Any = import_module("transformers.trainer").Trainer
        except ImportError:  # then the program has no Trainer either
            return
        patch(trainer, "evaluation_loop", self._kept_short)

    def _kept_short(self, original: Any) -> Any:
        def evaluation_loop(this: Any, *arguments: Any, **keywords: Any) -> Any:
            if this.args.eval_accumulation_steps is None:
                this.args.eval_accumulation_steps = 1
                self.applied += 1
                self.saw(1)
            return original(this, *arguments, **keywords)

        return evaluation_loop
