"""python -m evidence.leaks [NAME ...] [-j N] [--save] [--keep DIR] [--public]

Judges cuptimem's leak verdicts on the programs beside it: each runs with N and with 3N steps, under the
oracle without cuptimem and under `cuptimem run`, and what cuptimem says is compared with what is true. Prints a line
per program, then precision, recall, line accuracy and rate error. Exit 0 if every leak is found, the first line right
and the rate within 10 %, growth that is undecidable or negligible is called that, and nothing clean is accused; 1 if
not; 2 for wrong usage.

--save writes results/<date>.json and results/README.md. --public also runs the public training scripts
(evidence.leaks.public).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evidence.leaks import public, results, suite
from evidence.leaks.judge import Said, judge
from evidence.leaks.truth import ROOT, Oracle, Truth, Undecided
from tests.results import json_text

DOCS = ROOT / "evidence" / "leaks" / "results"
BUILD = ROOT / "build" / "evidence"  # the environment of programs that need more than torch


@contextlib.contextmanager
def oracle(folder: Path) -> Iterator[Oracle]:
    """The oracle's process; its samples lie in the folder."""
    sys.path.insert(0, str(ROOT / "tests" / "record" / "truth"))
    try:
        import oracle as witness  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    with Oracle(witness.library(), witness.environment, folder) as process:
        yield process


def environment() -> Path:
    """An interpreter that has what programs may need beside torch. Raises public.Unavailable."""
    return public.environment([f"{name}=={version}" for name, version in suite.VERSIONS.items()], BUILD)


def contradiction(program: suite.Program, truth: Truth) -> str:
    """Why a program is wrong about itself; "" if it is not."""
    said = results.truth_words(truth)
    if truth.leaks != bool(program.label):
        marked = "lines are marked" if program.label else "no line is marked"
        return f"{marked}, but the oracle says: {said}"
    if program.label == "NEGLIGIBLE" and not truth.negligible:
        return f"lines are marked negligible, but the oracle says: {said}"
    return ""


def row(
    program: suite.Program, decide: Callable[[suite.Program], Truth], record: Callable[[suite.Program, int], Said]
) -> results.Row:
    """Everything about one program. A program that is wrong about itself is not run under cuptimem."""
    try:
        truth = decide(program)
    except Undecided as why:
        return results.Row(program, None, str(why), ())
    problem = contradiction(program, truth)
    if problem:
        return results.Row(program, truth, problem, ())
    runs = []
    for steps in (program.steps, 3 * program.steps):
        said = record(program, steps)
        runs.append((said, judge(said, truth, program.marks, program.label, short=steps == program.steps)))
    return results.Row(program, truth, "", tuple(runs))


def run(programs: Sequence[suite.Program], folder: Path, jobs: int = 1) -> Iterator[results.Row]:
    """In the programs' order. The folder keeps the traces."""
    plain, more = suite.interpreter(folder / "python"), None
    if any(program.needs for program in programs):
        more = environment()
    with contextlib.ExitStack() as stack:
        # An oracle's process answers one request at a time, so each worker has its own.
        oracles = [stack.enter_context(oracle(_folder(folder / f"oracle-{i}"))) for i in range(jobs)]
        pool = stack.enter_context(ThreadPoolExecutor(jobs))

        def one(program: suite.Program) -> results.Row:
            python = more if program.needs and more else plain
            needed = python.parents[1].glob("lib/python3.*/site-packages") if program.needs else []
            paths = [str(path) for path in needed]
            mine = oracles.pop()
            try:
                return row(
                    program,
                    lambda p: mine.truth(p.path, p.steps, paths),
                    lambda p, steps: suite.record(p, steps, python, folder),
                )
            finally:
                oracles.append(mine)

        yield from pool.map(one, programs)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _about(seconds: float) -> dict[str, Any]:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return {
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "seconds": round(seconds),
    }


def save(rows: Sequence[results.Row], seconds: float, scripts: Sequence[dict[str, Any]] | None) -> Path:
    """Writes the dated JSON and the table. Returns the JSON's path."""
    DOCS.mkdir(parents=True, exist_ok=True)
    about = _about(seconds)
    target = DOCS / f"{about['date']}.json"
    target.write_text(json_text(results.as_json(rows, about, scripts)))
    (DOCS / "README.md").write_text(results.as_markdown(rows, about, target.name))
    return target


def _public() -> list[dict[str, Any]]:
    """The public scripts' outcomes. Raises public.Unavailable."""
    return [
        {**dataclasses.asdict(outcome), "script": outcome.script.name, "passed": outcome.passed}
        for outcome in public.run_public(public.default_work_dir())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.leaks", description=__doc__.split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="programs at a time (%(default)s)")
    parser.add_argument("--save", action="store_true", help="write evidence/leaks/results")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the traces in this new folder")
    parser.add_argument("--public", action="store_true", help="the public training scripts too")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("at least one job")
    if options.save and options.names:
        parser.error("--save is for the whole suite")
    try:
        programs = suite.programs(options.names)
    except ValueError as error:
        parser.error(str(error))
    begin = time.monotonic()
    rows = []
    with contextlib.ExitStack() as stack:
        if options.keep:
            options.keep.mkdir(parents=True)
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            for finished in run(programs, folder.resolve(), options.jobs):
                rows.append(finished)
                print(results.line(finished), flush=True)
        except public.Unavailable as why:
            print(f"packages of some programs: {why}", file=sys.stderr)
            return 1
    seconds = time.monotonic() - begin
    print("", *results.summary(results.totals(rows)), f"{seconds:.0f} s", sep="\n")
    scripts = None
    if options.public:
        try:
            scripts = _public()
        except public.Unavailable as why:
            print(f"public scripts: {why}", file=sys.stderr)
            return 1
    if options.save:
        print(f"wrote {save(rows, seconds, scripts).relative_to(ROOT)}")
    passed = all(r.passed for r in rows) and all(outcome["passed"] for outcome in scripts or ())
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
