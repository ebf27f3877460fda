"""cuptimem leaks FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views

_LEAKS = 3  # the exit code of --fail-on-leak


def parser() -> argparse.ArgumentParser:
    result = reading.parser("leaks", "What grows from step to step: how fast, since when, and the line that makes it.")
    result.add_argument(
        "--fail-on-leak", action="store_true", help=f"exit with {_LEAKS} if there is a leak (suspects do not count)"
    )
    result.add_argument(
        "--fail-on-growth",
        action="store_true",
        help=f"exit with {_LEAKS}, too, if something grew and the recording cannot tell whether it is a leak",
    )
    result.add_argument(
        "--min-rate",
        type=reading.size,
        metavar="SIZE",
        help="what grows by less a step is negligible (by default less than 1 KiB a step and 1 %% of the peak)",
    )
    result.add_argument(
        "-n", "--top", type=reading.count, default=10, metavar="N", help="leaks, and suspects, to show (10)"
    )
    result.add_argument("--no-holders", action="store_true", help="do not show who holds what grows")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    report = reading.read(options, min_rate=options.min_rate)
    if options.json:
        json.show(json.leaks(report), json_options.bounds(options))
    else:
        terminal.show(views.leaks(report, options.top, not options.no_holders))
    growth = options.fail_on_growth and (report.leaks or report.undecided)
    return _LEAKS if growth or (options.fail_on_leak and report.leaks) else 0
