"""Stress programs under AddressSanitizer (with UndefinedBehaviorSanitizer) and ThreadSanitizer.

`python -m tests.tools.sanitize.sanitize [MINUTES]` (make sanitize) runs them again and again, each time with other
seeds, then the torch-free tests with an extension built with AddressSanitizer, and writes what it counted to
docs/sanitize/. The tests run every program once, briefly (test_sanitize.py)."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "capture"))

from capture_support import STRESS, WRAPPED, Stress, begun_in, recorder

from tests import results
from tests.build import SANITIZED, SANITIZERS, build, generated, works

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
CALLERS = 7  # slots.c
RING = 1 << 20


class Finding(Exception):
    """What a sanitizer or a program's own check said."""


@dataclass(frozen=True)
class Case:
    """A program and its arguments: short ones for the tests, long ones for make sanitize. SEED and FOLDER stand for a
    number and an empty folder, in `stress` the path is one of a trace to verify."""

    room: str
    program: str
    short: Sequence[object]
    long: Sequence[object]

    @property
    def name(self) -> str:
        return f"{self.program} {self.short[0]}" if self.program == "stress" else self.program


CASES = [
    Case("ring", "stress", ("make", "TRACE", 3, 6000, RING), ("make", "TRACE", 8, 60000, RING)),
    Case("ring", "stress", ("move", "TRACE", 3, 3000, 1), ("move", "TRACE", 8, 40000, 1)),
    Case("ring", "stress", ("handoff", "TRACE", 2000, 20), ("handoff", "TRACE", 20000, 60)),
    Case("ring", "stress", ("idle", "TRACE", 60), ("idle", "TRACE", 400)),
    Case("ring", "stress", ("churn", "TRACE", 20, 40), ("churn", "TRACE", 80, 300)),
    Case("ring", "stress", ("short", "TRACE", 300), ("short", "TRACE", 5000)),
    Case("ring", "stress", ("together", "TRACE", 60), ("together", "TRACE", 300)),
    Case("ring", "stress", ("full", "TRACE", 12000), ("full", "TRACE", 40000)),
    Case("ring", "stress", ("exits", "TRACE"), ("exits", "TRACE")),
    Case("collector", "stress", ("again", "FOLDER", 4), ("again", "FOLDER", 60)),
    Case("collector", "stress", ("overtake", "TRACE", 60), ("overtake", "TRACE", 1000)),
    Case("collector", "control", ("SEED", 4, 12, "FOLDER"), ("SEED", 8, 150, "FOLDER")),
    Case("encode/decode", "codec", ("SEED", 2, 40, "FOLDER"), ("SEED", 4, 800, "FOLDER")),
    Case("install/uninstall", "slots", ("SEED", 4, 150, "FOLDER"), ("SEED", 8, 4000, "FOLDER")),
    Case("intern", "frames", ("SEED", 5, 4), ("SEED", 12, 40)),
]


def build_libraries(folder: Path) -> None:
    """What slots.c calls, loads and unloads."""
    define = generated("def.c", "int work_on_it(int x) { return 2 * x + 1; }\n")
    idle = generated("idle.c", "int idle(void) { return 1; }\n")
    held = "int work_on_it(int);\nint (*held)(int) = work_on_it;\n"
    caller = generated("caller.c", held + "int call_it(int x) { return work_on_it(x) + 0; }\n")
    shared = ("-shared", "-fPIC", "-O1")
    libraries = [build("libdef.so", [define], *shared, link=["-Wl,-soname,libdef.so"])]
    libraries.append(build("libidle.so", [idle], *shared))
    for i in range(CALLERS):
        bound = "lazy" if i % 2 == 0 else "now"
        words = [libraries[0], "-Wl,-rpath,$ORIGIN", f"-Wl,-z,{bound}"]
        libraries.append(build(f"libcaller{i}.so", [caller], *shared, link=words))
    for library in libraries:
        shutil.copy(library, folder)


