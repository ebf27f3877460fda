"""Every view of hostile traces, in Python: mutants of the kept inputs, read in one process by every verb in every form.

`python -m tests.tools.fuzz.reports [COUNT [SEED]]` (make fuzz-reports) reads so many mutants and writes what it counted
to docs/fuzz/. `python -m tests.tools.fuzz.reports INPUT ...` reads kept inputs again. An answer and `cuptimem.Error`
are right; another exception, JSON that is none, and more memory or time than docs/trace-format.md states are findings.
The inputs of findings lie in build/fuzz/findings/ (input.h has their form)."""

import contextlib
import importlib
import io
import json
import os
import pickle
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from cuptimem.cli import answer, streams
from cuptimem.report import chart
from cuptimem.tensorboard import data as board
from tests import results
from tests.record.faults import bounded
from tests.tools.fuzz import fuzz, libfuzzer

RING, TRACE, SIDE = ".cuptimem-ring-fuzz", "trace.cmem", "trace.cmem.tail"  # input.h
RING_MOST = 4 << 20
MUTANTS = 8000
CHILD = ("-m", "tests.tools.fuzz.reports", "--child")
PROGRESS = "reading"  # a file: which view of which input is being read


@dataclass
class Counts:
    """What a run did."""

    inputs: int = 0
    readings: int = 0
    answers: int = 0
    errors: int = 0
    peak_mib: int = 0  # of the process
    findings: dict[str, str] = field(default_factory=dict)  # the first of each, by where it is


class Finding(Exception):
    """What no view may do, where that is no exception of its own."""


# --- inputs -----------------------------------------------------------------------------------------------------------


def mutants(driver: Path, seed: int, count: int, inputs: Sequence[Path], folder: Path) -> list[Path]:
    """The C side's mutants of these inputs: always the same ones, with checksums that are right."""
    folder.mkdir()
    words = [str(driver), "write", str(folder), str(seed), str(count), *map(str, inputs)]
    environment = {**os.environ, "FUZZ_FOLDER": str(folder.parent)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [folder / str(number) for number in range(count)]


def put(data: bytes, folder: Path) -> int:
    """The files of an input, in the place of the last one's; their bytes."""
    parts = {b"T": data}
    if data[:4] == b"CMFZ":
        parts, at = {}, 4
        while len(data) - at >= 5:
            kind, length = data[at : at + 1], struct.unpack_from("<I", data, at + 1)[0]
            parts[kind] = data[at + 5 : at + 5 + length]
            at += 5 + length
    for name, kind in ((TRACE, b"T"), (SIDE, b"S"), (RING, b"R")):
        (folder / name).unlink(missing_ok=True)
        if kind in parts:
            (folder / name).write_bytes(ring(parts[kind]) if kind == b"R" else parts[kind])
    return sum((folder / name).stat().st_size for name in (TRACE, SIDE, RING) if (folder / name).exists())


def ring(sparse: bytes) -> bytes:
    """A ring file of its runs."""
    if len(sparse) < 4:
        return b""
    size = struct.unpack_from("<I", sparse)[0] % (RING_MOST + 1)
    image, at = bytearray(size), 4
    while len(sparse) - at >= 6:
        offset, length = struct.unpack_from("<IH", sparse, at)
        offset %= size + 1
        run = sparse[at + 6 : at + 6 + length][: size - offset]
        image[offset : offset + len(run)] = run
        at += 6 + length
    return bytes(image)


# --- views ------------------------------------------------------------------------------------------------------------


def by_command(words: Sequence[str]) -> Callable[[], None]:
    """What `cuptimem WORDS` does, without what it makes of exceptions: an OSError is a finding, too."""

    def show() -> None:
        code = importlib.import_module(f"cuptimem.cli.{words[0]}").main(words[1:])
        if code not in (0, 1):
            raise Finding(f"exit code {code}")

    return show


def by_report(file: str) -> None:
    """What a program does with a report: prints it, pickles it, shows it in a notebook and in TensorBoard."""
    report = cuptimem.open(file)
    text = str(report)
    print(text, report._repr_html_(), *answer.lines(report), sep="\n")
    if str(pickle.loads(pickle.dumps(report))) != text:
        raise Finding("a pickled report is another one")
    json.dumps(board.prepare(report), allow_nan=False)


def by_parts(file: str) -> None:
    """Parts of a trace that few verbs read: its last step, a window, every table, charts, events."""
    spans = (chart.Span(0, 1 << 62, 50, 500, 50), chart.Span(1000, 100_000, 7, 20, 3, "cpu"))
    load = importlib.import_module("cuptimem.report.load")
    for options in ({"step": -1}, {"window": 1}, {"ledger_at_ns": 1000, "charts": spans}):
        with contextlib.suppress(cuptimem.Error):  # no such step or window
            print(load.analyze(file, tables=bounded.TABLES, **options))
    _core.trace_dump(file)


def views(file: str, folder: str) -> dict[str, Callable[[], None]]:
    """Everything that reads a trace, by name."""
    calls = {name: by_command(words) for name, words in bounded.commands(file, folder).items()}
    return calls | {"report": lambda: by_report(file), "parts": lambda: by_parts(file)}


# --- reading ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def within(bytes_read: int) -> Iterator[None]:
    """The memory and the CPU time that docs/trace-format.md states, of one view of files of so many bytes. Past the
    time the process ends with SIGXCPU."""
    with open("/proc/self/statm") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime + bounded.BASE_SECONDS + bounded.NANOSECONDS_PER_BYTE * bytes_read / 1e9
    before = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)}
    memory = has + bounded.BASE_BYTES + bounded.BYTES_PER_BYTE * bytes_read
    resource.setrlimit(resource.RLIMIT_AS, (memory, before[resource.RLIMIT_AS][1]))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, before[resource.RLIMIT_CPU][1]))
    try:
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)


