"""What `make test` runs: groups of tests, taken by four workers, which keep two cores busy to the end.

    python -m tests.everything [--check | --extended | --long | --pythons] [pytest's arguments]

--check: golden answers, lint, and what needs neither PyTorch nor a sanitizer build and costs little; with arguments all
of these that needs neither. --extended: the tests of which `make test` has a faster one. --long: the tests, and the
numbers, for which `make test` has no time. --pythons: all that needs no PyTorch, with every other Python.
Files and folders among the arguments choose groups. What a group wrote is shown whole when it ends; what failed
anywhere is repeated at the end.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests import build, pythons

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("tests", "evidence", "cudasim")
COMPILED = ("cuptimem", *PLACES, "benchmarks")
WORKERS = 4  # on two cores: some tests wait
NOTHING_CHOSEN = 5  # pytest's exit code
COUNTS = re.compile(r"^=* ?(\d+ [a-z]+.*?) in [\d.]+s", re.MULTILINE)
FAILED = ("FAILED", "ERROR", "!!!")

# What takes longest begins first. A file is in the first group that has the begin of its name, or one of them. Few
# groups: a start of pytest, with the processes from which its programs are forked, costs four seconds.
Begins = str | tuple[str, ...]
GROUPS: tuple[Begins, ...] = (
    "on_device/simulated/",
    "tools/pytest_plugin/",
    ("tools/cli/", "tools/integrations/"),
    ("record/api/", "record/faults/", "record/on_demand/", "record/walks/"),
    "unit/",
    "evidence/",
    ("record/sources/", "record/holders/", "record/ooms/", "record/stress/"),
    "record/truth/",
    ("tools/notebook/", "tools/tensorboard/"),
    ("tools/pages/", "tools/exports/"),
    ("tools/fuzz/", "tools/packaging/"),
    "tools/",
    "record/",
    "",
)
OTHERS_AT = 6  # groups of other Pythons begin behind so many
OTHERS_FIRST = ("record/", "")

# `make check`: answers first, then what most changes break; of these what needs no PyTorch and is not marked costly.
CHECKED = ("golden", "house", "unit", "record", "tools/cli", "tools/views", "tools/exports", "tools/notebook")
CHECK_FIRST = ("golden/", "tools/", "record/", "")

# What the interpreter may change: `make test` runs these with the newest other Python. `make pythons`, a job of the
# workflow, runs all that needs no PyTorch with each of them, also record/driver, evidence/fidelity, -I and -E.
INTERPRETER = {
    "unit/frames/": "frames and code objects are read where they lie in memory",
    "unit/capture/test_capture_session.py": "a capture begins and ends with the interpreter",
    "unit/capture/test_capture_sourceline.py": "lines of a source file as Python counts them",
    "record/sources/": "imports that are watched, threads",
    "record/stress/test_stress_forks.py": "locks of the interpreter in a child",
    "record/stress/test_stress_gc.py": "states of its collector",
    "record/stress/test_stress_interpreters.py": "subinterpreters",
    "record/stress/test_stress_left_over.py": "how its processes end",
    "record/stress/test_stress_signals.py": "when its handlers run",
    "record/stress/test_stress_threads.py": "its threads' states",
    "record/api/test_backward_threads.py": "threads at its end",
    "record/api/test_garbage.py": "its collector's callbacks, what it finds",
    "record/api/test_hidden.py": "what its tracers and tracebacks show",
    "record/faults/test_own_process.py": "its end, interrupted",
    "record/holders/": "objects are walked",
    "tools/cli/test_commands.py": "every verb",
    "tools/cli/test_processes.py": "how it starts processes",
    "tools/cli/test_run_end.py": "its end",
    "tools/cli/test_startup.py": "startup files",
    "tools/exports/test_reader.py": "the extension's own type",
    "tools/newest/": "what new ones ask",
    "tools/packaging/test_import.py": "every module can be imported",
}


@dataclass
class Group:
    """A command, and how it ended."""

    name: str
    command: list[str]
    code: int = 0
    shown: str = ""
    seconds: float = 0
    cpu: float = 0

    def line(self) -> str:
        counts = [f"exit {self.code}"] * (self.code != 0) + COUNTS.findall(self.shown)[-1:]
        return f"{self.name:36} {self.seconds:5.0f} s, {self.cpu:5.0f} s of CPU  {', '.join(counts)}"


class Queue:
    """Runs groups; stop() ends them all, and none begins afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # pytest keeps what it has rewritten, which takes seconds at each start where the caller forbids bytecode.
        self._environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._running: set[int] = set()
        self._stopped = False

    def run(self, group: Group) -> Group:
        begin = time.monotonic()
        with tempfile.TemporaryFile() as log:
            with self._lock:
                if self._stopped:
                    return group
                # A session of its own: what ends it ends what it started, too.
                process = subprocess.Popen(
                    group.command,
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process.pid)
            _, status, used = os.wait4(process.pid, 0)
            with self._lock:
                self._running.discard(process.pid)
            process.returncode = group.code = os.waitstatus_to_exitcode(status)
            if group.code == NOTHING_CHOSEN:  # its tests are run elsewhere
                group.code = 0
            log.seek(0)
            group.shown = log.read().decode(errors="replace")
        group.seconds, group.cpu = time.monotonic() - begin, used.ru_utime + used.ru_stime
        return group

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        for number, patience in ((signal.SIGINT, 20), (signal.SIGKILL, 5)):
            with self._lock:
                for pid in self._running:
                    os.killpg(pid, number)
            end = time.monotonic() + patience
            while self._running and time.monotonic() < end:
                time.sleep(0.1)


