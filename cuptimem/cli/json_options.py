"""--json, and its bounds."""

import argparse
from typing import Any

from cuptimem.output.bounded import Bounds

_HELP = "one JSON object (docs/json.md) instead of text"


class _Bound(argparse.Action):
    """A bound of --json asks for it."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        namespace.json = True


def add(parser: argparse.ArgumentParser, what: str = _HELP) -> None:
    from cuptimem.cli import reading

    parser.add_argument("--json", action="store_true", help=what)
    parser.add_argument(
        "--most", action=_Bound, type=reading.index, metavar="N", help="--json with at most N items of each list"
    )
    parser.add_argument(
        "--max-bytes",
        action=_Bound,
        type=reading.size,
        metavar="SIZE",
        help="--json in at most SIZE: lists are cut, stacks too; `left_out` counts what was left out",
    )


def bounds(options: argparse.Namespace) -> Bounds:
    return Bounds(options.most, options.max_bytes)
