"""cuptimem doctor"""

import argparse
import json
from collections.abc import Sequence

from cuptimem import doctor
from cuptimem.reporters import terminal


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cuptimem doctor",
        description="What works in this environment, what a missing part costs, and the fix. Records a tiny program "
        "and compares. Exit code 0: recording works; 1: it does not.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--all", action="store_true", help="every slot and offset by name")
    options = parser.parse_args(arguments)
    diagnosis = doctor.examine()
    if options.json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        terminal.show(doctor.blocks(diagnosis, options.all))
    return 0 if diagnosis.works else 1
