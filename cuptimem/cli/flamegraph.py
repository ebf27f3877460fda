"""cuptimem flamegraph FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.output.pages import writing


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "flamegraph",
        "A page with the bytes by stack or module: at the peak, at the end, leaked, kept, allocated in all, temporary.",
        json=False,
    )
    writing.add_output(result, always=True)
    reading.add_step(result, "only of step N (from 0; -1 is the last) instead of the whole run")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    name = writing.beside(options.file, "flamegraph")
    writing.target(options, name)
    from cuptimem.output.pages import flamegraph, stacks_data

    report = reading.read(options, step=options.step, tables=stacks_data.tables(options.step))
    writing.write_page(options, name, flamegraph.html(report))
    return 0
