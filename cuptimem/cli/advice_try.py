"""cuptimem advice --try script.py args: tries changes of an unchanged program and shows what each saves."""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cuptimem.cli import json_options, parsing
from cuptimem.cli.run import Usage, check_program
from cuptimem.errors import Error
from cuptimem.output.bounded import Bounds
from cuptimem.output.text import terminal
from cuptimem.report.advice import Advice, Proposal

if TYPE_CHECKING:
    from cuptimem.advice import Adviser
    from cuptimem.advice.readers import Readers
    from cuptimem.report.model import Report
    from cuptimem.report.stacks import Frame
    from cuptimem.simulation.tries import Tried

_NOT_SURE = "what is surely read no more saves less than 2%"
FAILED = 5  # exit code, as `simulate` has it: the program itself failed


def parser() -> parsing.Parser:
    from cuptimem.simulation import changes, tries

    result = parsing.Parser(
        "advice --try",
        usage="cuptimem advice --try [options] script.py [args ...]\n"
        "       cuptimem advice --try [options] -m module [args ...]",
        description="Runs an unchanged program for a few steps with one change after the other: what each saves.",
        epilog=f"Changes: {', '.join(changes.KINDS)}. docs/advice.md has what each does.",
    )
    result.add_argument(
        "--change",
        action="append",
        metavar="NAME[=VALUE][+NAME...]",
        help="this change, or several together; may be given several times (default: the usual ones)",
    )
    result.add_argument(
        "--steps", type=_steps, metavar="N", help=f"steps of a try, 0 for whole runs (default: {tries.STEPS})"
    )
    result.add_argument("--device", default="h100", metavar="NAME", help="a device to simulate (h100), or cpu")
    json_options.add(result, "the answer as one JSON object (docs/json.md) on standard output")
    result.add_argument("program", nargs=argparse.REMAINDER, help="script.py or -m module, and its arguments")
    return result


def main(arguments: Sequence[str]) -> int:
    """arguments: what follows --try."""
    ours = parser()
    request = ours.parse_before_program(arguments)
    try:
        check_program(request.program)
    except Usage as error:
        ours.error(str(error))
    bounds = json_options.bounds(request) if request.json else None
    return run(request.program, request.change, steps=request.steps, device=request.device, bounds=bounds)


