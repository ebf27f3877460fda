"""python -m evidence.foreign [SUITE ...] [--long] [--only RUN] [--source DIR] [--python FILE] [--save]

Runs test suites of other projects (suites.toml), each bare and under `cuptimem run`, and compares them outcome by
outcome: passed, failed, skipped, error, a process that died. Tests that differ are run three times more alone, both
ways: those whose outcome changes without a cause are named flaky. Exit 0 if nothing differs, 1 if something does,
2 for wrong usage.

Files are fetched with git at the tags that suites.toml names, or taken from DIR/<owner>+<name>: a git directory, a
clone or an unpacked source archive. --python is an interpreter with PyTorch that is used as it is; without it an
environment is made in .venv-foreign. --save writes results/<date>.md. What pytest printed lies in build/foreign.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.fidelity import environments
from evidence.fidelity.results import commit
from evidence.foreign import outcomes, sources
from evidence.foreign.outcomes import PROCESS, Difference
from tests.conftest import ROOT, clean_environment

TABLE = Path(__file__).with_name("suites.toml")
DOCS = Path(__file__).parent / "results"
LOGS = ROOT / "build" / "foreign"
AGAIN = 3
RUN_S = 3 * 3600  # a run of a whole file
ALONE_S = 900  # a repetition of one test


@dataclass(frozen=True)
class Suite:
    """A section of suites.toml, which says what each field is."""

    name: str
    repository: str
    ref: str
    short: tuple[str, ...]
    long: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    directory: str = "."
    install: str = ""
    requires: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def suites(text: str) -> dict[str, Suite]:
    """The table. Raises ValueError where a section has a field that there is not."""
    found = {}
    for name, row in tomllib.loads(text).items():
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        try:
            found[name] = Suite(name=name, **fields)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def pytest_run(
    python: str, suite: Suite, folder: Path, words: Sequence[str], recorded: bool, log: Path, timeout: float
) -> dict[str, str]:
    """The outcomes of one run of pytest; that of its process is among them."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    trace = log.with_suffix(".cmem")
    before = ["-m", "cuptimem", "run", "-q", "-f", "-o", str(trace)] if recorded else []
    command = [python, *before, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=."]
    command += [*suite.options, f"--report-log={log}", *words]
    environment = {**clean_environment(), **suite.environment}
    with log.with_suffix(".txt").open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder / suite.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            end = _end(process.wait(timeout))
        except subprocess.TimeoutExpired:
            end = "hung"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = outcomes.of_log(log.read_text(errors="replace").splitlines()) if log.exists() else {}
    if recorded and not (trace.exists() and trace.stat().st_size):
        end += ", not recorded"
    trace.unlink(missing_ok=True)
    return {**found, PROCESS: end}


def _end(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name


def compare(
    python: str, suite: Suite, folder: Path, run: str, logs: Path
) -> tuple[dict[str, str], dict[str, str], list[Difference]]:
    """Outcomes bare and recorded, and the tests that differ, which were repeated."""
    words = shlex.split(run)
    stem = "".join(letter if letter.isalnum() else "-" for letter in run)
    first = [
        pytest_run(python, suite, folder, words, recorded, logs / f"{stem}-{recorded}.log", RUN_S)
        for recorded in (False, True)
    ]
    found = []
    tests = outcomes.differing(*first)
    if len(tests) > 1 and {row[PROCESS] for row in first} == {"exit 0", "exit 1"}:
        tests.remove(PROCESS)  # it says no more than they do
    for test in tests:
        seen: tuple[list[str], list[str]] = ([first[0].get(test, "not run")], [first[1].get(test, "not run")])
        if test != PROCESS:
            for number in range(AGAIN):
                for recorded in (False, True):
                    log = logs / f"{stem}-again-{recorded}-{number}.log"
                    alone = pytest_run(python, suite, folder, [test], recorded, log, ALONE_S)
                    seen[recorded].append(alone.get(test, f"not run ({alone[PROCESS]})"))
        found.append(Difference(test, tuple(seen[0]), tuple(seen[1])))
    return first[0], first[1], found


def prepare(chosen: Sequence[Suite], python: str | None) -> str:
    """An interpreter with PyTorch, cuptimem and what the suites' tests need."""
    if python is None:
        python = environments.make(ROOT / ".venv-foreign", sys.executable)
    needed = sorted({"pytest>=8", "pytest-reportlog", *(name for suite in chosen for name in suite.requires)})
    environments.install(python, *needed)
    return python


def torch_version(python: str) -> str:
    code = "import torch; print(torch.__version__.split('+')[0])"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Result:
    """What was run, and what differs."""

    about: list[str]
    rows: list[tuple[str, str, int, str, str]] = field(default_factory=list)
    found: list[tuple[str, str, Difference]] = field(default_factory=list)
    complete: bool = True


def run_suite(suite: Suite, runs: Sequence[str], python: str, torch: str, source: Path | None, result: Result) -> None:
    """Adds a suite's runs to the result. Its files lie outside of this tree, whose pytest settings are not theirs."""
    with tempfile.TemporaryDirectory(prefix="foreign-", ignore_cleanup_errors=True) as copies:
        ref = suite.ref.format(torch=torch)
        try:
            folder, origin = sources.checkout(suite.repository, ref, suite.paths, Path(copies), source)
        except sources.Unavailable as error:
            print(f"{suite.name}: left out: {error}", flush=True)
            result.about.append(f"- {suite.name} was left out: {error}")
            result.complete = False
            return
        result.about.append(f"- {suite.name}: {origin}")
        if suite.install:
            environments.install(python, str(folder / suite.install))
        for run in runs:
            began = time.monotonic()
            bare, recorded, differences = compare(python, suite, folder, run, LOGS / suite.name)
            tests = len((bare.keys() | recorded.keys()) - {PROCESS})
            result.rows.append((suite.name, run, tests, outcomes.counts(bare), outcomes.counts(recorded)))
            result.found += [(suite.name, run, row) for row in differences]
            if tests == 0:
                result.about.append(
                    f"- {suite.name} {run}: no test ran, {bare[PROCESS]}; see {(LOGS / suite.name).relative_to(ROOT)}"
                )
                print(result.about[-1], flush=True)
                result.complete = False
            seconds = time.monotonic() - began
            print(f"{suite.name} {run}: {tests} tests, {outcomes.counts(bare)}; {seconds:.0f} s both ways", flush=True)
            for row in differences:
                ways = f"bare {', '.join(row.bare)}; recorded {', '.join(row.recorded)}"
                print(f"  {row.verdict}: {row.test}: {ways}", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.foreign")
    table = suites(TABLE.read_text())
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(table))
    parser.add_argument("--long", action="store_true", help="all runs of suites.toml, which take hours")
    parser.add_argument("--only", action="append", metavar="RUN", help="only this run of the suite")
    parser.add_argument("--source", type=Path, metavar="DIR", help="local copies, as DIR/<owner>+<name>")
    parser.add_argument("--python", metavar="FILE", help="an interpreter with PyTorch, used as it is")
    parser.add_argument("--save", action="store_true", help="write evidence/foreign/results/<date>.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.suites if name not in table]:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(table)}")
    chosen = [table[name] for name in options.suites or table]
    python = prepare(chosen, options.python)
    torch = torch_version(python)
    result = Result(
        [
            f"Written by `make foreign` at commit {commit()}: each suite ran bare and under `cuptimem run`.",
            f"The outcomes of each test were compared; those that differ ran {AGAIN} times more alone, both ways.",
            "",
            f"- Python {sys.version.split()[0]}, torch {torch}",
        ]
    )
    for suite in chosen:
        runs = options.only or (*suite.short, *(suite.long if options.long else ()))
        run_suite(suite, runs, python, torch, options.source, result)
    differs = [row for row in result.found if row[2].verdict != "flaky"]
    tests = sum(row[2] for row in result.rows)
    print(f"{tests} tests, {len(differs)} differ, {len(result.found) - len(differs)} are flaky")
    if options.save:
        today = datetime.date.today().isoformat()
        DOCS.mkdir(exist_ok=True)
        title = f"Foreign test suites, {today}"
        (DOCS / f"{today}.md").write_text(outcomes.document(title, result.about, result.rows, result.found))
    return int(bool(differs) or not result.complete)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
