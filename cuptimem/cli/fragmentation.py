"""cuptimem fragmentation FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report.fragmentation import MOMENTS


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "fragmentation",
        "What PyTorch's allocator has of a device and cannot give out: reserved against allocated, the largest request "
        "that would fit, the lines whose blocks keep segments from going back, and what would return them.",
    )
    result.add_argument("--device", metavar="D", help="only this device (cuda:0); default: all")
    result.add_argument(
        "--at",
        choices=MOMENTS,
        help="when the device refused, at its most reserved, at the end; default: the first of them that there is",
    )
    result.add_argument("-n", "--top", type=reading.count, default=10, metavar="N", help="lines, and segments (10)")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    report = reading.read(options)
    names = dict.fromkeys(row.device for row in report.fragmentations)
    devices = [options.device] if options.device is not None or not names else list(names)
    rows = tuple(report.fragmentation(device, options.at) for device in devices)
    if options.json:
        json.show(json.fragmentation(report, rows), json_options.bounds(options))
    else:
        terminal.show(views.fragmentation(report, rows, options.top))
    return 0
