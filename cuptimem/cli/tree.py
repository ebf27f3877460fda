"""cuptimem tree FILE"""

import argparse
import math
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.pages import writing
from cuptimem.output.text import terminal, views

_WIDTH = 120  # where the terminal's is unknown


def parser() -> argparse.ArgumentParser:
    result = reading.parser("tree", "The blocks by their whole stacks, as a tree of calls.")
    reading.add_contents(result)
    result.add_argument("--device", metavar="D", help="only this device (cpu, pinned, cuda:0); default: all")
    result.add_argument(
        "--least",
        type=_percent,
        default=1.0,
        metavar="PERCENT",
        help="lines with a smaller share are summed in one row (1)",
    )
    result.add_argument("--inverted", action="store_true", help="from the lines that allocate outwards")
    writing.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    name = writing.beside(options.file, "tree")
    if writing.wanted(options):
        writing.target(options, name)
    report = reading.read(options, step=options.step, tables=reading.tables(options.what))
    found = reading.chosen(report, options.device, options.what)
    if writing.wanted(options):
        from cuptimem.output.pages import tables

        writing.write_page(options, name, tables.tree(report, found, options.inverted))
    elif options.json:
        json.show(json.tree(report, found, options.inverted), json_options.bounds(options))
    else:
        blocks = views.tree(report, found, options.least / 100, options.inverted)
        terminal.show(blocks, otherwise=_WIDTH)
    return 0


def _percent(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"takes a percentage from 0 to 100, not {text}")
    return value
