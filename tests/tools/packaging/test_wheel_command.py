"""What cibuildwheel runs in each wheel has all that it imports among the sources that it gets."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

INSTALLED = {"cuptimem", "cudasim"}


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _files(name: str) -> list[Path]:
    """Of the tree, with its packages'."""
    parts = name.split(".")
    places = [ROOT.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
    return [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]


def test_the_command_imports_only_what_it_gets() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    named = [ROOT / word for word in settings["test-command"].split() if word.endswith(".py")]
    assert named and all(file.is_file() for file in named)
    seen: set[Path] = set()
    left = [*named, *(place / "conftest.py" for file in named for place in file.parents if place.is_relative_to(ROOT))]
    while left:
        file = left.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        assert file.relative_to(ROOT).parts[0] in settings["test-sources"], file
        for name in _imported(file):
            if name.partition(".")[0] not in INSTALLED:
                left += _files(name)
    assert len(seen) > len(named)
