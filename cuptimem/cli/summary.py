"""cuptimem summary FILE"""

from collections.abc import Sequence

from cuptimem.cli import reading
from cuptimem.reporters import json, terminal, views


def main(arguments: Sequence[str]) -> int:
    parser = reading.parser("summary", "How high the memory went, what it was made of, and whether it grows.")
    options = parser.parse_args(arguments)
    report = reading.read(options.file)
    if options.json:
        print(json.text(json.summary(report)))
    else:
        terminal.show(views.summary(report))
    return 0
