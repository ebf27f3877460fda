"""Makes by hand what a row says that names places: a `del` of each variable behind its statement, in a line of its own,
`with torch.no_grad():` around each statement, or `zero_grad(set_to_none=True)` behind the optimizer's step.

A program's author may have had other places in mind, `detach()`, which leaves the graph of one iteration, or None for
gradients where forward has passed. Only the
row itself, followed, shows whether it saves what was foretold, and whether the program runs with it.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evidence.advice import judge, suite, truth


def deleting(text: str, places: Iterable[tuple[str, int]]) -> str:
    """places: variables, and the line with which the statement begins behind which each is deleted.

    Raises ValueError where no statement begins at a line.
    """
    return _behind(text, [(f"del {name}", line) for name, line in places])


def _behind(text: str, places: Iterable[tuple[str, int]]) -> str:
    """The text with these lines of code, each behind the statement that begins at a line."""
    statements: dict[int, ast.stmt] = {}
    for node in ast.walk(ast.parse(text)):  # outer ones come first
        if isinstance(node, ast.stmt):
            statements.setdefault(node.lineno, node)
    lines = text.splitlines()
    added: list[tuple[int, str]] = []
    for code, line in places:
        if line not in statements:
            raise ValueError(f"no statement begins at line {line}, for {code} behind it")
        statement = statements[line]
        added.append((statement.end_lineno or line, " " * statement.col_offset + code))
    for behind, new in sorted(added, key=lambda one: -one[0]):
        lines.insert(behind, new)
    return "\n".join(lines) + "\n"


class _Around(ast.NodeTransformer):
    """with torch.no_grad(): around each statement without a body that has one of these lines."""

    def __init__(self, lines: Iterable[int]) -> None:
        self.left = set(lines)
        self._lines = frozenset(self.left)

    def visit(self, node: ast.AST) -> Any:
        found = self.generic_visit(node)
        if not isinstance(node, ast.stmt) or hasattr(node, "body") or hasattr(node, "cases"):
            return found
        mine = self._lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if not mine:
            return found
        self.left -= mine
        guard = ast.parse("with torch.no_grad(): pass").body[0]
        assert isinstance(guard, ast.With)
        guard.body = [node]
        return guard


def without_graph(text: str, lines: Iterable[int]) -> str:
    """Raises ValueError for a line that is of no statement without a body."""
    around = _Around(lines)
    changed = around.visit(ast.parse(text))
    if around.left:
        raise ValueError(
            f"no statement without a body has line {min(around.left)}, around which torch.no_grad() could be"
        )
    return ast.unparse(ast.fix_missing_locations(changed)) + "\n"


def without_gradients(text: str, line: int) -> str:
    """line: a step's, or that of the zero_grad() which is to be behind the steps of its optimizer.

    Raises ValueError for a line that calls neither, or an optimizer that steps nowhere by this name."""
    steps: dict[int, str] = {}  # the optimizer, by line
    zeroed = ""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "step":
            steps[node.lineno] = ast.unparse(node.args[0] if node.args else node.func.value)  # of a scaler its argument
        elif node.func.attr == "zero_grad" and node.lineno == line:
            zeroed = ast.unparse(node.func.value)
    places = [(f"{of}.zero_grad(set_to_none=True)", at) for at, of in steps.items() if line == at or of == zeroed]
    if not places:
        raise ValueError(f"line {line} calls no step, and zero_grad of no optimizer that steps")
    return _behind(text, places)


def texts(program: suite.Program, said: dict[str, Any]) -> dict[str, str]:
    """The program as its rows say, by technique."""
    text, found = program.path.read_text(), {}
    if places := [tuple(one) for one in said.get("released", ())]:
        found["release"] = deleting(text, places)
    lines = json.loads(said.get("without_graph") or "{}")
    if lines.keys() == {str(program.path)}:  # else it is of a module beside the program
        found["no_grad"] = without_graph(text, lines[str(program.path)])
    for row in said["advice"].get("proposals", ()):
        by_hand = ".grad.zero_()" in text  # which would go, wherever that is
        if (
            row["technique"] == "set_to_none"
            and not by_hand
            and (lines_of := judge.lines_of(row["line"], program.name))
        ):
            found["set_to_none"] = without_gradients(text, *lines_of)
    return found


def follow(program: suite.Program, said: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the allocator says of the program with each row that names places."""
    found: dict[str, dict[str, Any]] = {}
    for technique, text in texts(program, said).items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[technique] = truth.measured(program, {technique: (text, {})}, Path(folder))[technique]
            except RuntimeError as error:
                found[technique] = {"error": str(error)}
    return found


def follow_all(programs: Sequence[suite.Program], answers: Path) -> None:
    """Writes what such rows of each answer save into it, where that has not been counted."""
    for program in programs:
        path = answers / f"{program.name}.json"
        if path.exists() and "followed" not in (said := json.loads(path.read_text())):
            said["followed"] = follow(program, said)
            path.write_text(json.dumps(said, indent=1) + "\n")
