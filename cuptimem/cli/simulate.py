"""cuptimem simulate [options] script.py args | -m module args | -c code

The program's own output stays as it is: cuptimem prints to standard error, as with `run`. With --json
standard output is the answer alone, and the program's standard output goes to standard error.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cuptimem import environ, interpreter
from cuptimem.cli import json_options, parsing
from cuptimem.cli.run import Usage, check_program, checked_output
from cuptimem.cli.streams import complain

if TYPE_CHECKING:
    from cuptimem.simulation.launch import Setup

_DESCRIPTION = """\
Runs a program on a simulated GPU (none is needed) with the real PyTorch, and says whether it fits.

Files that the program saves hold zeros: give it another output folder, or your checkpoints are lost.
"""
_EPILOG = """\
Sizes that depend on values, for --assume:
{operators}

The program may be run several times: without a limit, with other allocator settings, at the high end of what is
modelled. Only the first run has its input and output; --no-retry prevents the others.

Exit codes: 0 it fits; 3 it does not fit (as it is); 4 undecided; 5 the program itself failed; 1 nothing could be
simulated; 2 wrong usage.
"""


def parser() -> parsing.Parser:
    from cuptimem.simulation import data_sizes

    operators = "\n".join(f"  {name:<18} {what}" for name, what in data_sizes.OPERATORS.items())
    result = parsing.Parser(
        "simulate",
        usage="cuptimem simulate [options] script.py [args ...]\n"
        "       cuptimem simulate [options] -m module [args ...]\n"
        "       cuptimem simulate [options] -c code [args ...]\n"
        "       env $(cuptimem simulate [options] --environment) command ...",
        description=_DESCRIPTION,
        epilog=_EPILOG.format(operators=operators),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_device(result)
    add_model(result)
    result.add_argument(
        "--no-retry", action="store_false", dest="retry", help="run it once, and decide what arithmetic can"
    )
    result.add_argument(
        "--environment",
        action="store_true",
        help="print variables for env that put any command on the device; of it cuptimem reports nothing",
    )
    result.add_argument(
        "-o",
        "--output",
        type=parsing.name,
        metavar="FILE",
        help="keep the trace of the run; summary, ledger, ... read it",
    )
    result.add_argument("-f", "--force", action="store_true", help="replace FILE if it exists")
    json_options.add(result, "the answer as one JSON object (docs/json.md) on standard output")
    result.add_argument("program", nargs=argparse.REMAINDER, help="script.py, -m module or -c code, and its arguments")
    return result


def add_device(result: argparse.ArgumentParser) -> None:
    """--device and --memory."""
    from cuptimem.simulation import cards

    devices = ", ".join(one.key for one in cards.CARDS)
    result.add_argument("--device", type=_text, default="h100", metavar="NAME", help=f"{devices} (default: h100)")
    result.add_argument("--memory", type=_memory, metavar="SIZE", help="another size for it, such as 24GiB")


def add_model(result: argparse.ArgumentParser) -> None:
    """What is said of the device and of the program."""
    from cuptimem.simulation import api

    result.add_argument("--devices", type=_number, default=1, metavar="N", help="how many of them (1)")
    result.add_argument(
        "--context",
        type=_text,
        metavar="SIZE",
        help="what a CUDA context takes of it (default: from the lowest to the highest that is published for it)",
    )
    result.add_argument(
        "--conv-workspace",
        type=_text,
        metavar="SIZE",
        help="what each convolution takes (default: from nothing to an allowance)",
    )
    result.add_argument(
        "--assume",
        type=_shares,
        action="append",
        default=[],
        metavar="[FILE:LINE ]OPERATOR=SHARE[,...]",
        help="sizes that depend on values, everywhere or where a line asks for them: see below",
    )
    result.add_argument(
        "--longest",
        type=_number,
        default=0,
        metavar="N",
        help="run only the N largest batches of each DataLoader, the largest first",
    )
    result.add_argument(
        "--allow-oom",
        action="store_true",
        help="the program may catch OutOfMemoryErrors (a search for a batch size)",
    )
    result.add_argument(
        "--trust-reads",
        action="store_true",
        help="no size and no branch hangs on integers or flags that the program reads from the device (they are zeros)",
    )
    result.add_argument(
        "--timeout",
        type=_seconds,
        default=api.TIMEOUT,
        metavar="SECONDS",
        help=f"for each run ({api.TIMEOUT:g}; 0: no limit)",
    )


def shares(request: argparse.Namespace) -> dict[str, float]:
    """All that --assume says."""
    return {operator: share for shares in request.assume for operator, share in shares.items()}


def main(arguments: Sequence[str]) -> int:
    from cuptimem.errors import Error
    from cuptimem.simulation import api

    ours = parser()
    request = ours.parse_before_program(arguments)
    try:
        if request.environment and request.program:
            raise Usage("--environment takes no program: env $(cuptimem simulate --environment) python ...")
        if request.environment and request.longest:
            raise Usage("--longest is for a program that cuptimem starts: no variable of --environment says it")
        if not request.environment:
            check_program(request.program)
        output = checked_output(request.output, request.force)
    except Usage as error:
        ours.error(str(error))
    try:
        setup = api.make_setup(
            request.device, request.memory, request.devices, request.context, request.conv_workspace, shares(request)
        )
        setup = replace(setup, longest=request.longest)
    except (Error, ValueError) as error:  # no such device, or numbers that make no sense
        ours.error(str(error))
    if request.environment:
        api.ready()
        return _print_environment(setup)
    return _simulate(request, setup, output)


def _simulate(request: argparse.Namespace, setup: "Setup", output: str) -> int:
    from cuptimem import naming
    from cuptimem.output import json
    from cuptimem.output.text import terminal
    from cuptimem.simulation import api, as_json, views
    from cuptimem.simulation.questions import Interrupted, Wishes

    build = api.ready()
    trace = os.path.abspath(naming.expand(output, os.getpid(), naming.rank_of(environ.obeyed()))) if output else ""

    def say(name: str) -> None:
        complain(f"running it again: {name}")

    with tempfile.TemporaryDirectory(prefix="cuptimem-sim-") as folder:
        try:
            simulation = api.inquire(
                [sys.executable, *interpreter.flags(), *request.program],
                setup,
                Wishes(
                    retry=request.retry,
                    allow_oom=request.allow_oom,
                    trust_reads=request.trust_reads,
                    timeout=request.timeout or None,
                ),
                build,
                folder,
                trace=trace,
                overwrite=request.force,
                output="stderr" if request.json else "pass",
                forward=True,
                progress=say,
            )
        except Interrupted:
            print("cuptimem: interrupted, so there is no answer", file=sys.stderr)
            return 130
        misplaced = _misplaced(request.program)
        if misplaced and simulation.exit_code == 2:
            hint = f"options of simulate go before the script; the program got {', '.join(misplaced)}"
            simulation = replace(simulation, hints=(*simulation.hints, hint))
        if request.json:
            json.show(as_json.simulate(simulation), json_options.bounds(request))
        else:
            print(file=sys.stderr)
            terminal.show(views.simulation(simulation), sys.stderr)
        return simulation.code


def _print_environment(setup: "Setup") -> int:
    """Prints the variables of the device alone: cuptimem does not run the command that gets them."""
    from cuptimem.simulation import launch

    print(*(f"{name}={value}" for name, value in launch.by_hand(environ.obeyed(), setup).items()))
    print("cuptimem: on a simulated device; files that the program saves hold zeros", file=sys.stderr)
    return 0


_LEAST_PLAIN = 1 << 20  # a --memory without a unit that is smaller was not meant as bytes


def _misplaced(program: list[str]) -> list[str]:
    """Arguments of the program that have the names of our options."""
    ours = parser().own_options().keys() - {"-h", "--help"}
    names = (argument.partition("=")[0] for argument in program[2 if program[0] in ("-m", "-c") else 1 :])
    return [name for name in dict.fromkeys(names) if name in ours]


def _text(value: str) -> str:
    if not value:
        raise argparse.ArgumentTypeError("needs a value")
    return value


def _memory(value: str) -> str:
    if value.isdecimal() and 0 < int(value) < _LEAST_PLAIN:
        raise argparse.ArgumentTypeError(f"{value} is that many bytes; write {value}GiB")
    return _text(value)


def _number(value: str) -> int:
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"takes a number, not {value!r}")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"takes seconds, not {value!r}")
    return seconds


def _shares(value: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for part in value.split(","):
        operator, equals, share = part.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not equals or number < 0:
            raise argparse.ArgumentTypeError(
                f"takes OPERATOR=SHARE such as nonzero=0.3 or 'train.py:120 nonzero=0.3', not {part!r}"
            )
        shares[operator.strip()] = number
    return shares
