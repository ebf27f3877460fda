"""cuptimem summary FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views


def parser() -> argparse.ArgumentParser:
    result = reading.parser("summary", "How high the memory went, what it was made of, and whether it grows.")
    result.add_argument(
        "--at", choices=("peak", "end"), default="peak", help="what was alive at the peak (the default), or at the end"
    )
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    with_lives = options.at == "peak" and not options.json
    report = reading.read(options, tables=reading.tables(options.at), with_lives=with_lives)
    if options.json:
        json.show(json.summary(report), json_options.bounds(options))
    else:
        terminal.show(views.summary(report, options.at))
    return 0
