"""Makes by hand what a row of `release` says: a `del` of each variable, in a line of its own behind the statement.

What it says to delete may not be what the program's author had in mind. Only the row itself, followed, shows whether it
saves what was foretold, and whether the program runs with it.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evidence.advice import suite, truth


def deleting(text: str, places: Iterable[tuple[str, int]]) -> str:
    """places: variables, and the line with which the statement begins behind which each is deleted.

    Raises ValueError where no statement begins at a line.
    """
    statements: dict[int, ast.stmt] = {}
    for node in ast.walk(ast.parse(text)):  # outer ones come first
        if isinstance(node, ast.stmt):
            statements.setdefault(node.lineno, node)
    lines = text.splitlines()
    added: list[tuple[int, str]] = []
    for name, line in places:
        if line not in statements:
            raise ValueError(f"no statement begins at line {line}, behind which to delete {name}")
        statement = statements[line]
        added.append((statement.end_lineno or line, f"{' ' * statement.col_offset}del {name}"))
    for behind, new in sorted(added, key=lambda one: -one[0]):
        lines.insert(behind, new)
    return "\n".join(lines) + "\n"


def follow(program: suite.Program, said: dict[str, Any]) -> dict[str, Any]:
    """What the allocator says of the program with the row's deletions; {} where nothing is to be deleted."""
    places = [tuple(one) for one in said.get("released", ())]
    if not places:
        return {}
    changed = deleting(program.path.read_text(), places)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return dict(truth.measured(program, {"release": (changed, {})}, Path(folder))["release"])
        except RuntimeError as error:
            return {"error": str(error)}


def follow_all(programs: Sequence[suite.Program], answers: Path) -> None:
    """Writes what each answer's row of `release` saves into it, where it has not been counted."""
    for program in programs:
        path = answers / f"{program.name}.json"
        if path.exists() and "followed" not in (said := json.loads(path.read_text())):
            said["followed"] = follow(program, said)
            path.write_text(json.dumps(said, indent=1) + "\n")