def _steps(value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise argparse.ArgumentTypeError(f"takes a number, not {value!r}")
    return int(value)


def run(
    words: Sequence[str],
    tried: Sequence[str] | None = None,
    *,
    steps: int | None = None,
    device: str = "h100",
    bounds: Bounds | None = None,
) -> int:
    """The exit code. words: the script, -m or -c, and what follows; tried: names of changes, None for the usual ones;
    steps: None for the usual number, 0 for whole runs.

    Raises Error where nothing can be tried.
    """
    from cuptimem.output import json as output
    from cuptimem.simulation import as_json as objects
    from cuptimem.simulation import changes, tries, try_views

    with (
        exit_at_signals(),
        terminal.progress("trying changes") as tell,
        tempfile.TemporaryDirectory(prefix="cuptimem-try-") as folder,
    ):

        def progress(number: int, total: int, _: str) -> None:
            tell(number / total)

        most = None if changes.need_evaluation(tried or ()) else tries.STEPS if steps is None else steps or None
        trace, readers = os.path.join(folder, "run.cmem"), os.path.join(folder, "readers.json")
        found = tries.run(
            words[0],
            words[1:],
            tried,
            steps=most,
            device=device,
            trace=trace,
            readers=readers,
            operators=lambda: operators_in_place(trace, readers),
            places=lambda: places(trace, readers),
            progress=progress,
        )
        failed = found[0].peak_bytes is None
        advised: Advice | None = None
        predicted: dict[str, int] = {}
        untried: list[Proposal] = []
        if not failed:
            read = "" if found[0].unread else readers
            advised, predicted = predict(trace, read, [one.change for one in found[1:]])
            found = [_of_advice(one, advised) for one in found]
            for one in found:
                if one.write:  # what was put in is not what is foretold
                    predicted.pop(one.change, None)
            found = [_in_words(one, advised) for one in found]
            if tried is None:
                known = {one.change for one in found}
                untried = [one for one in advised.proposals if one.technique not in known]
    if bounds is not None:
        output.show(objects.tries(device, found, predicted, advised, untried), bounds)
        return FAILED if failed else 0
    program = " ".join(words[:2]) if words[0] == "-m" else words[0]
    blocks = try_views.blocks(found, program, device, predicted, advised, most, untried)
    terminal.show(blocks, sys.stderr if failed else None)
    return FAILED if failed else 0


def _of_advice(tried: "Tried", advised: Advice | None) -> "Tried":
    """What a try could not put where the advice has it is no proposal: its rule took the line for another. What the
    advice does not have is no answer: a module in place may change what the program computes, and no try shows that."""
    if tried.change != "in_place" or advised is None:
        return tried
    if advised.proposal(tried.change) is not None:
        return replace(tried, why_not="", error=tried.why_not) if tried.why_not else tried
    why = next((one.reason for one in advised.rejected if one.technique == tried.change and one.reason), _NOT_SURE)
    return tried if tried.error or tried.why_not else replace(tried, peak_bytes=None, reserved_bytes=None, why_not=why)


def _in_words(tried: "Tried", advised: Advice) -> "Tried":
    """Where the recording proposes nothing, what was put in is what to write."""
    from cuptimem.advice.catalogue import TECHNIQUES

    technique = next((one for one in TECHNIQUES if one.name == tried.change), None)
    if technique is None or tried.frame is None or tried.write or advised.proposal(tried.change) is not None:
        return tried
    write, cost = technique.words
    return replace(tried, write=write, cost=cost)


@contextlib.contextmanager
def exit_at_signals() -> Iterator[None]:
    """What `timeout` and schedulers send ends the tries and removes their folders, as Ctrl-C does."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    ours = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@cache
def read(readers: str) -> "Readers | None":
    """What a run wrote there of what reads its blocks; None where none did."""
    from cuptimem.advice.readers import Readers

    return Readers(_report(f"{readers}.cmem"), readers) if os.path.exists(readers) else None


@cache
def _report(trace: str) -> "Report":
    from cuptimem.report import load

    return load.analyze(trace, with_lives=True)


@cache
def adviser(trace: str, readers: str) -> "Adviser":
    """Of the program as it is, recorded there, and what reads its blocks, where a run wrote that."""
    from cuptimem.advice import Adviser

    return Adviser(_report(trace), None, read(readers))


def operators_in_place(trace: str, readers: str) -> tuple[tuple[str, int, str, str], ...]:
    """The operators that the proposal of in_place names, for its try."""
    return adviser(trace, readers).operators_in_place()


def places(trace: str, readers: str) -> dict[str, str]:
    """What the advice names, for the tries: of `release` variables and lines by file, as JSON, of `no_grad`,
    `retain_graph` and `clone_view` lines by file, of `checkpoint` modules."""
    if read(readers) is None:
        return {}
    found = adviser(trace, readers)
    variables: dict[str, list[tuple[str, int]]] = {}
    for one in found.released():
        variables.setdefault(one.file, []).append((one.name, one.line))
    named = {"release": json.dumps(variables), "checkpoint": found.checkpointed()}
    named["retain_graph"] = json.dumps(_by_file(found.retained()))
    named["clone_view"] = json.dumps(_by_file(found.cloned()))
    lines = _by_file(found.without_graph())
    return named | ({"no_grad": json.dumps(lines)} if lines else {})


def _by_file(frames: Sequence["Frame"]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for frame in frames:
        lines.setdefault(frame.file, []).append(frame.line)
    return lines


def predict(trace: str, readers: str, tried: Sequence[str]) -> tuple[Advice, dict[str, int]]:
    """What the recording of the program as it is advises, and the peak that it foretells with each change.

    readers: what that run wrote of them, if it did. A change that is no technique, or that does not apply, has no
    prediction.
    """
    from cuptimem.simulation import changes

    known = adviser(trace, readers)
    predicted = {}
    for change in tried:
        # "*" is all modules: a technique has no value for that.
        asked: dict[str, object] = {
            name: True if value in ("", "*") else value for name, value in changes.parse(change)
        }
        try:
            predicted[change] = known.estimate(**asked).bytes
        except Error:
            continue
    return known.advise(), predicted
