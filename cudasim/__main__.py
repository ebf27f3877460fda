"""cudasim [options] program ...: runs a program on the simulated device. cudasim --read FILE: what it used of it."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence

import cudasim
from cudasim import cards, report

USAGE, NOT_FOUND = 2, 127  # exit codes, as a shell has them
SETTINGS = ("device", "devices", "memory", "report", "log")  # options that are variables of the device


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "cudasim",
        usage="cudasim [options] program ...\n       cudasim --read FILE | --list",
        description="Runs a program on a simulated CUDA device. Memory is counted, kernels compute nothing.",
        allow_abbrev=False,
    )
    made.add_argument("--device", metavar="CARD", help="h100 by default; several with commas between them")
    made.add_argument("--devices", metavar="N", help="how many of that card")
    made.add_argument("--memory", metavar="SIZE", help="of each device, as 24GiB, instead of its card's")
    made.add_argument("--report", metavar="FILE", help="where each process writes what it used")
    made.add_argument("--log", metavar="FILE", help="where each process writes its memory calls")
    made.add_argument("--read", metavar="FILE", help="show the report of a program that has ended")
    made.add_argument("--list", action="store_true", help="the cards that there are")
    made.add_argument("--version", action="version", version=f"cudasim {cudasim.__version__}")
    made.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def unknown(names: str) -> str | None:
    """The first of these cards that is none, as the library reads them."""
    known = {_plain(name) for card in cards.CARDS for name in (card.key, card.name)}
    return next((name for name in names.split(",") if _plain(name) not in known), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s-]", "", name.lower())


def environment(base: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The program's. The device's settings that are not given stay what `base` says."""
    found = {**base, **cudasim.variables(base.get("LD_PRELOAD", ""))}
    found.pop("CUDA_VISIBLE_DEVICES", None)  # it names devices of this machine
    return found | {f"CUPTIMEM_SIM_{name.upper()}": value for name, value in settings.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    asked = made.parse_args(arguments)
    if asked.list:
        print("\n".join(f"{card.key:12} {card.memory:>15,} bytes  {card.name}" for card in cards.CARDS))
        return 0
    program = asked.program[1:] if asked.program[:1] == ["--"] else asked.program
    if bool(asked.read) == bool(program):
        made.error("name a program, or a report with --read")
    try:
        if asked.read:
            return _show(asked.read)
        if asked.device and (name := unknown(asked.device)) is not None:
            made.error(f"no card {name!r}; there are {', '.join(card.key for card in cards.CARDS)}")
        settings = {name: str(value) for name in SETTINGS if (value := getattr(asked, name)) is not None}
        for name in {"report", "log"} & settings.keys():
            settings[name] = os.path.abspath(settings[name])  # the program may change its folder
        variables = environment(os.environ, settings)
    except (OSError, ValueError) as error:
        print(f"cudasim: {error}", file=sys.stderr)
        return USAGE
    sys.stdout.flush()
    try:
        os.execvpe(program[0], program, variables)
    except OSError as error:
        print(f"cudasim: {program[0]}: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


def _show(path: str) -> int:
    found = report.read(path)
    if not found:
        print(f"cudasim: {path}: no report; no process used the device, or it wrote elsewhere", file=sys.stderr)
        return 1
    print("\n".join(line for one in found for line in report.lines(one)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
