"""python -m evidence.foreign.pytest_plugin [SUITE ...] [--rounds N] [--python FILE] [--save]

Runs test suites of other projects, from their source distributions, in three ways: without the pytest plugin, with
every test measured (--cuptimem, --cuptimem-json), and with every test's leaks limited as well, to more than any leaves.
Compares the outcomes test by test and the figures between rounds, and says what measuring costs. Exit 0 if no outcome
differs, 1 if one does, 2 for wrong usage.

After a run that fills caches the ways take turns; each round begins with another one. Times are medians of the rounds,
of a whole pytest process with OMP_NUM_THREADS=1. pip fetches the distributions. --python is an interpreter with PyTorch
that is used as it is; without it an environment is made in .venv-foreign. --save writes
results/<date>-pytest-plugin.md. What pytest printed lies in build/pytest-foreign.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.fidelity import environments
from evidence.fidelity.results import commit
from evidence.foreign import outcomes
from evidence.foreign.__main__ import torch_version
from tests.conftest import ROOT, clean_environment

DOCS = Path(__file__).parent / "results"
LOGS = ROOT / "build" / "pytest-foreign"
WITHOUT, MEASURED, LEAKS = "without", "--cuptimem", "leaks, too"
WAYS = (WITHOUT, MEASURED, LEAKS)


@dataclass(frozen=True)
class Suite:
    """A source distribution with tests."""

    distribution: str  # with its version
    tests: tuple[str, ...]
    requires: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "einops": Suite("einops==0.8.2", ("einops/tests",), ("parameterized",), {"EINOPS_TEST_BACKENDS": "numpy,torch"}),
    "accelerate": Suite(
        "accelerate==1.15.0",
        tuple(
            f"tests/test_{name}.py"
            for name in ["accelerator", "optimizer", "scheduler", "data_loader", "hooks", "modeling_utils", "utils"]
        ),
        ("parameterized", "pytest-subtests", "torchdata", "tqdm"),
        {"HF_HUB_OFFLINE": "1"},
    ),
}


@dataclass
class Run:
    """One pytest process."""

    outcomes: dict[str, str]
    figures: dict[str, list[Any]]  # by test: what was measured, without its trace
    wall: float
    cpu: float
    printed: str


def fetch(python: str, suite: Suite, folder: Path) -> Path:
    """The unpacked source distribution, which is installed, too."""
    pip = [python, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(folder), suite.distribution], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    archive.unlink()
    (unpacked,) = folder.iterdir()
    environments.install(python, str(unpacked), *suite.requires)
    return unpacked


def plugin(python: str, way: str) -> list[str]:
    """Where cuptimem is not installed with its entry point, the plugin is named."""
    code = "import importlib.metadata as m; print([e.name for e in m.entry_points(group='pytest11')])"
    known = "'cuptimem'" in subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    if way == WITHOUT:
        return ["-p", "no:cuptimem"] if known else []
    return [] if known else ["-p", "cuptimem.pytest_plugin"]


def run(python: str, suite: Suite, folder: Path, way: str, stem: Path) -> Run:
    log, figures, printed = (stem.with_suffix(suffix) for suffix in (".log", ".json", ".txt"))
    stem.parent.mkdir(parents=True, exist_ok=True)
    for file in (log, figures, printed):
        file.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}", f"--report-log={log}"]
    command += plugin(python, way)
    if way != WITHOUT:
        command += ["--cuptimem", f"--cuptimem-json={figures}"]
    if way == LEAKS:
        command += ["-o", "cuptimem_limit_tensor_leaks=1 TiB"]
    environment = {**clean_environment(), **suite.environment, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    environment["PATH"] = f"{Path(python).parent}{os.pathsep}{environment['PATH']}"  # a test may start `python`
    with printed.open("wb") as out:
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, *suite.tests],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - began
    found = outcomes.of_log(log.read_text(errors="replace").splitlines()) if log.exists() else {}
    return Run(
        {**found, outcomes.PROCESS: f"exit {process.returncode}"},
        _figures(figures),
        wall,
        used.ru_utime + used.ru_stime,
        printed.read_text(errors="replace"),
    )


def _figures(file: Path) -> dict[str, list[Any]]:
    """A test that ran several times, as a subtest does, has several."""
    found: dict[str, list[Any]] = {}
    for record in json.loads(file.read_text())["records"] if file.exists() else ():
        devices = {
            device: {name: value for name, value in figures.items() if name not in ("contributors", "leaked")}
            for device, figures in record["devices"].items()
        }
        found.setdefault(record["nodeid"], []).append(devices)
    return found


def differing(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, dict[str, list[str]], bool]]:
    """Tests whose outcomes are not those that they have without the plugin: their outcomes, and whether they are
    flaky without it."""
    names = sorted({name for way in runs.values() for one in way for name in one.outcomes})
    found = []
    for name in names:
        seen = {way: [one.outcomes.get(name, "not run") for one in ones] for way, ones in runs.items()}
        if len({tuple(sorted(set(one))) for one in seen.values()}) > 1:
            found.append((name, seen, len(set(seen[WITHOUT])) > 1))
    return found


def unsteady(runs: Mapping[str, Sequence[Run]]) -> tuple[int, list[str]]:
    """How many tests have figures, and those whose figures are not the same in all runs."""
    measured = [one.figures for way, ones in runs.items() if way != WITHOUT for one in ones]
    names = sorted({name for figures in measured for name in figures})
    return len(names), [name for name in names if any(one.get(name) != measured[0].get(name) for one in measured)]


def highest_peaks(printed: str) -> list[str]:
    """The plugin's table, as pytest printed it."""
    lines = printed.splitlines()
    start = next((i for i, line in enumerate(lines) if "highest peaks" in line), len(lines))
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(("=", "---"))), len(lines))
    return lines[start + 1 : end]


