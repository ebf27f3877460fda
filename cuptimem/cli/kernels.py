"""cuptimem kernels FILE"""

import argparse
from collections.abc import Sequence

from cuptimem.cli import json_options, reading
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.text import terminal, views
from cuptimem.report.ledger import missing
from cuptimem.report.model import Report


def parser() -> argparse.ArgumentParser:
    result = reading.parser(
        "kernels",
        "The kernels that took the most time, and the memory beside them: blocks that were there long before their "
        "first kernel or long after their last, and freed ones that record_stream still held.",
    )
    result.add_argument("-n", "--top", type=reading.count, default=10, metavar="N", help="rows of each table (10)")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    report = reading.read(options)
    if report.kernels is None:
        raise _not_recorded(report)
    if options.json:
        json.show(json.kernels(report, report.kernels), json_options.bounds(options))
    else:
        terminal.show(views.kernels(report, report.kernels, options.top))
    return 0


def _not_recorded(report: Report) -> Error:
    if not report.driver.recorded:
        return missing(report, "kernels")
    if report.driver.mode == "slots":
        return Error(f"no kernels in this recording: CUPTI did not see it: {report.driver.reason}")
    asked = report.environment.get("driver.kernels")
    if asked == "yes":
        return Error("no kernels in this recording: none was launched while it was made")
    if asked == "refused":
        return Error(f"no kernels in this recording: {report.driver.reason}")
    return Error("no kernels in this recording: record again with cuptimem run --kernels")
