"""cuptimem peak FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.text import oom_views, terminal, views
from cuptimem.record import refusals


def parser() -> argparse.ArgumentParser:
    result = reading.parser("peak", "What was alive at the peak: bytes, blocks and the line they come from.")
    reading.add_step(result, "the peak of step N (from 0; -1 is the last) instead of the run's")
    result.add_argument(
        "--at",
        choices=("start", "peak", "end", "oom"),
        default="peak",
        help="what was alive at the start or end of the run, or of the step, instead of its peak; oom: when memory was "
        "refused, on one page (of the request whose exception ended the program, else of the first one)",
    )
    result.add_argument("--device", metavar="D", help="only this device (cpu, pinned, cuda:0); default: all")
    result.add_argument("-n", "--top", type=reading.count, default=15, metavar="N", help="lines to show (15)")
    return result


def main(arguments: Sequence[str]) -> int:
    ours = parser()
    options = ours.parse_args(arguments)
    if options.at == "oom":
        return _oom(ours, options)
    report = reading.read(options, step=options.step, tables=reading.tables(options.at))
    found = reading.chosen(report, options.device, options.at)
    if options.json:
        json.show(json.peaks(report, found), json_options.bounds(options))
    else:
        terminal.show(views.peak(report, found, options.top))
    return 0


def _oom(ours: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.step is not None:
        ours.error("--at oom is a moment of the run: leave out --step")
    report = reading.read(options, with_lives=not options.json)
    found = [oom for oom in report.ooms if options.device is None or oom.device == report.device(options.device).name]
    if not found:
        raise Error(f"no request was refused{f' on {options.device}' if options.device else ''} in this recording")
    if options.json:
        json.show(json.ooms(report, found), json_options.bounds(options))
    else:
        chosen = next((oom for oom in found if oom.escaped), found[0])
        blocks = [*oom_views.page(report, chosen), *oom_views.advised(report, chosen)]
        terminal.show(blocks, otherwise=refusals.WIDTH)
    return 0
