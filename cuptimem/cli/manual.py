"""`python -m cuptimem.cli.manual` prints the manual page, made of what --help shows; setup.py installs it."""

import argparse
from collections.abc import Iterable
from typing import Any

import cuptimem
from cuptimem.cli import VERBS, module_of, usage

_CHARACTERS = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


def _text(text: str) -> str:
    """Text as roff. Several lines are not filled, and none may begin like a request."""
    lines = [
        (r"\&" if line.startswith(".") else "") + line.translate(_CHARACTERS) for line in text.strip("\n").split("\n")
    ]
    return lines[0] if len(lines) == 1 else "\n".join([".nf", *lines, ".fi"])


class _Roff(argparse.HelpFormatter):
    """Writes what argparse adds for --help as roff."""

    def __init__(self, prog: str, **_: Any) -> None:
        super().__init__(prog, width=78)
        self._roff: list[str] = []
        self._heading = ""

    def add_usage(
        self, usage: str | None, actions: Iterable[Any], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        # Lines after the first are indented by the width of "usage: ", which is left out here.
        self._roff.append(_text(self._format_usage(usage, actions, groups, "").replace("\n       ", "\n") + "\n "))

    def start_section(self, heading: str | None) -> None:
        self._heading = heading or ""

    def end_section(self) -> None:
        self._heading = ""

    def add_text(self, text: str | None) -> None:
        if text:
            self._roff += [".PP", _text(text)]

    def add_argument(self, action: argparse.Action) -> None:
        if action.help is argparse.SUPPRESS:
            return
        if self._heading:
            self._roff += [".PP", _text(self._heading) + ":"]
            self._heading = ""
        self._roff += [".TP", ".B " + _text(self._format_action_invocation(action))]
        self._roff.append(_text(self._expand_help(action)))

    def format_help(self) -> str:
        return "\n".join(self._roff)


def page() -> str:
    """The page's roff."""
    lines = [
        f'.TH CUPTIMEM 1 "" "cuptimem {cuptimem.__version__}" "User Commands"',
        ".SH NAME",
        r"cuptimem \- the memory profiler for PyTorch",
        ".SH SYNOPSIS",
        ".B cuptimem",
        ".I VERB",
        r"\&...",
        ".SH DESCRIPTION",
        _text(usage()),
        ".SH VERBS",
    ]
    for verb, what in VERBS.items():
        parser = module_of(verb).parser()
        parser.formatter_class = _Roff
        parser.color = False  # of Python 3.14 and later: no escape sequences, even with FORCE_COLOR
        lines += [f".SS {verb}", _text(what[0].upper() + what[1:]) + ".", ".PP", parser.format_help()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
