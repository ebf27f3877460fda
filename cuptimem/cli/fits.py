"""cuptimem fits [options] script.py args: on which cards a program fits, or with which settings of the allocator."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cuptimem import environ, interpreter
from cuptimem.cli import advice_try, json_options, parsing, simulate
from cuptimem.cli.run import Usage, check_program
from cuptimem.cli.streams import complain
from cuptimem.errors import Error

if TYPE_CHECKING:
    from cuptimem.simulation.fitting import Ask, Case
    from cuptimem.simulation.launch import Setup
    from cuptimem.simulation.result import Simulation

_OF_A_MACHINE = 8  # devices, where nothing else is said

_DESCRIPTION = """\
Says in one table on which GPUs a program fits, and what it takes there. None is needed: they are simulated.

Files that the program saves hold zeros: give it another output folder, or your checkpoints are lost.
"""
_EPILOG = """\
The program runs on the largest card of each architecture, and on others where arithmetic does not decide. What each run
is like, and OPERATORs of --assume: cuptimem simulate --help.

Exit codes: 0 the table was made; 5 the program itself failed; 1 nothing could be simulated; 2 wrong usage. With --gate
also 3 it does not fit on one of them; 4 undecided for one, and none of them is too small.
"""


def parser() -> parsing.Parser:
    from cuptimem.simulation import cards

    result = parsing.Parser(
        "fits",
        usage="cuptimem fits [options] script.py [args ...]\n       cuptimem fits [options] -m module [args ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    keys = ", ".join(one.key for one in cards.CARDS)
    result.add_argument(
        "--device", metavar="NAME[,NAME...]", help=f"{keys} (default: all that PyTorch has kernels for)"
    )
    result.add_argument("--memory", metavar="SIZE", help="of one card (default: h100), such as 24GiB")
    result.add_argument(
        "--compare-settings",
        action="store_true",
        help="on one card (default: h100), with each of several settings of PyTorch's allocator",
    )
    result.add_argument(
        "--world-size",
        type=_count,
        metavar="N",
        help="on one card (default: h100), as each of the N ranks that torchrun would start; ranks that differ are run",
    )
    result.add_argument("--ranks", type=_ranks, metavar="RANK[,RANK...]", help="run these ranks alone")
    result.add_argument("--gate", action="store_true", help="fail with 3 or 4 unless it fits on all of them")
    simulate.add_model(result)
    result.set_defaults(devices=None)  # of one program, or of a machine that many ranks share
    json_options.add(result, "the table as one JSON object (docs/json.md) on standard output")
    result.add_argument("program", nargs=argparse.REMAINDER, help="script.py or -m module, and its arguments")
    return result


def main(arguments: Sequence[str]) -> int:
    ours = parser()
    request = ours.parse_before_program(arguments)
    try:
        check_program(request.program)
        cases = _cases(request)
    except (Usage, Error, ValueError) as error:
        ours.error(str(error))
    return _answer(request, cases)


def _cases(request: argparse.Namespace) -> "list[Case]":
    from cuptimem.simulation import api, cards, fitting

    names = [name for name in (request.device or "").split(",") if name]
    single = request.memory or request.compare_settings or request.world_size
    if single and len(names) > 1:
        raise Usage("--memory, --compare-settings and --world-size are for one card")
    if request.compare_settings and request.world_size:
        raise Usage("--compare-settings or --world-size, not both")
    if request.ranks and not request.world_size:
        raise Usage("--ranks needs --world-size")
    if request.ranks and max(request.ranks) >= request.world_size:
        raise Usage(f"there is no rank {max(request.ranks)} of {request.world_size}")
    devices = min(request.world_size or 1, _OF_A_MACHINE) if request.devices is None else request.devices
    chosen = [cards.card(name) for name in names] or [one for one in cards.CARDS if one.has_kernels]
    device = names[0] if names else "h100" if single else chosen[0].key
    setup = api.make_setup(
        device, request.memory, devices, request.context, request.conv_workspace, simulate.shares(request)
    )
    setup = replace(setup, longest=request.longest)
    if request.compare_settings:
        return fitting.of_settings(setup, environ.inherited())
    single = request.memory or request.world_size
    return [fitting.Case(setup.card.key, setup)] if single else fitting.of_cards(setup, chosen)


def _answer(request: argparse.Namespace, cases: "list[Case]") -> int:
    from cuptimem.output import json
    from cuptimem.output.text import terminal
    from cuptimem.simulation import api, as_json, fitting, fitting_views
    from cuptimem.simulation.questions import Interrupted, Wishes

    build = api.ready()
    wishes = Wishes(
        allow_oom=request.allow_oom,
        trust_reads=request.trust_reads,
        timeout=request.timeout or None,
        alternatives=False,
    )
    command = [sys.executable, *interpreter.flags(), *request.program]
    asked = 0

    def ask(case: "Case") -> "Simulation":
        nonlocal asked
        asked += 1
        done = "" if len(cases) == 1 else f" ({asked} of at most {len(cases)})"
        done = f" (run {asked})" if request.world_size else done  # a rank that waits for another runs again
        how = "with" if request.compare_settings else "as" if request.world_size else "on"
        complain(f"running it {how} {case.name}{done}")
        with tempfile.TemporaryDirectory(prefix="cuptimem-sim-") as folder:
            return api.inquire(command, case.setup, wishes, build, folder)

    with advice_try.exit_at_signals():
        try:
            if request.world_size:
                return _show_ranks(request, cases[0].setup, ask)
            rows = fitting.answers(cases, ask, arithmetic=not request.compare_settings)
        except Interrupted:
            print("cuptimem: interrupted, so there is no answer", file=sys.stderr)
            return 130
    code = fitting.exit_code(rows)
    if request.json:
        json.show(as_json.fits(rows, code), json_options.bounds(request))
    else:
        terminal.show(fitting_views.blocks(rows, request.compare_settings))
    return code if request.gate or code == 5 else 0


def _show_ranks(request: argparse.Namespace, setup: "Setup", ask: "Ask") -> int:
    from cuptimem.output import json
    from cuptimem.output.text import terminal
    from cuptimem.simulation import as_json, ranks, ranks_views

    found = ranks.of_program(setup, request.world_size, request.ranks, ask)
    code = ranks.exit_code(found)
    if request.json:
        json.show(as_json.ranks(found, request.world_size, code), json_options.bounds(request))
    else:
        terminal.show(ranks_views.blocks(found, request.world_size))
    return code if request.gate or code == 5 else 0


def _count(value: str) -> int:
    from cuptimem.simulation import world

    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= world.MOST):
        raise argparse.ArgumentTypeError(f"takes a number of ranks from 1 to {world.MOST}, not {value!r}")
    return int(value)


def _ranks(value: str) -> list[int]:
    numbers = value.split(",")
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"takes ranks such as 0,1,7, not {value!r}")
    return sorted(set(map(int, numbers)))
