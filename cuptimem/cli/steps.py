"""cuptimem steps FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report.model import Step

_ENDS = 20  # rows shown at each end of a long run


def parser() -> argparse.ArgumentParser:
    result = reading.parser("steps", "Every training step: bytes live at its start, peak and end; allocated and freed.")
    result.add_argument("--device", metavar="D", help="only this device (cpu, pinned, cuda:0); default: all")
    result.add_argument("--all", action="store_true", help=f"every row, not only the first and last {_ENDS}")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    report = reading.read(options)
    rows: tuple[Step, ...] = tuple(report.steps)
    if options.device is not None:
        name = report.device(options.device).name
        rows = tuple(step for step in rows if step.device == name)
    if options.json:
        json.show(json.steps(report, rows), json_options.bounds(options))
        return 0
    shown = rows if options.all or len(rows) <= 2 * _ENDS else (*rows[:_ENDS], *rows[-_ENDS:])
    terminal.show(views.steps(report, shown, len(rows) - len(shown)))
    return 0
