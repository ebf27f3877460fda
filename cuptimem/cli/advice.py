"""cuptimem advice FILE, and with --try a program in its place (advice_try.py)"""

import argparse
from collections.abc import Sequence

from cuptimem import advice
from cuptimem.cli import advice_try, reading
from cuptimem.output import json
from cuptimem.output.text import advice_views, terminal

TRY = "--try"
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
    result.add_argument(
        TRY,
        dest="try_",
        action="store_true",
        help="in the place of FILE: script.py and its arguments, which runs for a few steps with one change after the "
        "other; see: cuptimem advice --try --help",
    )
    return result


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == TRY:
        return advice_try.main(arguments[1:])
    ours = parser()
    options = ours.parse_args(_file_first(arguments))
    if options.try_:
        ours.error(f"{TRY} stands first: cuptimem advice {TRY} [options] script.py [args ...]")
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
