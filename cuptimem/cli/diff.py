"""cuptimem diff BEFORE AFTER"""

import argparse
import os
from collections.abc import Iterator, Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.pages import writing
from cuptimem.output.text import terminal, views
from cuptimem.report.diff import STEP_TABLES, TABLES, OfLoop, compare, steps_to_compare
from cuptimem.report.model import Report


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser(
        "diff",
        "Two recordings: what was added and removed, grew and shrank, at the peak, at the end, and in what a step of "
        "each loop allocates. Lines that an edit has moved are known by their text. Of two folders or patterns each "
        "rank is compared with itself.",
    )
    result.add_argument("before", metavar="BEFORE", help="a trace; or those of a job's ranks: a folder or a pattern")
    result.add_argument("after", metavar="AFTER", help="another one")
    result.add_argument(
        "--device", metavar="D", help="lines of this device (cpu, pinned, cuda:0); default: the first that changed"
    )
    result.add_argument("-n", "--top", type=reading.count, default=6, metavar="N", help="lines of each table (6)")
    writing.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    from cuptimem.distributed import reading as traces

    options = parser().parse_args(arguments)
    if traces.is_set(options.before) or traces.is_set(options.after):
        return _ranks(options)
    name = writing.beside(options.after, "diff")
    if writing.wanted(options):
        writing.target(options, name)
    before = reading.read(options, options.before, tables=TABLES)
    after = reading.read(options, options.after, tables=TABLES)
    named = None
    if options.device is not None:
        there = after if any(options.device in (d.name, d.name.removesuffix(":0")) for d in after.devices) else before
        named = there.device(options.device).name
    devices = compare(before, after, list(_of_loops(options, before, after)))
    if writing.wanted(options):
        from cuptimem.output.pages import diff

        writing.write_page(options, name, diff.html(before, after, devices, named))
    elif options.json:
        json.show(json.diff(before, after, devices), json_options.bounds(options))
    else:
        terminal.show(views.diff(before, after, devices, named, options.top))
    return 0


def _ranks(options: argparse.Namespace) -> int:
    from cuptimem.distributed import changes
    from cuptimem.distributed import reading as traces
    from cuptimem.output.text import rank_diff_views

    if options.device is not None:
        raise Error("--device is of two traces: ranks are compared on each one's own device")
    name = f"{options.after.rstrip('/')}-diff.html" if os.path.isdir(options.after) else "ranks-diff.html"
    if writing.wanted(options):
        writing.target(options, name)
    sides = [traces.summaries(path, packages=options.code) for path in (options.before, options.after)]
    found = changes.compare(sides[0][0], sides[1][0])
    failed = [*sides[0][1], *sides[1][1]]
    if writing.wanted(options):
        from cuptimem.output.pages import ranks

        writing.write_page(options, name, ranks.diff(found, failed))
    elif options.json:
        from cuptimem.output import ranks_json

        json.show(ranks_json.ranks_diff(found, failed), json_options.bounds(options))
    else:
        terminal.show(rank_diff_views.full(found, failed, lines=options.top))
    return 0


def _of_loops(options: argparse.Namespace, before: Report, after: Report) -> Iterator[OfLoop]:
    """The steps to compare, each read once."""
    read: dict[tuple[str, int], Report] = {}

    def at(path: str, step: int | None) -> Report | None:
        if step is not None and (path, step) not in read:
            read[path, step] = reading.read(options, path, step=step, tables=STEP_TABLES)
        return None if step is None else read[path, step]

    for loop, what, old, new in steps_to_compare(before, after):
        yield OfLoop(loop, what, at(options.before, old), at(options.after, new))