def chosen(arguments: Sequence[str]) -> tuple[dict[Path, list[str]], list[str]]:
    """The files with what of them is to be run, and the arguments that are not paths."""
    files = sorted(file for place in PLACES for file in (ROOT / place).rglob("test_*.py"))
    found = {file: [str(file.relative_to(ROOT))] for file in files}
    paths = [word for word in arguments if (ROOT / word.partition("::")[0]).exists() and word.startswith(PLACES)]
    if not paths:
        return found, list(arguments)
    kept: dict[Path, list[str]] = {}
    for word in paths:
        place = ROOT / word.partition("::")[0]
        for file in found:
            if file.is_relative_to(place):
                kept.setdefault(file, []).append(word if "::" in word else str(file.relative_to(ROOT)))
    return kept, [word for word in arguments if word not in paths]


def name_of(file: Path) -> str:
    """Its path as groups name it: tests/ goes without saying."""
    return file.relative_to(ROOT).as_posix().removeprefix("tests/")


def parts(files: Sequence[Path], begins: Sequence[Begins]) -> Iterator[tuple[str, list[Path]]]:
    """Names of groups and their files, in the order in which they begin."""
    left = {file: name_of(file) for file in files}
    for begin in begins:
        if group := [file for file, name in left.items() if name.startswith(begin)]:
            first, *more = [begin] if isinstance(begin, str) else begin
            yield " ".join([first.rstrip("/") or "others", *(one.split("/")[1] for one in more)]), group
        for file in group:
            del left[file]


def without(*marks: str) -> list[str]:
    return [word for mark in marks for word in ("--without", mark)]


class Run:
    """The groups of one call of this program."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._files, self._options = chosen(arguments)
        self._some = bool(arguments)

    def main(self, *more: str) -> list[Group]:
        return list(self._groups(pythons.RUNNING, list(self._files), GROUPS, more))

    def check(self) -> list[Group]:
        """A few groups: each start of pytest costs half a second."""
        more = without("torch", "cuda_torch", "sanitizer", *([] if self._some else ["costly", "browser"]))
        files = [
            file for file in self._files if self._some or name_of(file).startswith(tuple(f"{n}/" for n in CHECKED))
        ]
        return list(self._groups(pythons.RUNNING, files, CHECK_FIRST, more))

    def others(self, *, all_files: bool) -> list[Group]:
        """Of the other Pythons what needs no PyTorch; of the newest one alone if not all files are asked for."""
        versions = pythons.others(newest=not all_files)
        some = tuple(INTERPRETER)
        files = [f for f in self._files if all_files or name_of(f).startswith(some)]
        more = without("torch", "cuda_torch")
        return [group for version in versions for group in self._groups(version, files, OTHERS_FIRST, more)]

    def _groups(
        self, version: str, chosen: Sequence[Path], begins: Sequence[Begins], more: Sequence[str]
    ) -> Iterator[Group]:
        interpreter = sys.executable if version == pythons.RUNNING else str(ROOT / f".venv-{version}/bin/python")
        for name, files in parts(chosen, begins):
            words = [word for file in files for word in self._files[file]]
            command = [interpreter, "-m", "pytest", "-q", *more, *self._options, *words]
            yield Group(f"{version} {name}", command)


def groups(what: str, arguments: Sequence[str]) -> list[Group]:
    chosen = Run(arguments)
    if what == "--check":
        found = chosen.check()
        if not arguments:
            found.insert(1, Group("lint", ["make", "--no-print-directory", "lint"]))
        return found
    if what in ("--long", "--extended"):
        return chosen.main(what)
    if what == "--pythons":
        return chosen.others(all_files=True)
    main = chosen.main()
    return [*main[:OTHERS_AT], *chosen.others(all_files=False), *main[OTHERS_AT:]]


def show(done: Sequence[Group], seconds: float) -> int:
    """The end of the output, and the exit code."""
    print(f"\n{seconds:.0f} s, {sum(group.cpu for group in done):.0f} s of CPU:")
    for group in done:
        print(group.line())
    bad = [group for group in done if group.code != 0]
    for group in bad:
        lines = [line for line in group.shown.splitlines() if line.startswith(FAILED)]
        print("\n".join([f"\n{group.name} ended with {group.code}:", *(lines or group.shown.splitlines()[-20:])]))
    return 1 if bad else 0


def compile_modules(found: Sequence[Group]) -> None:
    """Programs of tests write no bytecode: without this each would compile what it imports, 0.1 s at every start."""
    for interpreter in {group.command[0] for group in found if "pytest" in group.command}:
        subprocess.run([interpreter, "-m", "compileall", "-qq", *COMPILED], cwd=ROOT)  # what is up to date stays


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    modes = ("--check", "--extended", "--long", "--pythons")
    what = arguments.pop(0) if arguments and arguments[0] in modes else ""
    signal.signal(signal.SIGINT, interrupt)  # which a shell's & would have ignored
    signal.signal(signal.SIGTERM, interrupt)
    queue, begin, done = Queue(), time.monotonic(), []
    compile_modules(found := groups(what, arguments))
    with ThreadPoolExecutor(WORKERS) as workers:
        waiting = [workers.submit(queue.run, group) for group in found]
        try:
            for future in as_completed(waiting):
                done.append(group := future.result())
                print(f"\n----- {group.line()}\n{group.shown}", flush=True)
        except BaseException:
            for future in waiting:
                future.cancel()
            queue.stop()
            raise
    build.prune()
    if not done:
        sys.exit(f"no tests are chosen by {' '.join(arguments)}")
    return show(done, time.monotonic() - begin)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
