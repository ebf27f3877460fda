"""cuptimem ranks TRACE ..."""

import argparse
import os
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json, ranks_json
from cuptimem.output.pages import writing
from cuptimem.output.text import rank_views, terminal


def parser() -> argparse.ArgumentParser:
    result = reading.bare_parser(
        "ranks",
        "The traces of a job's ranks: each one's peak and what it is made of, the ones that differ first, and why they "
        "do: lines and categories in which a rank differs from the middle one at the same step.",
    )
    result.add_argument(
        "traces",
        metavar="TRACE",
        nargs="+",
        help="a trace, a folder of traces, a pattern, or an address that fsspec knows (s3://bucket/run-*.cmem)",
    )
    result.add_argument("-n", "--top", type=reading.count, default=rank_views.TOP, metavar="N", help="ranks shown (16)")
    result.add_argument(
        "-j", "--jobs", type=reading.count, metavar="N", help="processes that read traces (one for each core)"
    )
    writing.add_output(result)
    return result


def main(arguments: Sequence[str]) -> int:
    from cuptimem.distributed import reading as traces

    options = parser().parse_args(arguments)
    first = options.traces[0].rstrip("/")
    name = f"{first}-ranks.html" if os.path.isdir(first) else "ranks.html"
    if writing.wanted(options):
        writing.target(options, name)
    ranks = traces.ranks(options.traces, jobs=options.jobs, code=options.code)
    if writing.wanted(options):
        from cuptimem.output.pages import ranks as ranks_page

        writing.write_page(options, name, ranks_page.html(ranks))
    elif options.json:
        json.show(ranks_json.ranks(ranks), json_options.bounds(options))
    else:
        terminal.show(rank_views.full(ranks, options.top))
    return 0
