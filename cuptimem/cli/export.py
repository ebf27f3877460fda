"""cuptimem export --to FORMAT FILE"""

import argparse
import os
import sys
from collections.abc import Sequence

from cuptimem import naming
from cuptimem.cli import reading
from cuptimem.cli.parsing import Parser
from cuptimem.errors import Error
from cuptimem.output import exports
from cuptimem.output.text import terminal
from cuptimem.output.text.words import size
from cuptimem.whole_files import descriptor, is_stream

_WHAT = ("peak", "end", "kept", "allocated", "temporary")
_TABLES = ("steps", "allocations", "stacks")


def parser() -> argparse.ArgumentParser:
    result = Parser(
        "export",
        description="Writes a recording for another program.",
        epilog="formats:\n" + "\n".join(f"  {name:<12} {one.what}" for name, one in exports.FORMATS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reading.add_file(result)
    result.add_argument(
        "others",
        metavar="TRACE",
        nargs="*",
        help="of perfetto: those of the other ranks; FILE may be a folder or a pattern",
    )
    result.add_argument("--to", required=True, choices=tuple(exports.FORMATS), metavar="FORMAT", help="see below")
    result.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="where to (default: beside the trace; -: standard output); compressed where it ends in .gz; for csv and "
        "tensorboard a folder",
    )
    result.add_argument("-f", "--force", action="store_true", help="replace what is there")
    result.add_argument("--device", metavar="D", help="only this device (cpu, pinned, cuda:0); default: all")
    result.add_argument(
        "--what",
        choices=_WHAT,
        help="of speedscope, pprof and collapsed: which blocks (default: all of these; of collapsed peak)",
    )
    result.add_argument(
        "--least",
        type=reading.size,
        metavar="SIZE",
        help="of chrome and perfetto: draw blocks of at least this size (default: so that at most 50,000 are drawn)",
    )
    result.add_argument(
        "--newest", type=reading.count, metavar="N", help="of memory-viz: only the newest N events of each device"
    )
    result.add_argument("--table", choices=_TABLES, help="of csv: only this one, and OUT is a file")
    reading.add_code(result)
    return result


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    others = _others(options)
    target = "/dev/stdout" if options.output == "-" else options.output
    name = os.path.basename(options.file)
    with reading.hints_about(options.file), terminal.progress(f"exporting {name}") as tell:
        asked = exports.Options(
            device=options.device,
            what=options.what,
            least=options.least,
            newest=options.newest,
            table=options.table,
            code=options.code,
            force=options.force,
            others=others,
            progress=tell,
        )
        written = exports.export(options.file, options.to, target, asked)
    said = sys.stderr if descriptor(written.path) == 1 else sys.stdout  # which then is the export
    for note in written.notes:
        terminal.say(f"! {note}", said)
    what = written.what if is_stream(written.path) else f"{written.what}, {size(written.bytes)}"
    terminal.say(f"wrote {naming.shown(written.path)}: {what}; open it in {written.opens}", said)
    return 0


def _others(options: argparse.Namespace) -> tuple[str, ...]:
    """The traces of ranks beside the first, which options.file is from then on."""
    if options.to != "perfetto":
        if options.others:
            raise Error(f"--to {options.to} is of one trace; several are of perfetto")
        return ()
    from cuptimem.distributed import reading as traces

    named = [options.file, *options.others]
    if any("://" in one for one in named):
        raise Error("an export reads files: copy the traces here first")
    found = traces.expand(named)
    if not found:
        raise Error("no trace of any rank: name files, a folder or a pattern")
    if options.output is None and os.path.isdir(options.file):
        options.output = options.file.rstrip("/") + exports.FORMATS["perfetto"].suffix
    options.file = found[0]
    return tuple(found[1:])
