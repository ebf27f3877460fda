"""cuptimem peak FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.reporters import json, terminal, views


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("peak", "What was alive at the peak: bytes, blocks and the line they come from.")
    parser.add_argument(
        "--step", type=reading.index, metavar="N", help="the peak of step N (from 0) instead of the run's"
    )
    parser.add_argument("--device", metavar="D", help="only this device (cpu, cuda:0); default: all")
    parser.add_argument("-n", "--top", type=reading.count, default=15, metavar="N", help="lines to show (15)")
    options = parser.parse_args(arguments)
    report = reading.read(options.file, options.step)
    peaks = reading.chosen_peaks(report, options.device)
    if options.json:
        print(json.text(json.peaks(report, peaks)))
    else:
        terminal.show(views.peak(report, peaks, options.top))
    return 0
