"""cuptimem timeline FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.output.pages import writing


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "timeline",
        "A page with live bytes over time: stacked by line, function, module, phase or library, with "
        "steps, the peak, leaks and single allocations.",
        json=False,
    )
    result.add_argument(
        "--beside",
        metavar="TRACE",
        help="another rank's trace: both above each other, on one scale, aligned by step",
    )
    writing.add_output(result, always=True)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    name = writing.beside(options.file, "timeline")
    writing.target(options, name)
    report = reading.read(options, with_lives=True)
    from cuptimem.output.pages import timeline

    if options.beside is None:
        html = timeline.page(report)
    else:
        other = argparse.Namespace(**{**vars(options), "file": options.beside})
        html = timeline.beside(report, reading.read(other, with_lives=True))
    writing.write_page(options, name, html)
    return 0
