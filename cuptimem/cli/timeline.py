"""cuptimem timeline FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import reading, writing


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cuptimem timeline",
        description="A page with live bytes over time: stacked by line, function, module, phase or library, with "
        "steps, the peak, leaks and single allocations.",
        allow_abbrev=False,
    )
    reading.add_code(parser)
    parser.add_argument("file", metavar="FILE", help="a trace that `cuptimem run` or cuptimem.profile wrote")
    writing.add_output(parser, always=True)
    options = parser.parse_args(arguments)
    name = writing.beside(options.file, "timeline")
    writing.target(options, name)
    report = reading.read(options)
    from cuptimem.pages import timeline

    writing.write_page(options, name, timeline.page(report))
    return 0
