"""cuptimem skill"""

import argparse
from collections.abc import Sequence
from importlib.resources import files

from cuptimem.cli.parsing import Parser


def parser() -> argparse.ArgumentParser:
    return Parser(
        "skill",
        description="Prints a SKILL.md for agents: which question is which command, what an answer looks like, what "
        "never to do. Put it where yours looks for skills: cuptimem skill > .../cuptimem/SKILL.md",
    )


def text() -> str:
    """The file that ships in the package."""
    return files("cuptimem.cli").joinpath("SKILL.md").read_text(encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser().parse_args(arguments)
    print(text(), end="")
    return 0
