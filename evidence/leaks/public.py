"""python -m evidence.leaks.public [--work DIR] [--source DIR] [--longer] [--list] [NAME ...]

Runs public training scripts that nobody here wrote (public.toml), unmodified, under `cuptimem run`, and says what
cuptimem said: the steps it saw, its verdicts, the peak. None of them is known to leak, so every leak is an alarm to
explain. They are fetched with git at pinned commits into a folder outside the tree; with --source DIR from local
copies, DIR/<owner>+<name>, instead. --longer runs those that have options for it three times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cuptimem
from tests import pythons

TABLE = Path(__file__).with_name("public.toml")
HOST = "https://github.com"
TIMEOUT_S = 300  # a run takes less than 60 on a quiet machine


class Unavailable(Exception):
    """A repository, a commit or a package cannot be had; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Script:
    """A row of public.toml, which says what each field is."""

    name: str
    repository: str
    commit: str
    licence: str
    paths: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    steps: int
    data: str
    style: str
    directory: str = "."
    longer: tuple[str, ...] = ()
    pythonpath: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run showed. problem: why it cannot count; "" if it can."""

    script: Script
    longer: bool
    code: int | None
    seconds: float
    problem: str
    steps: int = 0  # of training
    others: int = 0  # of other loops, as evaluation
    clock: str = ""
    allocations: int = 0
    peak: int = 0  # bytes, of the CPU
    nodes: bool = False  # whether graph nodes were counted, and so judged
    leaks: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problem and not self.leaks


def table(text: str) -> tuple[list[str], list[Script]]:
    """What to install and the scripts. Raises ValueError where the text breaks the table's rules."""
    rows: dict[str, Any] = tomllib.loads(text)
    requires = rows.pop("requires")
    if any("==" not in requirement for requirement in requires):
        raise ValueError("every requirement names its version")
    scripts = []
    for name, row in rows.items():
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        try:
            script = Script(name=name, **fields)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from None
        if len(script.commit) != 40 or set(script.commit) - set("0123456789abcdef"):
            raise ValueError(f"{name}: the commit is not a full hash")
        if script.repository.count("/") != 1 or not script.licence or not script.data or not script.style:
            raise ValueError(f"{name}: repository, licence, data and style must be said")
        for path in (*script.paths, script.directory, script.script, *script.pythonpath):
            if Path(path).is_absolute() or ".." in Path(path).parts:
                raise ValueError(f"{name}: {path} leads out of the repository")
        if script.steps < 24:
            raise ValueError(f"{name}: fewer than 24 steps show nothing")
        scripts.append(script)
    return requires, scripts