def section(name: str, suite: Suite, runs: Mapping[str, Sequence[Run]]) -> tuple[list[str], bool]:
    """What the result says of a suite; whether no outcome differs."""
    first = runs[WITHOUT][0]
    ran = sum(outcome not in ("skipped", "not collected") for outcome in first.outcomes.values()) - 1
    tests = " ".join(suite.tests)
    lines = [f"## {suite.distribution}", "", f"`pytest {tests}`: {outcomes.counts(first.outcomes)}.", ""]
    differences = differing(runs)
    lines += ["Outcomes: " + ("the same in every way, test by test." if not differences else "")]
    for test, seen, flaky in differences:
        ways = "; ".join(f"{way}: {', '.join(one)}" for way, one in seen.items())
        lines.append(f"- {'flaky without the plugin' if flaky else 'DIFFERS'}: `{test}`: {ways}")
    measured, changing = unsteady(runs)
    lines += ["", f"Figures: {measured} tests have some; {measured - len(changing)} the same in every run."]
    lines += [f"- not the same: `{test}`" for test in changing[:10]]
    if len(changing) > 10:
        lines.append(f"- and {len(changing) - 10} more")
    lines += ["", "| way | wall | CPU | more CPU | a test that ran |", "|---|---|---|---|---|"]
    for way, ones in runs.items():
        wall, cpu = (statistics.median(getattr(one, what) for one in ones) for what in ("wall", "cpu"))
        more = cpu - statistics.median(one.cpu for one in runs[WITHOUT])
        beside = ("", "") if way == WITHOUT else (f"{more:+.2f} s", f"{1000 * more / max(1, ran):+.1f} ms")
        lines.append(f"| {way} | {wall:.2f} s | {cpu:.2f} s | {beside[0]} | {beside[1]} |")
    table = highest_peaks(runs[LEAKS][-1].printed)
    lines += ["", "Its table at the end, leaks measured:", "", *(f"    {line}".rstrip() for line in table), ""]
    return lines, all(flaky for _, _, flaky in differences)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.foreign.pytest_plugin")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each way (3)")
    parser.add_argument("--python", metavar="FILE", help="an interpreter with PyTorch, used as it is")
    parser.add_argument("--save", action="store_true", help="write evidence/foreign/results/<date>-pytest-plugin.md")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.suites if name not in SUITES]:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if options.rounds < 1:
        parser.error("--rounds is 1 or more")
    python = options.python or environments.make(ROOT / ".venv-foreign", sys.executable)
    environments.install(python, "pytest>=8", "pytest-reportlog")
    lines, same = [], True
    for name in options.suites or SUITES:
        suite = SUITES[name]
        runs: dict[str, list[Run]] = {way: [] for way in WAYS}
        with tempfile.TemporaryDirectory(prefix="pytest-foreign-", ignore_cleanup_errors=True) as copies:
            folder = fetch(python, suite, Path(copies))
            run(python, suite, folder, WITHOUT, LOGS / name / "first")  # fills caches, as torch.compile's
            for number in range(options.rounds):
                for i in range(len(WAYS)):
                    way = WAYS[(i + number) % len(WAYS)]
                    stem = LOGS / name / f"{number}-{WAYS.index(way)}"
                    runs[way].append(run(python, suite, folder, way, stem))
                    print(f"{name}, {way}: {runs[way][-1].wall:.1f} s", flush=True)
        text, fine = section(name, suite, runs)
        print("\n".join(text), flush=True)
        lines += text
        same = same and fine
    if options.save:
        today = datetime.date.today().isoformat()
        DOCS.mkdir(parents=True, exist_ok=True)
        about = [
            f"# Foreign test suites and the pytest plugin, {today}",
            "",
            f"Written by `python -m evidence.foreign.pytest_plugin --save` at commit {commit()}, with Python"
            f" {sys.version.split()[0]} and torch {torch_version(python)}.",
            f"Medians of {options.rounds} rounds, in which the ways took turns; OMP_NUM_THREADS=1.",
            "",
        ]
        (DOCS / f"{today}-pytest-plugin.md").write_text("\n".join([*about, *lines]).rstrip() + "\n")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
