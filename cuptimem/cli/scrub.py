"""cuptimem scrub IN OUT"""

import os
from collections.abc import Sequence

from cuptimem import naming, whole_files
from cuptimem.cli.parsing import Parser
from cuptimem.errors import Error, core
from cuptimem.output.scrubbing import Scrubber, Text
from cuptimem.output.text import terminal
from cuptimem.output.text.words import size
from cuptimem.report import snapshots


def parser() -> Parser:
    result = Parser(
        "scrub",
        description="A copy of a trace for sharing: without the command line, the host's name and the user's; paths "
        "below a home, the working directory and installed packages become relative. Every figure stays.",
    )
    result.add_argument("source", metavar="IN", help="a trace that has ended")
    result.add_argument("target", metavar="OUT", help="the copy")
    result.add_argument("--no-source", action="store_true", help="without lines of source code")
    result.add_argument(
        "--hide",
        action="append",
        default=[],
        metavar="TEXT",
        help="remove this text, too, wherever it is (again for more)",
    )
    result.add_argument("-f", "--force", action="store_true", help="replace OUT if it exists")
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = os.path.abspath(options.target)
    if os.path.exists(options.source) and os.path.exists(target) and os.path.samefile(options.source, target):
        raise Error(f"{naming.shown(target)} is the trace itself; choose another name")
    naming.check_target(target, options.force, "--force")
    texts: list[Text] = []

    def see(kind: str, key: str, text: str) -> str:
        texts.append((kind, key, text))
        return text

    rewrite, source = core().trace_rewrite, snapshots.trace_of(options.source)
    rewrite(source, None, see, lines=not options.no_source)
    scrubber = Scrubber(texts, options.hide, owner(options.source))
    try:
        with whole_files.beside(target) as part:
            rewrite(source, part, scrubber.replace, lines=not options.no_source)
    except OSError as error:
        raise Error(f"{options.target}: {error.strerror}") from None
    terminal.say(f"wrote {naming.shown(target)} ({size(os.path.getsize(target))})")
    return 0


def owner(path: str) -> tuple[str, str] | None:
    """Name and home of the file's owner. None where there is no such user, and for root, which is a word of code."""
    import pwd  # Windows has none, and the manual page asks this module for its parser

    try:
        user = pwd.getpwuid(os.stat(path).st_uid)
    except KeyError:
        return None
    return (user.pw_name, user.pw_dir.rstrip("/")) if user.pw_uid and user.pw_dir.count("/") > 1 else None