def read(show: Callable[[], None], size: int, *, is_json: bool) -> bool:
    """Whether there was an answer; else an Error. Everything else is raised."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), within(size):
            streams.prepare()
            show()
            out.flush()
    except cuptimem.Error as error:
        said = str(error)
        if not said or "\n" in said or "out of memory" in said:
            raise Finding(f"an error says {said!r}") from error
        return False
    if is_json:
        json.loads(out.buffer.getvalue(), parse_constant=_refuse)
    return True


def _refuse(constant: str) -> object:
    raise Finding(f"JSON has no {constant}")


def read_all(inputs: Sequence[Path], folder: Path) -> Counts:
    """Reads each input with every view, in this process and in this folder."""
    counts = Counts()
    os.chdir(folder)  # where traces of mutants have their rings
    write_synthetic(TRACE, 1000, 1)
    for show in views(TRACE, ".").values():  # what a view imports is the interpreter's
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(cuptimem.Error):
            show()
    for input_path in inputs:
        size = put(input_path.read_bytes(), folder)
        counts.inputs += 1
        for name, show in views(TRACE, ".").items():
            (folder / PROGRESS).write_text(f"{input_path}\n{name}")
            counts.readings += 1
            try:
                answered = read(show, size, is_json="--json" in name)
            except (Exception, SystemExit) as error:  # an Error is none of them: read() takes it
                place = traceback.extract_tb(error.__traceback__)[-1]
                key = f"{type(error).__name__} in {place.filename}:{place.lineno}"
                counts.findings.setdefault(key, f"{input_path}\n{name}\n{traceback.format_exc()[-3000:]}")
                continue
            counts.answers += answered
            counts.errors += not answered
    counts.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return counts


# --- a process for it -------------------------------------------------------------------------------------------------


def run(inputs: Sequence[Path], folder: Path, findings: Path) -> Counts:
    """read_all in a process of its own, which limits and crashes may end. What is found is kept in `findings`."""
    work = folder / "work"
    work.mkdir()
    (folder / "inputs").write_text("\n".join(map(str, inputs)))
    child = [sys.executable, *CHILD, str(folder)]
    with (folder / "errors").open("w") as errors:
        done = subprocess.run(child, cwd=libfuzzer.ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=errors)
    if done.returncode != 0:
        said = (folder / "errors").read_text(errors="replace")[-3000:]
        where = (work / PROGRESS).read_text() if (work / PROGRESS).exists() else "before the first input\n"
        counts = Counts(findings={"": f"{where}\nthe process ended with {done.returncode}\n{said}"})
    else:
        counts = Counts(**json.loads((folder / "counts").read_text()))
    for one in counts.findings.values():
        path = Path(one.partition("\n")[0])
        if path.is_file():
            findings.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, findings / f"report-{libfuzzer.name_of(path.read_bytes())}")
    return counts


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CUPTIMEM")}
    return kept | {"PYTHONPATH": str(libfuzzer.ROOT), "PYTHONFAULTHANDLER": "1", "NO_COLOR": "1", "COLUMNS": "80"}


def shown(findings: Iterable[str], kept: Path) -> str:
    """What a finding is, and how to see it again."""
    return "\n\n".join(
        f"{one}\nkept in {kept}; again: python -m tests.tools.fuzz.reports {kept}/report-..." for one in findings
    )


def write_result(counts: Counts, count: int, seed: int) -> Path:
    return results.write(
        "fuzz",
        "Fuzzing reports",
        [
            f"`make fuzz-reports MUTANTS={count} SEED={seed}`: Python {platform.python_version()}. Mutants of the kept",
            "corpus and of the seeds, checksums repaired, each read with every verb as text and as JSON, as page and",
            "export, printed, pickled, in a notebook, scrubbed. Each view within the bounds of docs/trace-format.md.",
            "",
            *results.table(
                {
                    "inputs": counts.inputs,
                    "readings: inputs times views": counts.readings,
                    "answers": counts.answers,
                    "refused with one line (`cuptimem.Error`)": counts.errors,
                    "other exceptions, crashes, readings past their bound": len(counts.findings),
                    "peak memory of the process, MiB": counts.peak_mib,
                }
            ),
        ],
        name="reports",
    )


def main(words: Sequence[str]) -> int:
    if words[:1] == ["--child"]:
        folder = Path(words[1])
        found = read_all([Path(line) for line in (folder / "inputs").read_text().splitlines()], folder / "work")
        (folder / "counts").write_text(json.dumps(asdict(found)))
        return 0
    numbers = [int(word) for word in words if word.isdigit()]
    with tempfile.TemporaryDirectory(dir=libfuzzer.shared_memory()) as name:
        folder = Path(name)
        findings = libfuzzer.FINDINGS
        if words and not numbers:
            counts = run([Path(word).resolve() for word in words], folder, findings)
        else:
            count, seed = (*numbers, *(MUTANTS, 1)[len(numbers) :])[:2]
            seeds = fuzz.write_seeds(folder / "seeds")
            driver = fuzz.build_driver(fuzz.SANITIZERS["address"])
            inputs = [*sorted(fuzz.CORPUS.iterdir()), *seeds]
            chosen = mutants(driver, seed, count, inputs, folder / "mutants")
            counts = run([*inputs, *chosen], folder, findings)
            print((write_result(counts, count, seed)).read_text())
    print(f"{counts.inputs} inputs, {counts.readings} readings, {counts.answers} answers, {counts.errors} errors")
    print(shown(counts.findings.values(), findings), file=sys.stderr)
    return 1 if counts.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
