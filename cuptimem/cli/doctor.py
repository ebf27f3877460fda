"""cuptimem doctor"""

import argparse
import os
import sys
from collections.abc import Sequence

from cuptimem import doctor, naming, whole_files
from cuptimem.cli import json_options
from cuptimem.cli.parsing import Parser
from cuptimem.doctor import bundle
from cuptimem.errors import Error
from cuptimem.output import json
from cuptimem.output.text import terminal, words


def parser() -> argparse.ArgumentParser:
    result = Parser(
        "doctor",
        description="What works in this environment, what a missing part costs, and the fix. Records a tiny program "
        "and compares. Exit code 0: recording works; 1: it does not.",
    )
    json_options.add(result, "one JSON object instead of text")
    result.add_argument(
        "--bundle",
        nargs="?",
        const="cuptimem-doctor.json",
        metavar="FILE",
        help="write it, with versions, settings and limits, to a file for a bug report (default: %(const)s); names of "
        "users and hosts and folders of this machine are left out",
    )
    result.add_argument("-f", "--force", action="store_true", help="--bundle: replace FILE if it exists")
    result.add_argument("--all", action="store_true", help="every slot and offset by name")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = None if options.bundle is None else os.path.abspath(options.bundle)
    if target is not None:
        naming.check_target(target, options.force, "--force")
    diagnosis = doctor.examine()
    if target is not None:
        _write(target, json.text(bundle.contents(diagnosis)))
    if options.json:
        json.show(diagnosis.to_dict(), json_options.bounds(options))
    else:
        terminal.show(doctor.blocks(diagnosis, options.all))
    if target is not None:
        size = words.size(os.path.getsize(target))
        line = f"wrote {naming.shown(target)} ({size}), without names of users and hosts; read it before you share it"
        terminal.say(line, sys.stderr if options.json else None)
    return 0 if diagnosis.works else 1


def _write(target: str, text: str) -> None:
    try:
        with whole_files.replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise Error(f"{naming.shown(target)}: {error.strerror}") from None
