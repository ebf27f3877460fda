"""cuptimem peak FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.reporters import json, terminal, views


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("peak", "What was alive at the peak: bytes, blocks and the line they come from.")
    reading.add_step(parser, "the peak of step N (from 0; -1 is the last) instead of the run's")
    parser.add_argument(
        "--at",
        choices=("start", "peak", "end"),
        default="peak",
        help="what was alive at the start or end of the run, or of the step, instead of its peak",
    )
    parser.add_argument("--device", metavar="D", help="only this device (cpu, cuda:0); default: all")
    parser.add_argument("-n", "--top", type=reading.count, default=15, metavar="N", help="lines to show (15)")
    options = parser.parse_args(arguments)
    report = reading.read(options, step=options.step, tables=reading.tables(options.at))
    found = reading.chosen(report, options.device, options.at)
    if options.json:
        print(json.text(json.peaks(report, found)))
    else:
        terminal.show(views.peak(report, found, options.top))
    return 0
