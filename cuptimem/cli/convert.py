"""cuptimem convert SNAPSHOT OUT"""

import os
from collections.abc import Sequence

from cuptimem import naming, regular_files, whole_files
from cuptimem.cli import reading
from cuptimem.cli.parsing import Parser
from cuptimem.errors import Error
from cuptimem.output.text import terminal
from cuptimem.output.text.words import size
from cuptimem.report import snapshots


def parser() -> Parser:
    result = Parser(
        "convert",
        description="A memory snapshot of PyTorch's (torch.cuda.memory._dump_snapshot) as a trace: a small file, which "
        "every verb reads at once. The verbs read snapshots themselves, too. Nothing in the pickle is executed.",
    )
    result.add_argument("source", metavar="SNAPSHOT", help="the pickle, as it is or compressed by gzip")
    result.add_argument("target", metavar="OUT", help="the trace (*.cmem)")
    result.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = os.path.abspath(options.target)
    if os.path.exists(options.source) and os.path.exists(target) and os.path.samefile(options.source, target):
        raise Error(f"{naming.shown(target)} is the snapshot itself; choose another name")
    naming.check_target(target, options.force, "--force")
    try:
        with reading.hints_about(options.source):
            _check(options.source)
            with whole_files.beside(target) as part:
                snapshots.convert(options.source, part)
    except OSError as error:
        raise Error(f"{error.filename or options.source}: {error.strerror}") from None
    terminal.say(f"wrote {naming.shown(target)} ({size(os.path.getsize(target))})")
    return 0


def _check(path: str) -> None:
    with regular_files.opened(path) as file:
        head = file.read(len(naming.MAGIC))
    if head.startswith(naming.MAGIC):
        raise Error(f"{naming.shown(path)} is a trace already")
    if not snapshots.is_snapshot(head):
        raise Error(f"{naming.shown(path)} is no memory snapshot of PyTorch's: it is no pickle")
