"""cuptimem account FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report import account


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "account",
        "What a device's peak is made of, in exact bytes: parameters, gradients, optimizer state, inputs, activations "
        "saved for backward, what is kept beyond its step, workspaces of libraries, temporaries, ..., by module.",
    )
    result.add_argument("--depth", type=reading.count, metavar="N", help="only the first N parts of modules' names")
    reading.add_step(result, "the peak of step N (from 0; -1 is the last) instead of the run's")
    result.add_argument("--device", metavar="D", help="only this device (cpu, pinned, cuda:0); default: all")
    result.add_argument("-n", "--top", type=reading.count, default=40, metavar="N", help="modules to show (40)")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    report = reading.read(options, step=options.step)
    accounts = [account.of_contents(one, options.depth) for one in reading.chosen(report, options.device, "peak")]
    if options.json:
        json.show(json.accounts(report, accounts), json_options.bounds(options))
    else:
        terminal.show(views.account(report, accounts, options.top))
    return 0