@dataclass
class Programs:
    """The programs of one sanitizer, built into a folder."""

    sanitizer: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def build(self) -> None:
        sources = ROOT / "csrc/sources"
        programs = {
            "stress": [*STRESS, *recorder()],
            "control": [HERE / "control.c", *recorder()],
            "codec": [HERE / "codec.c", *recorder()],
            "slots": [HERE / "slots.c", *(sources / f"{name}.c" for name in ("slots", "elf", "loaded"))],
        }
        for name, parts in programs.items():
            words = ["-ldl", "-lpthread", *(WRAPPED if name == "stress" else ())]
            shutil.copy(build(name, parts, *SANITIZED, SANITIZERS[self.sanitizer], link=words), self.folder)
        build_libraries(self.folder)
        suppressions = f"suppressions={HERE / 'thread.supp'}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CUPTIMEM")},
            "TSAN_OPTIONS": f"{suppressions} halt_on_error=1",
            "ASAN_OPTIONS": "detect_leaks=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }

    def preload(self) -> str:
        """The sanitizer's library, for an interpreter that was not built with it."""
        name = {"address": "libasan.so", "thread": "libtsan.so"}[self.sanitizer]
        return str(Path(subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()).resolve())

    def run(self, case: Case, *, long: bool, seed: int, timeout: float = 600) -> list[int]:
        """The numbers that the program prints; Finding when it or the sanitizer has something to say."""
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            rings = work / "rings"
            rings.mkdir()
            stand_in = {"SEED": seed, "FOLDER": work, "TRACE": work / "t.cmem"}
            if case.program == "slots":
                stand_in["FOLDER"] = self.folder
            words = [str(stand_in.get(str(word), word)) for word in (case.long if long else case.short)]
            environment = {**self.environment, "STRESS_RING_DIR": str(rings), "TMPDIR": str(self.folder)}
            command = [str(self.folder / case.program), *words]
            if case.program == "frames":
                script = [sys.executable, str(HERE / "frames_stress.py")]
                environment["CUPTIMEM_TEST_CFLAGS"] = f"{SANITIZERS[self.sanitizer]} -O1"
                subprocess.run([*script, "build"], env=environment, check=True)  # the compiler runs without the library
                # What the interpreter never frees is its own affair.
                environment |= {"LD_PRELOAD": self.preload(), "ASAN_OPTIONS": "detect_leaks=0"}
                environment |= {"PYTHONMALLOC": "malloc"} if self.sanitizer == "address" else {}
                command = [*script, *words]
            done = subprocess.run(
                command, env=environment, cwd=work, capture_output=True, text=True, errors="replace", timeout=timeout
            )
            if (done.returncode, done.stderr) != (0, ""):
                raise Finding(f"{self.sanitizer}: {case.name} {words}: exit {done.returncode}\n{done.stderr[-6000:]}")
            if case.program == "stress":
                for trace in work.glob("*.cmem"):
                    Stress(self.folder / "stress", work, rings).verify(trace)
            return [int(word) for word in done.stdout.split()]

    def run_killed(self, work: Path) -> None:
        """Captures until a kill, and what is left of them brought home."""
        rings = work / "rings"
        rings.mkdir()
        stress = Stress(self.folder / "stress", work, rings)
        process = stress.start("kill", work, RING, 50)
        while begun_in(work) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.communicate()
        begun, _ = stress.run("killed", work)
        assert begun >= 1
        stress.run("sweep", rings)
        assert stress.run("killed", work)[0] == begun


def events_and_threads(case: Case, words: Sequence[object], numbers: list[int]) -> tuple[int, int]:
    """What a run did: events (calls, captures) and threads."""
    if case.program != "stress":
        return numbers[0], numbers[1]
    mode = words[0]
    threads = {"make": 2, "move": 2, "handoff": 3, "idle": 2, "churn": 2, "short": 2, "together": 2}.get(str(mode))
    fixed = {"full": 1, "exits": 200, "overtake": 1, "again": 1}
    count = int(str(words[threads])) if threads is not None else fixed[str(mode)]
    return numbers[-2], count


# --- make sanitize ----------------------------------------------------------------------------------------------------


@dataclass
class Total:
    rounds: int = 0
    events: int = 0
    threads: int = 0
    findings: int = 0


