"""What cuptimem says of a program: its closing lines, and what its verbs print with --json."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.attribution import suite

CLOSING = re.compile(r"^cuptimem: .*?([\d.,]+) (B|[KMG]iB)\s.*?(\S+\.py):(\d+)")
LEAKS = re.compile(r" leaks?\b")  # not leaky_relu
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
PROCESS = re.compile(r"process.{0,40}(grows|grew|growing)", re.IGNORECASE)
NO_CATEGORY = {"bytes", "count", "time_ns", "step", "depth"}


class Failed(Exception):
    """The program or a verb did not end well."""


@dataclass(frozen=True)
class Line:
    file: str  # the last part of its path; "" for what is no line
    number: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number} {self.bytes:,}" if self.file else f"no line {self.bytes:,}"


@dataclass(frozen=True)
class Leak:
    lines: Sequence[tuple[str, int]]  # the one that is shown first, and the one that makes it
    holders: Sequence[str]  # paths, the most bytes first


@dataclass(frozen=True)
class Answer:
    peak: int
    categories: Mapping[str, int]
    lines: Sequence[Line]  # at the peak, the largest first
    closing: Line | None  # the first of the closing lines
    steps: Mapping[str, int]  # of loops of one kind
    verdict: str
    leaks: Sequence[Leak]
    changes: Sequence[Line] = field(default=())  # by how many bytes a line changed at the peak, the most first


def named(text: str, size: int) -> Line:
    """From FILE:LINE as tables have it."""
    path, _, number = text.rpartition(":")
    return Line(Path(path).name, int(number), size) if number.isdecimal() else Line("", 0, size)


def closing_line(errors: str) -> Line | None:
    for text in errors.splitlines():
        found = CLOSING.search(text)
        if found and not LEAKS.search(text):
            size, unit, path, number = found.groups()
            return Line(Path(path).name, int(number), round(float(size.replace(",", "")) * UNITS[unit]))
    return None


def kind_of(loop: str) -> str:
    """training, evaluation or sanity, as the loop's name says."""
    for kind, words in {"sanity": ("sanity",), "evaluation": ("eval", "valid"), "training": ("train",)}.items():
        if any(word in loop.lower() for word in words):
            return kind
    return loop


def steps_of(steps: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return dict(Counter(kind_of(loop) for loop, _ in {(step["loop"], step["index"]) for step in steps}))


def leak_of(leak: Mapping[str, Any]) -> Leak:
    frames = [leak["line"], *leak["stack"], *leak["retained_at"]]
    return Leak(
        [(Path(frame["file"]).name, frame["line"]) for frame in frames if frame],
        [holder["path"] for holder in leak["holders"]],
    )


def of_device(entries: Sequence[Mapping[str, Any]], device: str) -> Mapping[str, Any]:
    """The entry of the device, "cuda" for "cuda:0"."""
    for entry in entries:
        if entry["device"].split(":")[0] == device:
            return entry
    raise Failed(f"nothing of {device}")


def changes_of(peak: Mapping[str, Any]) -> list[Line]:
    """Rows of one line, one for each phase, added."""
    sums: Counter[str] = Counter()
    for row in peak["lines"]:
        sums[row["line"]] += row["bytes"]["after"] - row["bytes"]["before"]
    return sorted((named(line, change) for line, change in sums.items()), key=lambda line: -abs(line.bytes))


def verb(folder: Path, name: str, *arguments: str) -> Any:
    done = suite.run(["-m", "cuptimem", name, *arguments, "--json"], "cpu", folder)
    if done.returncode:
        raise Failed(f"{name}: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout)


def record(program: suite.Program, trace: str, arguments: Sequence[str], folder: Path) -> str:
    """Standard error of the recorded run."""
    command: list[str | Path] = ["-m", "cuptimem", "run", "-o", trace, program.path, *arguments]
    done = suite.run(command, program.device, folder)
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stderr


def ask(program: suite.Program, folder: Path) -> Answer:
    """Runs it under cuptimem, and once more with the other setting where there is one. Raises Failed."""
    trace = f"{program.name}.cmem"
    errors = record(program, trace, [], folder)
    account = of_device(verb(folder, "account", trace)["accounts"], program.device)
    device = account["device"]
    table = verb(folder, "table", trace, "--by", "line", "--device", device)
    leaks = verb(folder, "leaks", trace)
    summary = suite.run(["-m", "cuptimem", "summary", trace], "cpu", folder).stdout
    changes: Sequence[Line] = ()
    if "diff" in program.truth:
        record(program, f"{program.name}-2.cmem", program.truth["diff"], folder)
        compared = verb(folder, "diff", trace, f"{program.name}-2.cmem")
        changes = changes_of(of_device(compared["devices"], program.device)["peak"])
    return Answer(
        account["bytes"],
        {k: v for k, v in account.items() if isinstance(v, int) and k not in NO_CATEGORY},
        [named(row["line"], row["bytes"]) for row in table["rows"]],
        closing_line(errors),
        steps_of([step for step in verb(folder, "steps", trace)["steps"] if step["device"] == device]),
        "leak" if leaks["leaks"] else "process grows" if PROCESS.search(summary) else "no leak",
        [leak_of(leak) for leak in leaks["leaks"]],
        changes,
    )
