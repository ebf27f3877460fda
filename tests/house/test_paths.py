"""Documents name files that exist: links, and paths in backticks. Dated results are left alone."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

GLOBS = (
    "*.md",
    "changes/*.md",
    "docs/*.md",
    "docs/internals/*.md",
    "docs/*/README.md",
    "evidence/**/README.md",
    "evidence/gpu/findings.md",
    "tests/**/*.md",
    "cudasim/*.md",
)
PAGES = sorted(path for glob in GLOBS for path in ROOT.glob(glob))
TOP = ("csrc", "cudasim", "cuptimem", "tests", "evidence", "docs", "benchmarks", "examples", "notebooks")
SUFFIXES = "py|pyi|c|h|md|js|toml|txt|sh|supp|pth"
# Made by a command, or by the reader.
MADE = (
    "build/",
    "generated/",
    "generated_",
    "entries.c",
    "docs/exports/",
    "dist/",
    ".venv",
    "tests/test_",
    "tests/on_a_gpu",
)
# Files of users' programs and of other projects in examples.
OTHERS = {
    "tests/on_a_gpu",
    "train.py",
    "s.py",
    "script.py",
    "contextlib.py",
    "conftest.py",
    "test_it.py",
    "Python.h",
    "run.collapsed.txt",
}


@cache
def names() -> set[str]:
    """Names of all files of the tree, with and without what comes behind the dot."""
    found = {path.name for top in TOP for path in (ROOT / top).rglob("*") if path.is_file()}
    return found | {path.name for path in ROOT.iterdir()}


def exists(word: str, folder: Path) -> bool:
    """A path from the root, a package, a room or the page's folder; a C file needs no suffix."""
    word = word.rstrip("/")
    return any(
        next(iter(base.glob(pattern)), None) is not None
        for base in (
            ROOT,
            ROOT / "csrc",
            ROOT / "cuptimem",
            ROOT / "docs",
            ROOT / "tests",
            ROOT / "cudasim",
            ROOT / "cudasim/csrc",
            folder,
        )
        for pattern in (word, f"{word}.[ch]", f"{word}.py")
    )


@cache
def rooms() -> set[str]:
    folders = (ROOT / "csrc", ROOT / "cuptimem", ROOT / "tests", ROOT / "cudasim/csrc")
    return {path.name for folder in folders for path in folder.iterdir() if path.is_dir()} | set(TOP)


def stale(text: str, folder: Path = ROOT) -> list[str]:
    """Paths in backticks that lead nowhere."""
    bad = []
    for word in re.findall(r"`([\w.*/-]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if word.startswith(MADE) or word in OTHERS or re.search(r"\b[A-Z]{3,}\b", word):
            continue
        if "/" in word:
            if word.split("/")[0] in rooms() and not exists(word, folder):
                bad.append(word)
        elif re.fullmatch(rf"[\w.-]+\.({SUFFIXES})", word) and word not in names():
            bad.append(word)
    return bad


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_lead_somewhere(page: Path) -> None:
    assert stale(page.read_text(), page.parent) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Also to a heading, as GitHub makes its name."""
    bad = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            bad.append(link)
        elif heading and target.suffix == ".md":
            found = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            if heading not in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}:
                bad.append(link)
    assert bad == []


def test_a_stale_path_is_noticed() -> None:
    assert stale("`csrc/trace/reader.h` `trace/reader` `reader.c` `cli/`") == []
    assert stale("`csrc/trace/none.h` `trace/none` `no_such_file.c` `tests/none`") == [
        "csrc/trace/none.h",
        "trace/none",
        "no_such_file.c",
        "tests/none",
    ]
