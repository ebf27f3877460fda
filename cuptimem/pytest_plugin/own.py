"""The packages whose tests these are. Also where they are installed, as with tox, they are the user's own code."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePath

from cuptimem import regular_files

_INSTALLED = "-packages"  # site-packages, dist-packages
_LARGEST = 4 << 20  # bytes of a pyproject.toml


def packages(root: Path) -> tuple[str, ...]:
    """Installed packages of the project at `root`, as `cuptimem --code` takes them: what the distribution of its name
    has brought, and what has its sources there. Of an editable install none: its code is the user's anyway."""
    if any(part.endswith(_INSTALLED) for part in root.parts):  # pytest --pyargs: the tests are installed, too
        return ()
    return tuple(sorted({*_of_distribution(root), *_with_sources(root)}))


def _of_distribution(root: Path) -> Iterator[str]:
    try:
        text = regular_files.content(root / "pyproject.toml", _LARGEST).decode()
        name = tomllib.loads(text)["project"]["name"]
        files = metadata.files(name)
    except (OSError, ValueError, KeyError, TypeError, metadata.PackageNotFoundError):  # no project, or none installed
        return
    yield from _modules(files or ())


def _modules(files: Iterable[PurePath]) -> set[str]:
    """Top-level packages and modules among a distribution's files. Of a namespace, which it shares, its parts."""
    code = [file for file in files if file.suffix in (".py", ".so") and file.parts[0] != ".."]
    whole = {file.parts[:-1] for file in code if file.name == "__init__.py"}
    found = set()
    for file in code:
        above = (file.parts[:end] for end in range(1, len(file.parts)))
        parts = next((part for part in above if part in whole), (*file.parts[:-1], file.name.partition(".")[0]))
        if all(part.isidentifier() for part in parts) and not parts[0].startswith("__editable__"):
            found.add(".".join(parts))
    return found


def _with_sources(root: Path) -> Iterator[str]:
    for folder in (root, root / "src"):
        for file in folder.glob("*/__init__.py"):
            name = file.parent.name
            if name.isidentifier() and _is_installed(name):
                yield name


def _is_installed(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # of a module that was made by hand
        return False
    origin = spec.origin if spec is not None else None
    return re.search(rf"{_INSTALLED}[/\\]", origin or "") is not None
