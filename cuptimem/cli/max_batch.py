"""cuptimem max-batch [options] script.py args: the largest batch that fits, proven by a run of it and of the next."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cuptimem.cli import advice_try, json_options, parsing, simulate
from cuptimem.cli.run import Usage, check_program
from cuptimem.errors import Error

if TYPE_CHECKING:
    from cuptimem.simulation.launch import Setup

_DESCRIPTION = """\
Finds the largest batch of a program that fits on a simulated GPU (none is needed): one recording predicts it, runs of
that size and of the next one prove it.
"""
_EPILOG = """\
Without --arg and --env, DataLoaders are made with another batch_size: all that have the size of the first one.

Runs have what is modelled at its high end: that is the margin. Files that torch.save writes go elsewhere; others that
the program writes hold zeros.

Exit codes: 0 it was found; 3 not even the smallest size fits; 4 undecided; 5 the program itself failed; 1 nothing could
be run; 2 wrong usage.
"""


def parser() -> parsing.Parser:
    from cuptimem.simulation import largest, tries

    result = parsing.Parser(
        "max-batch",
        usage="cuptimem max-batch [options] script.py [args ...]\n"
        "       cuptimem max-batch [options] -m module [args ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "--arg",
        metavar="OPTION",
        help="the program's option for its batch size: --arg=--batch-size, or --arg=train.batch= to write it in one",
    )
    result.add_argument("--env", metavar="NAME", help="the environment variable that it reads its batch size from")
    result.add_argument(
        "--start",
        type=_positive,
        metavar="N",
        help=f"the size to record (default: the program's, else {largest.FIRST})",
    )
    result.add_argument("--multiple", type=_positive, default=1, metavar="N", help="sizes are multiples of N (1)")
    simulate.add_device(result)
    result.add_argument(
        "--steps", type=_positive, default=tries.STEPS, metavar="N", help=f"of a run that searches ({tries.STEPS})"
    )
    result.add_argument(
        "--timeout",
        type=_positive,
        default=int(tries.TIMEOUT),
        metavar="SECONDS",
        help=f"for each run ({tries.TIMEOUT:g})",
    )
    result.add_argument(
        "--trust-reads", action="store_true", help="no size and no branch hangs on what it reads from the device"
    )
    json_options.add(result, "the answer as one JSON object (docs/json.md) on standard output")
    result.add_argument("program", nargs=argparse.REMAINDER, help="script.py or -m module, and its arguments")
    return result


def main(arguments: Sequence[str]) -> int:
    from cuptimem.simulation import api

    ours = parser()
    request = ours.parse_before_program(arguments)
    try:
        check_program(request.program)
        if request.arg and request.env:
            raise Usage("--arg or --env says where the size goes, not both")
        setup = api.make_setup(request.device, request.memory, 1, None, None, None)
    except (Usage, Error, ValueError) as error:
        ours.error(str(error))
    return _find(request, setup)


def _find(request: argparse.Namespace, setup: "Setup") -> int:
    from cuptimem.output import json
    from cuptimem.output.text import terminal
    from cuptimem.simulation import as_json, largest, largest_views

    way = largest.Way(request.arg or "", request.env or "")

    def say(size: int) -> None:
        print(f"cuptimem: running it with {size}", file=sys.stderr)

    with advice_try.exit_at_signals():
        found = largest.find(
            request.program,
            way,
            setup,
            first=request.start,
            step=request.multiple,
            steps=request.steps,
            timeout=request.timeout,
            trust_reads=request.trust_reads,
            predict=_predict,
            progress=say,
        )
    if request.json:
        json.show(as_json.largest(found, setup), json_options.bounds(request))
    else:
        terminal.show(largest_views.blocks(found, way, setup))
    return found.code


def _predict(trace: str, size: int) -> Callable[[int], int]:
    from cuptimem import advice
    from cuptimem.report import load

    adviser = advice.Adviser(load.analyze(trace, with_lives=True))
    return lambda other: adviser.estimate(batch=f"{other}:{size}").bytes


def _positive(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise argparse.ArgumentTypeError(f"takes a number from 1 on, not {value!r}")
    return int(value)