def _git(*arguments: object, **environment: str) -> str:
    command = ["git", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise Unavailable(f"git {' '.join(command[1:4])}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


def _repository(script: Script, work: Path, source: Path | None) -> Path:
    """A git directory that has the commit."""
    name = script.repository.replace("/", "+")
    if source is not None:
        for candidate in (source / name, source / f"{name}.git", source / name / "repo"):
            for folder in (candidate / ".git", candidate):
                if (folder / "objects").is_dir():
                    _git("--git-dir", folder, "rev-parse", "--verify", "-q", script.commit + "^{commit}")
                    return folder
        raise Unavailable(f"{source} has no git directory {name}")
    folder = work / "repositories" / f"{name}.git"
    if not folder.exists():
        _git("init", "-q", "--bare", folder)
    with contextlib.suppress(Unavailable):  # not there yet: fetched below
        _git("--git-dir", folder, "rev-parse", "--verify", "-q", script.commit + "^{commit}")
        return folder
    _git("--git-dir", folder, "fetch", "-q", "--depth", "1", f"{HOST}/{script.repository}", script.commit)
    return folder


def checkout(script: Script, work: Path, source: Path | None) -> Path:
    """A fresh copy of the script's paths, as they are at its commit."""
    target = work / "runs" / script.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    index = work / "runs" / f"{script.name}.index"
    git = ("--git-dir", _repository(script, work, source), "--work-tree", target, "-c", "core.hooksPath=/dev/null")
    # An index of its own, so that a given source stays untouched; only these paths, so that no others need be there.
    _git(*git, "checkout", "-q", "-f", script.commit, "--", *script.paths, GIT_INDEX_FILE=str(index))
    index.unlink()
    return target


def environment(requires: Sequence[str], work: Path) -> Path:
    """An interpreter that has what the scripts need: packages of its own before those of this environment."""
    folder = work / f"venv-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    made = folder / "made"
    wanted = "\n".join([sys.executable, *requires])
    if made.exists() and made.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    site = next(folder.glob("lib/python3.*/site-packages"))
    seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    own = Path(cuptimem.__file__).parents[1]
    # The first letter puts it before cuptimem.pth, which needs it.
    (site / "__paths.pth").write_text("\n".join([*seen, str(own)]) + "\n")
    pythons.add_startup(site)
    import torch

    constraint = folder / "constraints.txt"
    constraint.write_text(f"torch=={torch.__version__.partition('+')[0]}\n")
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", constraint, *requires], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Unavailable(f"pip: {(done.stderr.strip() or done.stdout.strip() or 'failed').splitlines()[-1]}")
    made.write_text(wanted)
    return python


def _named(leak: cuptimem.Leak) -> str:
    """A verdict in one line: what grows and at which line of the script."""
    rate = f"{leak.count_per_step:.2f} nodes" if leak.kind == "nodes" else f"{leak.bytes_per_step:,.1f} bytes"
    born = f"steps {leak.first_step} to {leak.last_step}"
    return f"{leak.where}: {rate} a step, {leak.count} alive of {born} of {leak.loop} ({leak.signature})"


def run(script: Script, python: Path, tree: Path, longer: bool) -> Outcome:
    """Runs it once and reads its trace, which stays in the tree's folder as run.cmem."""
    trace = tree / "run.cmem"
    arguments = script.longer if longer else script.arguments
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("CUPTIMEM", "PYTEST", "PYTHON"))},
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "PYTHONPATH": os.pathsep.join(str(tree / path) for path in script.pythonpath),
        **script.environment,
    }
    command = [str(python), "-m", "cuptimem", "run", "-o", str(trace), script.script, *arguments]
    begin = time.monotonic()
    with (tree / "run.out").open("w") as output:
        try:
            code = subprocess.run(
                command,
                cwd=tree / script.directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            return Outcome(script, longer, None, time.monotonic() - begin, f"still running after {TIMEOUT_S} s")
    seconds = time.monotonic() - begin
    if code != 0:
        last = (tree / "run.out").read_text(errors="replace").strip().splitlines() or ["no output"]
        return Outcome(script, longer, code, seconds, f"exit {code}: {last[-1]}")
    report = cuptimem.open(trace)
    loops = {step.index: step.loop for step in report.steps}
    steps = sum(loop == "training" for loop in loops.values())
    where = f" at {Path(report.clock.where[0]).name}:{report.clock.where[1]}" if report.clock.where else ""
    problem = ""
    if not report.complete or report.lost.events:
        problem = f"the trace is {report.state}, {report.lost.events} events lost"
    elif steps < script.steps:
        problem = f"{steps} training steps seen, at least {script.steps} expected"
    return Outcome(
        script,
        longer,
        code,
        seconds,
        problem,
        steps,
        len(loops) - steps,
        f"{report.clock.kind}{where}",
        report.allocations,
        report.device("cpu").peak.bytes,
        report.nodes is not None,
        tuple(_named(leak) for leak in report.leaks),
        tuple(f"{_named(leak)}: {leak.reason}" for leak in report.suspects),
    )


def line(outcome: Outcome) -> str:
    head = f"{outcome.script.name}{' (longer)' if outcome.longer else ''}"
    if outcome.problem:
        return f"  {head:<26} FAILED: {outcome.problem}"
    said = f"{len(outcome.leaks)} leaks" if outcome.leaks else "no leak"
    said += "" if outcome.nodes else " (nodes not counted)"
    others = f" + {outcome.others:,} others" if outcome.others else ""
    text = (
        f"  {head:<26} {outcome.steps:>6,} steps{others:<15} by {outcome.clock:<38}"
        f"{outcome.allocations:>11,} allocations  peak {outcome.peak / 2**20:>6.1f} MiB  {outcome.seconds:>4.0f} s"
        f"  {said}, {len(outcome.suspects)} suspects"
    )
    rows = [text, *(f"      LEAK {leak}" for leak in outcome.leaks)]
    return "\n".join([*rows, *(f"      suspect {suspect}" for suspect in outcome.suspects)])


def run_public(
    work_dir: Path, source: Path | None = None, names: Iterable[str] = (), *, longer: bool = False
) -> list[Outcome]:
    """Fetches and runs the scripts (those named, or all) and prints a line for each. work_dir keeps what is fetched,
    installed and recorded; it must lie outside the repository.

    Raises Unavailable where something cannot be had, ValueError for an unknown name or a folder inside the tree.
    """
    work_dir = work_dir.resolve()
    if work_dir.is_relative_to(TABLE.parents[2]):
        raise ValueError(f"{work_dir} is inside the repository: public scripts stay out of it")
    requires, scripts = table(TABLE.read_text())
    unknown = set(names) - {script.name for script in scripts}
    if unknown:
        raise ValueError(f"no public script {sorted(unknown)[0]!r}; there are: {', '.join(s.name for s in scripts)}")
    python = environment(requires, work_dir)
    outcomes = []
    for script in scripts:
        if (names and script.name not in names) or (longer and not script.longer):
            continue
        outcomes.append(run(script, python, checkout(script, work_dir, source), longer))
        print(line(outcomes[-1]), flush=True)
    return outcomes


def default_work_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuptimem" / "public"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.leaks.public", description=__doc__.split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--work", type=Path, default=default_work_dir(), help="where everything goes (%(default)s)")
    parser.add_argument("--source", type=Path, help="local git directories <owner>+<name> instead of GitHub")
    parser.add_argument("--longer", action="store_true", help="three times the steps")
    parser.add_argument("--list", action="store_true", help="say which there are, and stop")
    arguments = parser.parse_args()
    if arguments.list:
        for script in table(TABLE.read_text())[1]:
            print(f"{script.name:<18} {script.repository} ({script.licence}), {script.data}: {script.style}")
        return 0
    try:
        outcomes = run_public(arguments.work, arguments.source, arguments.names, longer=arguments.longer)
    except (Unavailable, ValueError) as error:
        print(f"public: {error}", file=sys.stderr)
        return 2
    passed = sum(outcome.passed for outcome in outcomes)
    print(f"{passed} of {len(outcomes)} public scripts without an alarm")
    return 0 if passed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
