"""cuptimem doctor"""

import argparse
from collections.abc import Sequence

from cuptimem import doctor
from cuptimem.cli import json_options
from cuptimem.cli.parsing import Parser
from cuptimem.output import json
from cuptimem.output.text import terminal


def parser() -> argparse.ArgumentParser:
    result = Parser(
        "doctor",
        description="What works in this environment, what a missing part costs, and the fix. Records a tiny program "
        "and compares. Exit code 0: recording works; 1: it does not.",
    )
    json_options.add(result, "one JSON object instead of text")
    result.add_argument("--all", action="store_true", help="every slot and offset by name")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    diagnosis = doctor.examine()
    if options.json:
        json.show(diagnosis.to_dict(), json_options.bounds(options))
    else:
        terminal.show(doctor.blocks(diagnosis, options.all))
    return 0 if diagnosis.works else 1
