"""README and docs/: their commands are ones that the command line takes, and README's sentences are short."""

import re
import shlex
from pathlib import Path

import pytest

from cuptimem.cli import VERBS, module_of
from tests.conftest import ROOT
from tests.tools.cli.examples import MARKED, OTHERS, PAGES, SECTIONS

LONGEST = 25  # words of a sentence
DOCS = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if path.parent.name in ("docs", "internals") and path.name != "examples.md"
)  # written by a program
PLACEHOLDERS = {"VERB", "...", "FILE", "IN", "OUT"}


def commands(text: str) -> list[str]:
    """What stands after `cuptimem` in inline code and in indented blocks."""
    text = re.sub(r"<!-- made by.*?<!-- to here -->", "", text, flags=re.DOTALL)
    inline = re.findall(r"(?<!`)`cuptimem ([^`]*)`", text, flags=re.DOTALL)
    block = re.findall(r"^(?: {4}|\t)(?:\$ )?cuptimem ([^\n]*)$", text, flags=re.MULTILINE)
    return [" ".join(found.split("  #")[0].split()) for found in inline + block]


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda page: page.name)
def test_commands_are_taken(page: Path) -> None:
    """Each names a verb, and its options are options of that verb."""
    for command in commands(page.read_text()):
        verb, *words = shlex.split(command.replace("[", " ").replace("]", " "))
        if verb in PLACEHOLDERS or verb.startswith("-"):
            continue
        assert verb in VERBS, f"{page.name}: cuptimem {command}"
        home = "advice_try" if words[:1] == ["--try"] else verb  # what follows has options of its own
        known = re.findall(r"--[\w-]+", module_of(home).parser().format_help())
        for word in words:
            if word.endswith(".py"):
                break  # behind it stand the program's own
            if word.startswith("--"):
                assert word.partition("=")[0] in known, f"{page.name}: cuptimem {command}"


def prose(text: str) -> str:
    """The text without samples, tables, headings, pictures, marks and addresses of links."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("    ", "|", "#", "!")))
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


def test_sentences_of_readme_are_short() -> None:
    text = prose((ROOT / "README.md").read_text())
    blocks = re.split(r"\n\s*\n|\n- ", text)
    sentences = [one for block in blocks for one in re.split(r"(?<=[.?!:])\**\s+", " ".join(block.split()))]
    assert sum(len(one.split()) for one in sentences) > 150
    assert [one for one in sentences if len(one.split()) > LONGEST] == []


def test_readme_has_what_a_first_look_needs() -> None:
    """Status and the two commands before a picture, what it answers, figures with commands, all questions, costs."""
    text = (ROOT / "README.md").read_text()
    first, rest = text.split("\n## A first report\n")
    before, picture, behind = first.partition("\n![")
    assert picture and "**no real GPU has run it yet**" in before
    assert [line for line in before.splitlines() if line.startswith("    ")] == [
        "    make demo    # sets everything up in .venv, trains a small model under cuptimem, prints the report",
        "    make test    # sets up and runs all tests: half an hour, 8 GB of disk",
        "    pip install .",
        "    cuptimem run train.py",
    ]
    assert (
        len(re.findall(r"^- \*\*.*\?\*\*", behind, re.M)) == 5
        and len(re.findall(r"^- `make [a-z]+`", behind, re.M)) == 3
    )
    section = {part.partition("\n")[0]: part for part in rest.split("\n## ")}
    asked = set(re.findall(r"`cuptimem ([a-z-]+)", section["Questions"]))
    assert asked == set(VERBS) - {"run", "completion"}
    assert len(re.findall(r"^\|(?![-|])", section["What it costs"], re.M)) == 1 + 3


def test_links_of_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text())
    assert len(links) > 20
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_samples_have_commands_that_make_examples_runs() -> None:
    made = {one.command for section in SECTIONS for one in section.shown} | set(OTHERS)
    for page in PAGES:
        found = MARKED.findall(page.read_text())
        assert found, page.name
        for _, command, _ in found:
            assert command in made, f"{page.name}: {command}"
    for page in DOCS:
        assert page in PAGES or not MARKED.search(page.read_text()), f"{page.name} is not in PAGES"
