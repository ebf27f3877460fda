"""cuptimem diff BEFORE AFTER"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.output import json
from cuptimem.output.pages import writing
from cuptimem.output.text import terminal, views
from cuptimem.output.text.descent import line_to_leave
from cuptimem.report.diff import TABLES, compare


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser(
        "diff",
        "Two recordings: what came, went and grew, at the peak, at the end, and in what a step allocates. Lines that "
        "an edit has moved are known by their function and text.",
    )
    result.add_argument("before", metavar="BEFORE", help="a trace")
    result.add_argument("after", metavar="AFTER", help="another one")
    result.add_argument(
        "--device", metavar="D", help="lines of this device (cpu, cuda:0); default: the first that changed"
    )
    result.add_argument("-n", "--top", type=reading.count, default=6, metavar="N", help="lines of each table (6)")
    writing.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    name = writing.beside(options.after, "diff")
    if writing.wanted(options):
        writing.target(options, name)
    before = reading.read(options, options.before, tables=TABLES)
    after = reading.read(options, options.after, tables=TABLES)
    named = None
    if options.device is not None:
        there = after if any(options.device in (d.name, d.name.removesuffix(":0")) for d in after.devices) else before
        named = there.device(options.device).name
    left = tuple(
        [frame for peak in report.peaks[:1] for frame in [line_to_leave(peak)] if frame is not None]
        for report in (before, after)
    )
    devices = compare(before, after, (left[0], left[1]))
    if writing.wanted(options):
        from cuptimem.output.pages import diff

        writing.write_page(options, name, diff.html(before, after, devices, named))
    elif options.json:
        json.show(json.diff(before, after, devices))
    else:
        terminal.show(views.diff(before, after, devices, named, options.top))
    return 0
