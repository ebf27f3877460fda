"""cuptimem advice FILE"""

import argparse
from collections.abc import Sequence

from cuptimem import advice
from cuptimem.cli import reading
from cuptimem.output import json
from cuptimem.output.text import advice_views, terminal

_SWITCHES = ("1", "true", "yes", "on", "")


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "advice",
        "What to change in the program, at which line, and the peak that it would have: predicted by editing the "
        "recorded blocks and replaying them.",
    )
    result.add_argument("--device", metavar="D", help="of this device (cpu, cuda:0); default: the first one")
    result.add_argument(
        "--what-if",
        dest="changes",
        type=_change,
        nargs="+",
        metavar="CHANGE",
        help="the peak with these changes together: the names in the table, with a value where one is needed "
        "(checkpoint='blocks.*' batch=64:8, which is 64 in the place of the recorded 8)",
    )
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(_file_first(arguments))
    report = reading.read(options, with_lives=True)
    if options.changes is not None:
        found = advice.estimate(report, options.device, **dict(options.changes))
        if options.json:
            json.show(json.estimate(report, found))
        else:
            terminal.show(advice_views.estimate(found))
        return 0
    advised = advice.advise(report, options.device)
    if options.json:
        json.show(json.advice(report, advised))
    else:
        terminal.show(advice_views.advice(advised))
    return 0


def _file_first(arguments: Sequence[str]) -> list[str]:
    """A trace behind the changes is no change: `--what-if sgd run.cmem` reads run.cmem."""
    given = list(arguments)
    if "--what-if" in given and given[-1].endswith(".cmem"):
        return [given[-1], *given[:-1]]
    return given


def _change(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    if name == "optimizer":  # optimizer=sgd: the name of the change is that of the optimizer
        name, value = value, ""
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"takes NAME or NAME=VALUE, not {text!r}")
    return name, True if value.lower() in _SWITCHES else value
