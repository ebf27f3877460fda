"""cuptimem ledger FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report.ledger import check_moment, pick


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "ledger",
        "Who has the used bytes of a device: PyTorch's tensors and cache, each library at driver level with its Python "
        "line, the CUDA context, other processes, and the residual. The lines sum to what the driver says "
        "is used (docs/ledger.md).",
    )
    result.add_argument("--device", metavar="D", help="only this device (cuda:0); default: all")
    result.add_argument(
        "--at",
        type=_moment,
        default="peak",
        metavar="peak|end|SECONDS",
        help="when: at the most used bytes (the default), at the end, or so many seconds after the start",
    )
    result.add_argument("-n", "--top", type=reading.count, default=20, metavar="N", help="lines of libraries (20)")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    asked = options.at if isinstance(options.at, float) else None
    report = reading.read(options, ledger_at_ns=None if asked is None else round(asked * 1e9))
    if asked is not None:
        check_moment(report, asked)
    what = options.at if asked is None else "asked"
    names = dict.fromkeys(row.device for row in report.ledgers)
    devices = [options.device] if options.device is not None or not names else list(names)
    ledgers = tuple(pick(report, device, what) for device in devices)
    if options.json:
        json.show(json.ledger(report, ledgers), json_options.bounds(options))
    else:
        terminal.show(views.ledger(report, ledgers, options.top))
    return 0


_LONGEST = 1e9  # seconds


def _moment(text: str) -> str | float:
    if text in ("peak", "end"):
        return text
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < _LONGEST:
        raise argparse.ArgumentTypeError(f"takes peak, end, or seconds since the start, not {text!r}")
    return seconds
