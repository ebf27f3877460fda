"""cuptimem advice FILE, and with --try a program in its place (advice_try.py)"""

import argparse
from collections.abc import Sequence

from cuptimem import advice
from cuptimem.cli import advice_try, json_options, reading
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
        action="store_true",
        help="in the place of FILE: script.py and its arguments, which runs for a few steps with one change after the "
        "other; see: cuptimem advice --try --help",
    )
    return result


def main(arguments: Sequence[str]) -> int:
    before, tries, behind = _around_try(arguments)
    if tries and all(word == "--json" for word in before):
        return advice_try.main([*before, *behind])
    ours = parser()
    if tries:
        ours.error(f"{TRY} stands first: cuptimem advice {TRY} [options] script.py [args ...]")
    options = ours.parse_args(_file_first(arguments))
    report = reading.read(options, with_lives=True)
    if options.changes is not None:
        found = advice.estimate(report, options.device, **dict(options.changes))
        if options.json:
            json.show(json.estimate(report, found), json_options.bounds(options))
        else:
            terminal.show(advice_views.estimate(found))
        return 0
    advised = advice.advise(report, options.device)
    if options.json:
        json.show(json.advice(report, advised), json_options.bounds(options))
    else:
        terminal.show(advice_views.advice(advised))
    return 0


def _around_try(arguments: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """What stands before --try, whether it is there, and what follows."""
    given = list(arguments)
    if TRY not in given:
        return given, False, []
    at = given.index(TRY)
    return given[:at], True, given[at + 1 :]


def _file_first(arguments: Sequence[str]) -> list[str]:
    """A trace behind the changes is no change: `--what-if sgd run.cmem` reads run.cmem."""
    given = list(arguments)
    behind = given.index("--what-if") if "--what-if" in given else len(given)
    files = [word for word in given[behind:] if word.endswith(".cmem") and not word.startswith("-")]
    return [*files, *(word for word in given if word not in files)] if len(files) == 1 else given


def _change(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    if name == "optimizer":  # optimizer=sgd: the name of the change is that of the optimizer
        name, value = value, ""
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"takes NAME or NAME=VALUE, not {text!r}")
    return name, True if value.lower() in _SWITCHES else value
