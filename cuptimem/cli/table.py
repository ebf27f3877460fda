"""cuptimem table FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading, writing
from cuptimem.reporters import json, table_views, terminal, views


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("table", "The blocks alive at the peak (or of --what), summed by one property.")
    parser.add_argument("--by", choices=table_views.GROUPINGS, default="line", help="what to sum by (line)")
    parser.add_argument("--sort", choices=table_views.ORDERS, default="bytes", help="the order of the rows (bytes)")
    reading.add_contents(parser)
    parser.add_argument(
        "--device", metavar="D", help="this device (cpu, cuda:0); default: the fullest accelerator, else cpu"
    )
    parser.add_argument("-n", "--top", type=reading.count, default=40, metavar="N", help="rows to show (40)")
    writing.add_output(parser)
    options = parser.parse_args(arguments)
    name = writing.beside(options.file, "table")
    if writing.wanted(options):
        writing.target(options, name)
    report = reading.read(options, step=options.step, tables=reading.tables(options.what))
    found = reading.chosen(report, options.device, options.what)
    contents = next(iter(found), None)
    if writing.wanted(options):
        from cuptimem.pages import tables

        writing.write_page(options, name, tables.table(report, found, options.by, options.sort))
    elif options.json:
        rows = table_views.group(contents.contributors if contents is not None else (), options.by, options.sort)
        print(json.text(json.table(report, contents, rows, options.by)))
    else:
        terminal.show(views.table(report, contents, options.by, options.sort, options.top))
    return 0
