"""cuptimem advice FILE, and with --try a program in its place (advice_try.py)"""

import argparse
import re
from collections.abc import Sequence

from cuptimem import advice
from cuptimem.advice.catalogue import TECHNIQUES
from cuptimem.cli import advice_try, json_options, reading
from cuptimem.output import json
from cuptimem.output.text import advice_views, terminal
from cuptimem.report.model import Report

TRY = "--try"
OVER, UNKNOWN = 3, 4  # exit codes, as `simulate` has them
_Changes = list[tuple[str, object]]
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
        "--change",
        dest="combinations",
        type=_combination,
        action="append",
        metavar="CHANGE[,CHANGE...]",
        help="the peak with these changes together; again for another peak, of other changes",
    )
    result.add_argument(
        "--budget",
        type=reading.size,
        metavar="SIZE",
        help="the fewest changes with which the peak would be at most so much (20GiB): free ones first, then trades by "
        "what they cost",
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
    if sum(asked is not None for asked in (options.changes, options.combinations, options.budget)) > 1:
        ours.error("--what-if, --change and --budget are three questions: ask one")
    report = reading.read(options, with_lives=True)
    if options.changes is not None:
        return _estimated(options, report, [options.changes])
    if options.combinations is not None:
        return _estimated(options, report, options.combinations)
    if options.budget is not None:
        return _planned(options, report)
    advised = report.advise(options.device)
    if options.json:
        json.show(json.advice(report, advised), json_options.bounds(options))
    else:
        terminal.show(advice_views.advice(advised))
    return 0


def _estimated(options: argparse.Namespace, report: Report, asked: Sequence[_Changes]) -> int:
    adviser = advice.Adviser(report, options.device)
    found = [adviser.estimate(**dict(changes)) for changes in asked]
    if options.json:
        as_json = json.estimate(report, found[0]) if options.combinations is None else json.estimates(report, found)
        json.show(as_json, json_options.bounds(options))
    else:
        terminal.show([block for one in found for block in advice_views.estimate(one)])
    return 0


def _planned(options: argparse.Namespace, report: Report) -> int:
    plan = advice.fit(report, options.budget, options.device)
    if options.json:
        json.show(json.plan(report, plan), json_options.bounds(options))
    else:
        terminal.show(advice_views.plan(plan))
    return OVER if not plan.fits else UNKNOWN if plan.note else 0


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


def _combination(text: str) -> _Changes:
    """Commas and plus signs stand between changes, as in tries; commas between the names of a change's value, too."""
    names = "|".join(re.escape(one.name) for one in TECHNIQUES)
    parts = re.split(rf"[,+](?=\s*(?:{names}|optimizer)\s*(?:[=,+]|$))", text)
    changes = [_change(part.strip()) for part in parts]
    if len({name for name, _ in changes}) < len(changes):
        raise argparse.ArgumentTypeError(f"has a change twice: {text!r}")
    return changes


def _change(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    if name == "optimizer":  # optimizer=sgd: the name of the change is that of the optimizer
        name, value = value, ""
    if not name.isidentifier():
        raise argparse.ArgumentTypeError(f"takes NAME or NAME=VALUE, not {text!r}")
    return name, True if value.lower() in _SWITCHES else value
