"""Runs `cuptimem simulate --json`, and keeps each answer as a line of a file: a broken run goes on where it was."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.published.tables import ROOT

BUILD = ROOT / "build" / "published"
RESULT = "PUBLISHED_RESULT"  # the file to which a script of figures/ appends what it measured, a line for each run
ERROR_LINES = 12


@dataclass(frozen=True, slots=True)
class Job:
    """One call of `cuptimem simulate`."""

    name: str
    options: tuple[str, ...]
    program: tuple[str, ...]


@functools.cache
def commit() -> str:
    """Of this tree, as it was when it was first asked for."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def simulated_at(results: Iterable[dict[str, Any]]) -> str:
    """ "88d1f7a (71 results), a3aad4a (2)", the most frequent first: results are kept from one run to the next."""
    found = Counter(result.get("commit", "an unknown commit") for result in results)
    first, *rest = found.most_common() or [("no commit", 0)]
    return ", ".join([f"{first[0]} ({first[1]} results)", *(f"{name} ({count})" for name, count in rest)])


def simulate(job: Job, timeout: int) -> dict[str, Any]:
    """The answer, with what the program measured, the seconds that it all took, and the last lines of its output where
    it failed."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        # No download is meant to happen: a program that needs one must fail instead of waiting.
        more = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", RESULT: str(result)}
        python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "cuptimem", "simulate", "--json", "--timeout", str(timeout), *job.options]
        begin = time.monotonic()
        process = subprocess.Popen(
            [*command, *job.program],
            cwd=folder,
            env=os.environ | more | {"PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate()
        except BaseException:  # Ctrl-C: the session that was started for it does not hear of it
            os.killpg(process.pid, signal.SIGKILL)
            raise
        seconds = time.monotonic() - begin
        measured = [json.loads(line) for line in result.read_text().splitlines()] if result.exists() else []
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {"verdict": "nothing simulated", "reason": (err.strip().splitlines() or ["no output"])[-1]}
    return {
        "name": job.name,
        "commit": commit(),
        "options": list(job.options),
        "program": [part.removeprefix(f"{ROOT}/") for part in job.program],
        "seconds": round(seconds, 1),
        "measured": measured,
        "error": err.strip().splitlines()[-ERROR_LINES:] if answer["verdict"] in ("script failed", "undecided") else [],
        "answer": shorten(answer),
    }


# Of an answer, what the pages and a search for causes need; a whole one has megabytes of stacks.
KEPT = (
    "verdict",
    "reason",
    "card",
    "memory",
    "devices",
    "need",
    "setting",
    "smallest_card",
    "modelled",
    "undescribed",
    "refused",
    "caught_ooms",
    "attempts",
    "program",
    "torch",
    "notes",
)


def shorten(answer: dict[str, Any]) -> dict[str, Any]:
    kept = {key: answer.get(key) for key in KEPT}
    peak = answer.get("peak")
    kept["peak"] = peak.get("bytes") if isinstance(peak, dict) else None
    kept["host_reads"] = [
        {key: read.get(key) for key in ("count", "bytes", "written")}
        | {"line": _place(read.get("line")), "innermost": _place((read.get("stack") or [None])[0])}
        for read in answer.get("host_reads") or ()
    ]
    kept["assumptions"] = [
        {key: row.get(key) for key in ("operator", "share", "count", "file", "line")}
        for row in answer.get("assumptions") or ()
    ]
    return kept


def _place(frame: dict[str, Any] | None) -> str | None:
    return frame and f"{frame['file']}:{frame['line']} {frame['function']}".removeprefix(f"{ROOT}/")


def load(path: Path) -> dict[str, dict[str, Any]]:
    """By name, the last line of each. A line that was cut short is as if it were not there."""
    found = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            found[row["name"]] = row
    return found


def run(
    jobs: Sequence[Job],
    path: Path,
    workers: int,
    timeout: int,
    show: Callable[[dict[str, Any]], str],
    forget: frozenset[str] = frozenset(),
) -> dict[str, dict[str, Any]]:
    """Runs the jobs that are to be forgotten, and those that the file does not have yet with these options and this
    program. Returns all that it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    have = load(path)
    todo = [job for job in jobs if job.name in forget or not same(have.get(job.name), job)]
    begin = time.monotonic()
    cut_short = path.exists() and not path.read_bytes().endswith(b"\n")
    with ThreadPoolExecutor(workers) as pool, path.open("a") as file:
        if cut_short:  # by the end of a run: the next line must not be a part of it
            file.write("\n")
        for number, row in enumerate(_unordered(pool, todo, timeout), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            have[row["name"]] = row
            print(f"{number:3}/{len(todo)} {row['seconds']:6.1f} s  {show(row)}", flush=True)
    if todo:
        print(f"{len(todo)} simulated in {(time.monotonic() - begin) / 60:.0f} minutes, {workers} at a time")
    return have


def same(row: dict[str, Any] | None, job: Job) -> bool:
    """Whether the row is of this job with these options."""
    if row is None:
        return False
    return row["options"] == list(job.options) and row["program"] == [p.removeprefix(f"{ROOT}/") for p in job.program]


def _unordered(pool: ThreadPoolExecutor, jobs: Iterable[Job], timeout: int) -> Iterable[dict[str, Any]]:
    futures = [pool.submit(simulate, job, timeout) for job in jobs]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
