"""cuptimem leaks FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.reporters import json, terminal, views

_LEAKS = 3  # the exit code of --fail-on-leak


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("leaks", "What grows from step to step: how fast, since when, and the line that makes it.")
    parser.add_argument(
        "--fail-on-leak", action="store_true", help=f"exit with {_LEAKS} if there is a leak (a suspect is none)"
    )
    parser.add_argument(
        "-n", "--top", type=reading.count, default=10, metavar="N", help="leaks, and suspects, to show (10)"
    )
    options = parser.parse_args(arguments)
    report = reading.read(options)
    if options.json:
        print(json.text(json.leaks(report)))
    else:
        terminal.show(views.leaks(report, options.top))
    return _LEAKS if options.fail_on_leak and report.leaks else 0
