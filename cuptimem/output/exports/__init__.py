"""Files for other programs: a module per format, found in the table below and loaded when asked for.

Each module has `write(trace, path, options)`: trace is a path, path the target (for a format of several files, a
folder). It returns what it wrote.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuptimem import naming
from cuptimem.errors import Error


@dataclass(frozen=True, slots=True)
class Format:
    """A row of the table."""

    what: str  # as `export --help` has it
    suffix: str  # added to the trace's name where no name is given; of a format of several files, a folder
    module: str


FORMATS = {
    "chrome": Format("trace event JSON for Perfetto and chrome://tracing", ".chrome.json.gz", "output.exports.chrome"),
    "memory-viz": Format(
        "a snapshot for pytorch.org/memory_viz and torch.cuda._memory_viz", ".pickle", "output.exports.memory_viz"
    ),
    "speedscope": Format("stacks for speedscope.app", ".speedscope.json", "output.exports.speedscope"),
    "pprof": Format("stacks for `go tool pprof` and what reads its format", ".pb.gz", "output.exports.pprof"),
    "firefox": Format(
        "every allocation and free for profiler.firefox.com", ".firefox.json.gz", "output.exports.firefox"
    ),
    "perfetto": Format(
        "the ranks of a job in one file, aligned by step, for Perfetto", ".perfetto.zip", "output.exports.perfetto"
    ),
    "collapsed": Format(
        "one line per stack, for flamegraph.pl and others", ".collapsed.txt", "output.exports.collapsed"
    ),
    "csv": Format("steps, and every allocation, as tables", "-csv", "output.exports.csv"),
    "json": Format("every allocation, one JSON object a line", ".jsonl.gz", "output.exports.json"),
    "arrow": Format("every allocation as an Arrow IPC stream (needs pyarrow)", ".arrows", "output.exports.arrow"),
    "parquet": Format("every allocation as a Parquet file (needs pyarrow)", ".parquet", "output.exports.parquet"),
    "tensorboard": Format(
        "scalars per step and cuptimem's own page in TensorBoard", "-tensorboard", "tensorboard.export"
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What an export is asked for; a format ignores what does not concern it."""

    device: str | None = None  # None: all
    what: str | None = None  # speedscope, pprof: None is all of them; collapsed: None is "peak"
    least: int | None = (
        None  # chrome, perfetto: bytes from which on a block is drawn; None: so that the file stays usable
    )
    newest: int | None = None  # memory-viz: only so many of each device's events; None: all
    table: str | None = None  # csv: only this one; path is then a file
    code: tuple[str, ...] | None = None  # as of cuptimem.open
    others: tuple[str, ...] = ()  # perfetto: the traces of the other ranks
    window: int = 0
    force: bool = False  # replace what is there
    progress: Callable[[float], bool] | None = None  # as of cuptimem.open


@dataclass(frozen=True, slots=True)
class Written:
    """What an export wrote."""

    path: str
    bytes: int  # of all its files
    what: str  # "12,345 allocations"
    opens: str  # where it is opened
    notes: tuple[str, ...] = ()  # what is not in it


def default_path(trace: str, kind: str, table: str | None = None) -> str:
    """Beside the trace: run.cmem gives run.speedscope.json."""
    stem = trace.removesuffix(".cmem")
    return f"{stem}.{table}.csv" if table is not None else stem + FORMATS[kind].suffix


def export(trace: str, kind: str, path: str | None = None, options: Options | None = None) -> Written:
    """Writes one format. Raises Error, one line; then nothing is left of it. BrokenPipeError: the reader of a stream
    has gone."""
    if kind not in FORMATS:
        raise Error(f"no format {kind!r}: there are {', '.join(FORMATS)}")
    asked = options if options is not None else Options()
    if path is None:
        path = default_path(trace, kind, asked.table)
        if os.path.islink(path):  # it may have come with the trace, and lead anywhere
            raise Error(f"{path} is a link; name the place with -o")
    module: Any = importlib.import_module(f"cuptimem.{FORMATS[kind].module}")
    try:
        written = module.write(trace, path, asked)
    except BrokenPipeError:  # its reader has what it wanted
        raise
    except OSError as error:
        raise Error(f"{path} cannot be written: {error.strerror or error}") from error
    if isinstance(written, Written):
        return written
    return Written(path, _size(path), "a run", f"tensorboard --logdir {naming.typed(path)}")


def _size(path: str) -> int:
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(path) for file in files)
