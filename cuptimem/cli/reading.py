"""What the verbs that read a trace share: their arguments, the progress bar, the choice of a device."""

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cuptimem import sizes
from cuptimem.cli import hints, json_options
from cuptimem.cli.parsing import Parser
from cuptimem.errors import Error
from cuptimem.output.text import terminal
from cuptimem.report import own_code
from cuptimem.report.load import analyze
from cuptimem.report.model import Contents, Report

_NUMBERS = 1 << 62

WHAT = ("peak", "end", "allocated", "temporary")


def parser(verb: str, description: str, *, json: bool = True) -> argparse.ArgumentParser:
    """A parser with FILE, --json and --code."""
    result = bare_parser(verb, description, json=json)
    add_file(result)
    return result


def add_file(parser: argparse.ArgumentParser) -> None:
    """The trace to read. Left out: the newest here, which the parser puts in (cli/parsing.py)."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a trace that `cuptimem run` or cuptimem.profile wrote, or a memory snapshot of PyTorch's (default: the "
        "newest *.cmem in this folder)",
    )


def bare_parser(verb: str, description: str, *, json: bool = True) -> argparse.ArgumentParser:
    """A parser without FILE."""
    result = Parser(verb, description=description)
    if json:
        json_options.add(result)
    add_code(result)
    return result


def add_code(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--code",
        type=_package,
        action="extend",
        metavar="PACKAGE",
        help=f"an installed package that counts as your code, too (again for more; else {own_code.VARIABLE}, "
        "else what the recording names)",
    )


def _package(text: str) -> tuple[str, ...]:
    try:
        return own_code.names(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(text: str) -> int:
    """An argument that is a number, and no larger than the core takes. Raises ValueError for anything else."""
    value = int(text)
    if not -_NUMBERS <= value < _NUMBERS:
        raise ValueError
    return value


def count(text: str) -> int:
    """An argument that counts from 1."""
    value = number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes at least 1, not {value}")
    return value


def index(text: str) -> int:
    """An argument that counts from 0."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"takes at least 0, not {value}")
    return value


def add_contents(parser: argparse.ArgumentParser) -> None:
    """The arguments that choose the blocks."""
    parser.add_argument(
        "--what",
        choices=WHAT,
        default=WHAT[0],
        help="alive at the peak (the default), alive at the end, all that was ever allocated, or what was freed in the "
        "step that made it",
    )
    add_step(parser, "only of step N (from 0; -1 is the last) instead of the whole run")


def add_step(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--step", type=number, metavar="N", help=what)


def read(
    options: argparse.Namespace,
    path: str | None = None,
    *,
    step: int | None = None,
    ledger_at_ns: int | None = None,
    min_rate: float | None = None,
    tables: Iterable[str] = (),
    with_lives: bool = False,
) -> Report:
    """Opens the trace that was named, with a bar on standard error when it takes long."""
    path = options.file if path is None else path
    with hints_about(path), terminal.progress(f"reading {os.path.basename(path)}") as tell:
        return analyze(
            path,
            step=step,
            progress=tell,
            ledger_at_ns=ledger_at_ns,
            min_rate=min_rate,
            code=options.code,
            tables=tables,
            with_lives=with_lives,
        )


@contextmanager
def hints_about(path: str) -> Iterator[None]:
    """Adds what to do next to an error of reading this file."""
    try:
        yield
    except Error as error:
        hint = "" if hints.is_trace(path) else hints.about(path)
        raise Error(f"{error}; {hint}" if hint else str(error)) from error


def tables(what: str) -> tuple[str, ...]:
    """What a report must be opened with to show this."""
    return () if what == "peak" else (what,)


def size(text: str) -> int:
    """An argument in bytes: 512, 4K, 1.5 MiB."""
    try:
        return sizes.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a size such as 512, 4K or 1.5 MiB, not {text!r}") from None


def chosen(report: Report, device: str | None, what: str) -> tuple[Contents, ...]:
    """What to show: of one device or of all that were used, which may be none."""
    if device is not None:
        return (report.contents(what, device),)
    return tuple(report.contents(what, peak.device) for peak in report.peaks if peak.bytes > 0)