def extension_under_asan(folder: Path) -> tuple[str, int]:
    """The torch-free tests with the extension built with AddressSanitizer, in a copy of the tree, and what leaks. One
    line, and the number of findings."""
    tree = folder / "tree"
    ignore = shutil.ignore_patterns(".git", ".venv*", "*.so", "build", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=ignore)
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=all -O1 -fno-omit-frame-pointer"
    environment = {**os.environ, "CFLAGS": flags, "LDFLAGS": flags, "PYTHONPATH": str(tree)}
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tree, env=environment, check=True)
    for name in ("CFLAGS", "LDFLAGS"):
        del environment[name]
    environment |= {
        "LD_PRELOAD": Programs("address", folder).preload(),
        # SIGBUS is ours: tests raise it on purpose.
        "ASAN_OPTIONS": f"detect_leaks=0:handle_sigbus=0:log_path={folder / 'report'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder / 'report'}",
    }
    rooms = [
        f"tests/{room}" for room in ("unit/analysis", "record/api", "unit/capture", "unit/trace", "tools/packaging")
    ]
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "not torch", "-p", "no:cacheprovider", *rooms]
    # test_forks: a child forked while another thread allocates hangs on a lock of libasan's allocator. Its program has
    # nothing of the extension.
    deselect = "not sanitize and not hostile and not fuzz and not scale and not limits and not test_forks"
    done = subprocess.run([*tests, "-k", deselect], cwd=tree, env=environment, capture_output=True, text=True)
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"exit {done.returncode}"
    reports = sorted(folder.glob("report*"))
    for report in reports:
        print(report.read_text()[:4000], file=sys.stderr)
    if done.returncode != 0:
        print(done.stdout[-6000:], file=sys.stderr)
    environment |= {"ASAN_OPTIONS": "detect_leaks=1:exitcode=0:fast_unwind_on_malloc=0", "PYTHONMALLOC": "malloc"}
    script = [sys.executable, str(HERE / "leaks.py")]
    leaks = subprocess.run([*script], cwd=tree, env=environment, capture_output=True, text=True)
    ours, others = own_leaks(leaks.stderr)
    for leak in ours:
        print(leak, file=sys.stderr)
    # The script leaks a block on purpose: a check that misses that one says nothing of the others.
    checked = "done" in leaks.stdout and "12345 byte(s)" in leaks.stderr
    if not checked:
        print(f"no leak check: {leaks.stdout}{leaks.stderr[-4000:]}", file=sys.stderr)
    line = (
        f"{summary}; {len(reports)} reports. Leak check of {leaks.stdout.strip()}: {len(ours)} of ours, "
        f"{others} others (one of them made on purpose, to be found)."
    )
    return line, len(reports) + len(ours) + (done.returncode != 0) + (not checked)


def own_leaks(report: str) -> tuple[list[str], int]:
    """LeakSanitizer's report, taken apart: leaks whose memory our extension allocated, and the number of the others. An
    allocation is ours when our code is nearer to it than the interpreter's."""
    ours, others = [], 0
    for block in report.split("\n\n"):
        if "leak of" not in block:
            continue
        frames = [line for line in block.splitlines() if line.lstrip().startswith("#")]
        own = any("csrc/" in frame for frame in frames[:4])
        ours += [block] if own else []
        others += not own
    return ours, others


def write_report(minutes: float, totals: dict[tuple[str, str], Total], extension: str) -> Path:
    compiler = subprocess.check_output(["gcc", "--version"], text=True).splitlines()[0]
    lines = [
        f"`make sanitize MINUTES={minutes:g}` on {platform.machine()}, {os.cpu_count()} cores, {compiler}, Python "
        f"{platform.python_version()}. AddressSanitizer comes with UndefinedBehaviorSanitizer and LeakSanitizer.",
        "",
        "| sanitizer | room and program | rounds | events or calls | threads started | findings |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (sanitizer, name), total in totals.items():
        row = f"{total.rounds:,} | {total.events:,} | {total.threads:,} | {total.findings}"
        lines.append(f"| {sanitizer} | {name} | {row} |")
    lines += ["", f"The extension in a live interpreter, under AddressSanitizer: {extension}"]
    return results.write("sanitize", "Sanitizers", lines)


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5
    missing = [name for name in SANITIZERS if not works(name)]
    if missing or shutil.which("gcc") is None:
        print("gcc with its sanitizers' libraries is needed: apt-get install gcc libasan8 libtsan2", file=sys.stderr)
        return 2
    totals: dict[tuple[str, str], Total] = {}
    with tempfile.TemporaryDirectory() as name:
        everything = []
        for sanitizer in SANITIZERS:
            folder = Path(name, sanitizer)
            folder.mkdir()
            programs = Programs(sanitizer, folder)
            programs.build()
            everything.append(programs)
        end = time.monotonic() + minutes * 60
        seed = int(time.time())
        while True:
            for programs in everything:
                for case in CASES:
                    total = totals.setdefault((programs.sanitizer, f"{case.room}: {case.name}"), Total())
                    try:
                        numbers = programs.run(case, long=True, seed=seed)
                    except (Finding, subprocess.TimeoutExpired, AssertionError) as finding:
                        print(finding, file=sys.stderr)
                        total.findings += 1
                        continue
                    events, threads = events_and_threads(case, case.long, numbers)
                    total.rounds += 1
                    total.events += events
                    total.threads += threads
                    print(programs.sanitizer, case.name, numbers, flush=True)
            seed += 1
            if time.monotonic() > end:
                break
        line, found = extension_under_asan(Path(name))
    findings = found + sum(total.findings for total in totals.values())
    print(f"{findings} findings; {write_report(minutes, totals, line)}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
