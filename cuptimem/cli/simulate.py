"""cuptimem simulate [options] script.py args | -m module args | -c code

The program's own output stays what it is: what cuptimem says goes to standard error, as with `run`. With --json
standard output is the answer alone, and the program's standard output goes to standard error.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cuptimem.cli.run import Usage, check_program, checked_output, interpreter_flags

if TYPE_CHECKING:
    from cuptimem.simulation.launch import Setup

HELP = """\
usage: cuptimem simulate [options] script.py [args ...]
       cuptimem simulate [options] -m module [args ...]
       cuptimem simulate [options] -c code [args ...]
       env $(cuptimem simulate [options] --environment) command ...

Runs a program on a simulated GPU (none is needed) with the real PyTorch, and says whether it fits.

Files that the program saves hold zeros: give it another output folder, or your checkpoints are lost.

      --device NAME     {devices}
                        (default: h100)
      --memory SIZE     another size for it, such as 24GiB
      --devices N       so many of them (1)
      --context SIZE    what a CUDA context takes of it (default: the device's constant)
      --conv-workspace SIZE
                        what each convolution takes; default: from nothing to an allowance
      --assume OPERATOR=SHARE[,...]
                        sizes that depend on values:
{operators}
      --allow-oom       the program may catch OutOfMemoryErrors (a search for a batch size)
      --trust-reads     no size and no branch hangs on integers or flags that the
                        program reads from the device (they are zeros)
      --no-retry        run it once: no other settings, no high end
      --timeout SECONDS for each run ({timeout:g}; 0: no end)
      --environment     print the variables that put any command on the device, for
                        env: of it cuptimem then says nothing, and reports nothing
  -o, --output FILE     keep the trace of the run; summary, ledger, ... read it
  -f, --force           replace FILE if it exists
      --json            the answer as one JSON object (docs/json.md) on standard output
  -h, --help            this text

The program may be run several times: without a limit, with other allocator settings, at the high end of what is
modelled. Only the first run has its input and output; --no-retry prevents the others.

Exit codes: 0 it fits; 3 it does not fit (as it is); 4 undecided; 5 the program itself failed; 1 nothing could be
simulated; 2 wrong usage.
"""


class _Request:
    def __init__(self) -> None:
        self.device = "h100"
        self.memory: str | None = None
        self.devices = 1
        self.context: str | None = None
        self.conv_workspace: str | None = None
        self.assume: dict[str, float] = {}
        self.allow_oom = False
        self.trust_reads = False
        self.retry = True
        self.timeout: float | None = None
        self.output = ""
        self.force = False
        self.json = False
        self.help = False
        self.environment = False
        self.program: list[str] = []


def main(arguments: Sequence[str]) -> int:
    try:
        request = _parse(list(arguments))
        if request.help:
            print(_help(), end="")
            return 0
        if request.environment and request.program:
            raise Usage("--environment takes no program: env $(cuptimem simulate --environment) python ...")
        if not request.environment:
            check_program(request.program)
        output = checked_output(request.output, request.force)
    except Usage as error:
        print(f"cuptimem simulate: {error}; see: cuptimem simulate --help", file=sys.stderr)
        return 2
    return _simulate(request, output)


def _simulate(request: _Request, output: str) -> int:
    from cuptimem import naming
    from cuptimem.errors import Error
    from cuptimem.reporters import json, simulate_views, terminal
    from cuptimem.simulation import api
    from cuptimem.simulation.questions import Interrupted, Wishes

    try:
        setup = api.make_setup(
            request.device,
            request.memory,
            request.devices,
            request.context,
            request.conv_workspace,
            request.assume,
        )
    except (Error, ValueError) as error:  # no such device, or numbers that make no sense
        print(f"cuptimem simulate: {error}; see: cuptimem simulate --help", file=sys.stderr)
        return 2
    build = api.ready()
    if request.environment:
        return _print_environment(setup)
    timeout = api.TIMEOUT if request.timeout is None else request.timeout or None
    trace = os.path.abspath(naming.expand(output, os.getpid(), naming.rank_of(os.environ))) if output else ""

    def say(name: str) -> None:
        print(f"cuptimem: running it again: {name}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="cuptimem-sim-") as folder:
        try:
            report = api.inquire(
                [sys.executable, *interpreter_flags(), *request.program],
                setup,
                Wishes(
                    retry=request.retry,
                    allow_oom=request.allow_oom,
                    trust_reads=request.trust_reads,
                    timeout=timeout,
                ),
                build,
                folder,
                trace=trace,
                overwrite=request.force,
                output="stderr" if request.json else "pass",
                forward=True,
                progress=say if sys.stderr.isatty() else lambda name: None,
            )
        except Interrupted:
            print("cuptimem: interrupted, so there is no answer", file=sys.stderr)
            return 130
        simulation = report.simulation
        assert simulation is not None
        misplaced = _misplaced(request.program)
        if misplaced and simulation.exit_code == 2:
            hint = f"options of simulate go before the script; the program got {', '.join(misplaced)}"
            simulation = replace(simulation, hints=(*simulation.hints, hint))
        if request.json:
            print(json.text(json.simulate(report, simulation)))
        else:
            print(file=sys.stderr)
            terminal.show(simulate_views.simulation(report, simulation), sys.stderr)
        return simulation.code


def _print_environment(setup: "Setup") -> int:
    """Of the device alone: the command that gets them is not run by us."""
    from cuptimem.simulation import launch

    print(*(f"{name}={value}" for name, value in launch.by_hand(os.environ, setup).items()))
    print("cuptimem: on a simulated device; files that the program saves hold zeros", file=sys.stderr)
    return 0


def _help() -> str:
    from cuptimem.simulation import api, cards, data_sizes

    operators = "\n".join(f"{'':26}{name:<18} {what}" for name, what in data_sizes.OPERATORS.items())
    return HELP.format(devices=", ".join(one.key for one in cards.CARDS), operators=operators, timeout=api.TIMEOUT)


_FLAGS = {"--no-retry", "--allow-oom", "--trust-reads", "-f", "--force", "--json", "--environment"}
_VALUES = {
    "--device",
    "--memory",
    "--devices",
    "--context",
    "--conv-workspace",
    "--assume",
    "--timeout",
    "-o",
    "--output",
}
_LEAST_PLAIN = 1 << 20  # a --memory without a unit that is smaller was not meant as bytes


def _misplaced(program: list[str]) -> list[str]:
    """Arguments of the program that read like options of ours."""
    names = (argument.partition("=")[0] for argument in program[2 if program[0] in ("-m", "-c") else 1 :])
    return [name for name in dict.fromkeys(names) if name in _FLAGS or name in _VALUES]


def _parse(arguments: list[str]) -> _Request:
    request = _Request()
    while arguments:
        argument = arguments.pop(0)
        name, equals, value = argument.partition("=")
        if argument.startswith("-o") and len(argument) > 2 and not argument.startswith("--"):
            name, equals, value = "-o", "=", argument[2:]
        if argument in ("-h", "--help"):
            request.help = True
            return request
        if argument in _FLAGS:
            _flag(request, argument)
        elif name in _VALUES:
            if not equals:
                if not arguments:
                    raise Usage(f"{name} needs a value")
                value = arguments.pop(0)
            _value(request, name, value)
        elif argument in ("-m", "-c"):
            if not arguments:
                raise Usage(f"{argument} needs a {'module' if argument == '-m' else 'program'}")
            request.program = [argument, *arguments]
            return request
        elif argument == "--":
            request.program = arguments
            break
        elif argument.startswith("-") and argument != "-":
            raise Usage(f"unknown option {argument}")
        else:
            request.program = [argument, *arguments]
            return request
    if not request.program and not request.environment:
        raise Usage("nothing to run")
    return request


def _flag(request: _Request, name: str) -> None:
    if name == "--no-retry":
        request.retry = False
    elif name == "--allow-oom":
        request.allow_oom = True
    elif name == "--trust-reads":
        request.trust_reads = True
    elif name == "--environment":
        request.environment = True
    elif name == "--json":
        request.json = True
    else:
        request.force = True


def _value(request: _Request, name: str, value: str) -> None:
    if not value:
        raise Usage(f"{name} needs a value")
    if name == "--device":
        request.device = value
    elif name == "--memory":
        if value.isdecimal() and 0 < int(value) < _LEAST_PLAIN:
            raise Usage(f"--memory {value} is that many bytes; write {value}GiB")
        request.memory = value
    elif name == "--context":
        request.context = value
    elif name == "--conv-workspace":
        request.conv_workspace = value
    elif name == "--assume":
        _assume(request, value)
    elif name == "--devices":
        if not value.isdigit():
            raise Usage(f"--devices takes a number, not {value!r}")
        request.devices = int(value)
    elif name == "--timeout":
        request.timeout = _seconds(value)
    else:
        request.output = value


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        raise Usage(f"--timeout takes seconds, not {value!r}") from None
    if not 0 <= seconds < float("inf"):
        raise Usage(f"--timeout takes seconds, not {value!r}")
    return seconds


def _assume(request: _Request, value: str) -> None:
    for part in value.split(","):
        operator, equals, share = part.partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not equals or number < 0:
            raise Usage(f"--assume takes OPERATOR=SHARE such as nonzero=0.3, not {part!r}")
        request.assume[operator.strip()] = number
