"""Reads traces with every view, each in the memory and time that docs/trace-format.md states, and prints what it took.

`python -m tests.record.faults.bounded FILE ... --folder FOLDER`. Exit code 0: every view gave an answer or one line. A
lack of memory, as C code reports it or as MemoryError, SIGXCPU and tracebacks are others."""

import argparse
import contextlib
import importlib.util
import io
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from benchmarks.synthetic import write_synthetic
from cuptimem import _core, cli
from cuptimem.output.exports import FORMATS
from tests.record.faults import rings

BASE_BYTES, BYTES_PER_BYTE = 128 << 20, 1000
BASE_SECONDS, NANOSECONDS_PER_BYTE = 10, 100_000
TABLES = ("start", "end", "above", "kept", "allocated", "stepped", "temporary")
TEXT = ("summary", "peak", "leaks", "ledger", "fragmentation", "kernels", "steps", "table", "account", "tree")
PAGES = ("timeline", "flamegraph", "table", "tree", "diff")
MOMENTS = ("start", "end", "oom")


# What a format needs that is no part of cuptimem.
_NEEDS = {"tensorboard": "tensorboard", "arrow": "pyarrow", "parquet": "pyarrow"}


def available() -> list[str]:
    """The formats that can be written here."""
    return [kind for kind in FORMATS if kind not in _NEEDS or importlib.util.find_spec(_NEEDS[kind]) is not None]


def commands(file: str, folder: str) -> dict[str, list[str]]:
    """Every verb that reads a trace, in every form, by name: its command line. What is written goes to the folder."""
    given = {verb: [verb, file] for verb in TEXT}
    given["diff"] = ["diff", file, file]
    given |= {f"peak --at {moment}": ["peak", file, "--at", moment] for moment in MOMENTS}
    given |= {f"{name} --json": [*words, "--json"] for name, words in given.items()}
    given["table by stack"] = ["table", file, "--by", "stack", "--what", "allocated"]
    given["tree inverted"] = ["tree", file, "--inverted", "--what", "allocated"]
    for verb in PAGES:
        given[f"{verb} page"] = [*given.get(verb, [verb, file]), "-o", os.path.join(folder, f"{verb}.html"), "-f"]
    for kind in available():
        given[f"export {kind}"] = ["export", file, "--to", kind, "-o", os.path.join(folder, kind), "--force"]
    given["scrub"] = ["scrub", file, os.path.join(folder, "scrubbed.cmem"), "-f"]
    return given


def views(file: str, folder: str) -> dict[str, Callable[[], object]]:
    """What can be made of a trace, by name; each returns an exit code, or anything."""
    calls: dict[str, Callable[[], object]] = {
        "analyze": lambda: _core.analyze(file, tables=TABLES, points=1000, charts=[(0, 1 << 62, 500, 50, 500)])
    }
    return calls | {name: lambda given=given: cli.main(given) for name, given in commands(file, folder).items()}


def limit(bytes_read: int) -> None:
    """From now on: the stated memory beyond what the interpreter has, and the stated time."""
    with open("/proc/self/statm") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    memory = has + BASE_BYTES + BYTES_PER_BYTE * bytes_read
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + BASE_SECONDS + NANOSECONDS_PER_BYTE * bytes_read // 10**9
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def load_views(folder: str) -> None:
    """What a view imports is the interpreter's, and loaded once for all of them: each reads a small good trace."""
    trace = os.path.join(folder, "small.cmem")
    write_synthetic(trace, 1000, 1)
    with contextlib.redirect_stderr(io.StringIO()):  # a CPU has no ledger
        for read_small in views(trace, folder).values():
            read_small()


def read(file: str, folder: str, wanted: Sequence[str], report: TextIO) -> list[str]:
    """The views that failed."""
    beside = (f"{file}.tail", str(rings.beside(Path(file))))
    size = os.path.getsize(file) + sum(os.path.getsize(path) for path in beside if os.path.exists(path))
    known = views(file, folder)
    failed = []
    for name in wanted or known:
        with tempfile.TemporaryFile() as file_of_errors:
            child = os.fork()  # limits and memory of its own
            if child == 0:
                code = 70
                try:
                    os.dup2(file_of_errors.fileno(), 2)
                    limit(size)
                    answer = known[name]()
                    sys.stdout.flush()
                    code = answer if isinstance(answer, int) else 0
                except _core.Error as error:
                    print(error, file=sys.stderr)
                    code = 1
                except MemoryError:
                    print("out of memory", file=sys.stderr)
                finally:
                    os._exit(code)
            _, status, used = os.wait4(child, 0)
            code = os.waitstatus_to_exitcode(status)
            file_of_errors.seek(0)
            said = file_of_errors.read().decode(errors="replace")
        seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss >> 10
        line = f"{os.path.basename(file)} {name}: exit {code}, {seconds:.2f} s, {peak} MiB with the interpreter"
        print(line, file=report, flush=True)
        if code not in (0, 1) or "out of memory" in said:
            failed.append(f"{line}\n{said}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--folder", required=True, help="for pages and exports")
    parser.add_argument("--view", action="append", default=[], help="instead of all")
    given = parser.parse_args()
    with os.fdopen(os.dup(1), "w") as report, open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what the views print
        load_views(given.folder)
        failed = [line for file in given.files for line in read(file, given.folder, given.view, report)]
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
