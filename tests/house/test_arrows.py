"""Which room includes or imports which: the tables below are the only arrows, and each is used.

A room is a folder of csrc/ or cuptimem/. Python has two columns: what a module imports when it is loaded, and what its
functions import besides when they run. Imports for type checkers need either.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
C, PYTHON = ROOT / "csrc", ROOT / "cuptimem"

# "base" of Python is the modules beside the folders; "front" is __init__.py and __main__.py, which load all by name.
INCLUDES = {
    "base": "",
    "frames": "base",
    "trace": "base",
    "capture": "base frames trace",
    "sources": "base frames capture",
    "heap": "base trace",
    "analysis": "base trace heap",
    "exports": "base heap analysis",
    "snapshot": "base trace",
    "compact": "base trace heap capture",  # of capture the ring file
    "recover": "base trace capture",  # of capture the ring file
    "python": "base frames trace capture sources heap analysis exports snapshot compact recover",
}
# What "the ring file" is: the headers of capture that these rooms include.
RING_FILE = {
    ("compact", "capture"): {"ring_layout.h"},
    ("recover", "capture"): {"ring_layout.h", "ring_owner.h", "ringfile.h", "merge.h"},
}
IMPORTS = {
    "base": ("base", "notebook"),  # `displayed`: an object shows itself where a notebook asks
    "objects": ("base", ""),
    "report": ("base", "output advice"),  # a report prints itself, and advises
    # A Profile has a report's figures, and `holders` looks for what holds the leaks of one. The file that starts a
    # recording also starts a simulated child.
    "record": ("base objects report", "output simulation live"),
    "output": ("base report distributed", ""),
    "distributed": ("base report", "record output"),  # Ranks print themselves
    "advice": ("base report", ""),
    "simulation": ("base record report output", ""),
    "doctor": ("base record report output simulation", ""),
    "tensorboard": ("base distributed record report output", ""),
    "notebook": ("base objects record report output simulation", ""),
    "integrations": ("base record report output", ""),
    "live": ("base report output", ""),
    "pytest_plugin": ("base objects record report output simulation", ""),
    # A verb but `simulate` needs nothing of simulation.
    "cli": ("base record report output advice doctor live", "simulation distributed"),
    "front": ("", "advice base distributed record report simulation tensorboard notebook integrations cli"),
}
Arrows = dict[tuple[str, str], set[str]]  # the files that have each


def includes() -> Arrows:
    """Between rooms of C."""
    found: Arrows = {}
    for file in sorted([*C.rglob("*.c"), *C.rglob("*.h")]):
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read_text(), re.MULTILINE):
            target = (file.parent / name).resolve()
            if name.startswith(("internal/", "generated/")):  # of CPython; made of the simulator's tables
                continue
            assert target.is_file(), f"{file}: {name}"
            rooms = [path.relative_to(C).parts[0] for path in (file, target)]
            if rooms[0] != rooms[1]:
                found.setdefault((rooms[0], rooms[1]), set()).add(f"{file.relative_to(C)}: {name}")
    return found


def modules() -> dict[str, Path]:
    found = {}
    for file in PYTHON.rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def imported(node: ast.AST, importer: str) -> Iterator[str]:
    """The modules of cuptimem that one statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{importer}: a relative import"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        if name.split(".")[0] == "cuptimem":
            yield name if name in MODULES or name == "cuptimem._core" else name.rpartition(".")[0]


@cache
def imports() -> list[tuple[str, str, str]]:
    """Importer, imported, and when: load, run or typing."""

    def walk(node: ast.AST, importer: str, when: str) -> Iterator[tuple[str, str, str]]:
        for child in ast.iter_child_nodes(node):
            inner = when
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and when == "load":
                inner = "run"
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for part in child.body:
                    yield from ((importer, name, "typing") for name in imported(part, importer))
                for part in child.orelse:
                    yield from walk(ast.Module([part], []), importer, when)
                continue
            yield from ((importer, name, inner) for name in imported(child, importer))
            yield from walk(child, importer, inner)

    return [one for importer, file in MODULES.items() for one in walk(ast.parse(file.read_text()), importer, "load")]


def room(module: str, importer: bool = False) -> str:
    if importer and module in ("cuptimem", "cuptimem.__main__"):
        return "front"
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PYTHON / parts[1]).is_dir() else "base"


def test_c_rooms_include_only_what_the_table_allows() -> None:
    assert set(INCLUDES) == {path.name for path in C.iterdir() if path.is_dir()}
    allowed = {(one, other) for one, others in INCLUDES.items() for other in others.split()}
    found = includes()
    wrong = {arrow: sorted(files)[:3] for arrow, files in found.items() if arrow not in allowed}
    assert not wrong
    assert sorted(allowed - set(found)) == [], "in the table, but nothing needs it"
    for arrow, headers in RING_FILE.items():
        assert {line.rpartition("/")[2] for line in found[arrow]} == headers


@pytest.mark.parametrize("when", ["load", "run", "typing"])
def test_python_rooms_import_only_what_the_table_allows(when: str) -> None:
    wrong: Arrows = {}
    for importer, name, moment in imports():
        one, other = room(importer, importer=True), room(name)
        load, run = IMPORTS[one]
        allowed = load.split() if moment == "load" else (load + " " + run).split()
        if moment == when and one != other and other not in allowed:
            wrong.setdefault((one, other), set()).add(f"{importer}: {name}")
    assert not {arrow: sorted(files) for arrow, files in wrong.items()}


def test_every_arrow_of_python_is_used() -> None:
    rooms = {path.name for path in PYTHON.iterdir() if (path / "__init__.py").is_file()}
    assert set(IMPORTS) == rooms | {"base", "front"}
    load = {(room(importer, importer=True), room(name)) for importer, name, when in imports() if when == "load"}
    every = {(room(importer, importer=True), room(name)) for importer, name, when in imports()}
    for one, (at_load, at_run) in IMPORTS.items():
        assert [other for other in at_load.split() if (one, other) not in load] == [], f"{one}, at load"
        assert [other for other in at_run.split() if (one, other) not in every] == [], f"{one}, at run"


def test_no_module_is_loaded_in_a_circle() -> None:
    needs: dict[str, set[str]] = {name: set() for name in MODULES}
    for importer, name, when in imports():
        if when == "load" and name not in (importer, "cuptimem", "cuptimem._core"):
            needs[importer].add(name)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_test_imports_evidence() -> None:
    found = [
        str(file)
        for file in (ROOT / "tests").rglob("*.py")
        if re.search(r"^\s*(from|import) evidence\b", file.read_text(), re.M)
    ]
    assert found == []


def test_only_these_use_the_simulated_device() -> None:
    """`simulation` runs programs on it, the others know its names; it knows nothing of cuptimem (its own test)."""
    found = {
        room(name, importer=True)
        for name, file in MODULES.items()
        if re.search(r"^\s*(from|import) cudasim\b", file.read_text(), re.MULTILINE)
    }
    assert found == {"simulation", "doctor", "pytest_plugin"}
    assert not [file for file in C.rglob("*.[ch]") if '"../../cudasim' in file.read_text()]
