"""cuptimem table FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.pages import writing
from cuptimem.output.text import terminal, views
from cuptimem.report import grouping


def parser() -> argparse.ArgumentParser:
    result = reading.parser("table", "The blocks alive at the peak (or of --what), summed by one property.")
    words = "; ".join(f"{name}: {meaning}" for name, meaning in grouping.GROUPINGS.items())
    result.add_argument(
        "--by", choices=grouping.GROUPINGS, default="line", metavar="BY", help=f"what to sum by (line). {words}"
    )
    result.add_argument(
        "--depth", type=reading.count, metavar="N", help="with --by module: the first N parts of their names"
    )
    result.add_argument("--sort", choices=grouping.ORDERS, default="bytes", help="the order of the rows (bytes)")
    reading.add_contents(result)
    result.add_argument(
        "--device", metavar="D", help="this device (cpu, pinned, cuda:0); default: the fullest accelerator, else cpu"
    )
    result.add_argument("-n", "--top", type=reading.count, default=40, metavar="N", help="rows to show (40)")
    writing.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    ours = parser()
    options = ours.parse_args(arguments)
    if options.depth is not None and options.by != "module":
        ours.error("--depth goes with --by module")
    name = writing.beside(options.file, "table")
    if writing.wanted(options):
        writing.target(options, name)
    report = reading.read(options, step=options.step, tables=reading.tables(options.what))
    if options.by == "module" and "snapshot" in report.environment:
        raise Error("modules are not known: a snapshot of PyTorch's does not record them; choose another --by")
    found = reading.chosen(report, options.device, options.what)
    contents = next(iter(found), None)
    if writing.wanted(options):
        from cuptimem.output.pages import tables

        writing.write_page(options, name, tables.table(report, found, options.by, options.sort, options.depth))
    elif options.json:
        contributors = contents.contributors if contents is not None else ()
        rows = grouping.group(contributors, options.by, options.sort, depth=options.depth)
        json.show(json.table(report, contents, rows, options.by), json_options.bounds(options))
    else:
        terminal.show(views.table(report, contents, options.by, options.sort, options.top, options.depth))
    return 0
