"""cuptimem holders FILE LINE"""

import argparse
import os
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report import line_holders


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "holders",
        "Who held the memory of a line: the way from a variable, attribute or container of the program's to it, at the "
        "end of the recording and, of what grew, as of the step in which it was searched.",
    )
    result.add_argument(
        "line",
        metavar="LINE",
        nargs="?",
        help="model.py:16, or a part of it that no other line has (default: every line of which it is known)",
    )
    result.add_argument("-n", "--top", type=reading.count, default=10, metavar="N", help="lines to show (10)")
    return result


def main(arguments: Sequence[str]) -> int:
    ours = parser()
    options = ours.parse_args(arguments)
    if options.line is None and _is_line(options.file):
        options.line, options.file = options.file, ours.parse_args([]).file
    report = reading.read(options, tables=("end",))
    found = (line_holders.of_line(report, options.line),) if options.line is not None else line_holders.known(report)
    if not found and not options.json:
        raise Error(f"it is not known who held what was alive: {line_holders.why_none(report)}")
    if options.json:
        json.show(json.holders(report, found), json_options.bounds(options))
    else:
        terminal.show(views.holders(report, found, options.top))
    return 0


def _is_line(word: str) -> bool:
    """Whether the only word names a line: there is no such file."""
    return word.rpartition(":")[2].isdecimal() and not os.path.lexists(word)
