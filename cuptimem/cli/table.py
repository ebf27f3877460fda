"""cuptimem table FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.reporters import json, terminal, views


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("table", "The blocks alive at the peak, summed by one property.")
    parser.add_argument("--by", choices=views.GROUPINGS, default="line", help="what to sum by (line)")
    parser.add_argument("--sort", choices=views.ORDERS, default="bytes", help="the order of the rows (bytes)")
    parser.add_argument(
        "--step", type=reading.index, metavar="N", help="the peak of step N (from 0) instead of the run's"
    )
    parser.add_argument(
        "--device", metavar="D", help="this device (cpu, cuda:0); default: the fullest accelerator, else cpu"
    )
    parser.add_argument("-n", "--top", type=reading.count, default=40, metavar="N", help="rows to show (40)")
    options = parser.parse_args(arguments)
    report = reading.read(options.file, options.step)
    peak = next(iter(reading.chosen_peaks(report, options.device)), None)
    rows = views.group(peak.contributors if peak is not None else (), options.by, options.sort)
    if options.json:
        print(json.text(json.table(report, peak, rows, options.by)))
    else:
        terminal.show(views.table(report, peak, rows, options.by, options.top))
    return 0
