"""Programs with libFuzzer, built with clang, and what they say."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import results
from tests.build import Failed, build, generated

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build/fuzz"  # what is not kept in git
FINDINGS = BUILD / "findings"
CPU_SECONDS = 10  # of an input of a trace
FLAG = "-fsanitize=fuzzer,address,undefined"
NEEDED = "clang with libFuzzer is needed: apt-get install clang libclang-rt-dev (or clang alone)"
_PROBE = "int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p == 0 && n == 1; }\n"


def works() -> bool:
    """Whether such a program can be built here."""
    try:
        build("probe", [generated("probe.c", _PROBE)], FLAG, compiler="clang")
    except (Failed, FileNotFoundError):
        return False
    return True


def build_fuzzer(name: str, sources: Iterable[Path], *flags: str) -> Path:
    return build(name, sources, *flags, FLAG, link=["-lpthread"], compiler="clang")


def shared_memory() -> str | None:
    """A folder for files that are written often."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run(program: Path, *words: object, check: bool = True) -> str:
    """What it says. It runs at the lowest priority, in a folder of its own, and its leak check is on."""
    with tempfile.TemporaryDirectory(dir=shared_memory()) as folder:
        done = subprocess.run(
            ["nice", "-n", "19", str(program), *map(str, words)],
            env={**os.environ, "FUZZ_FOLDER": folder, "FUZZ_CPU_SECONDS": str(CPU_SECONDS)},
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if check and done.returncode != 0:
        raise SystemExit(f"{words}: exit {done.returncode}\n{done.stderr[-6000:]}")
    return done.stderr


@dataclass(frozen=True)
class Fuzzed:
    """What a long run said, and the inputs that broke a promise."""

    said: str
    findings: Sequence[Path]

    def rows(self) -> dict[str, object]:
        """Its numbers, by what they count."""
        return {
            "executions": int(last(r"number_of_executed_units: *([0-9]+)", self.said) or 0),
            "executions a second": last(r"average_exec_per_sec: *([0-9]+)", self.said),
            "coverage: edges (of all that is linked)": f"{last(r'cov: ([0-9]+)', self.said)} of "
            f"{last(r'INFO: Loaded 1 PC tables .([0-9]+) PCs', self.said)}",
            "features": last(r"ft: ([0-9]+)", self.said),
            "slowest input, whole seconds": last(r"slowest_unit_time_sec: *([0-9]+)", self.said),
            "peak memory of the process, MiB": last(r"peak_rss_mb: *([0-9]+)", self.said),
            "crashes, leaks, timeouts, excessive allocations": len(self.findings),
        }


def fuzz(program: Path, seconds: int, *words: object) -> Fuzzed:
    """Fuzzes for so long. What it finds is shown, and lies in FINDINGS."""
    FINDINGS.mkdir(parents=True, exist_ok=True)
    before = set(FINDINGS.iterdir())
    said = run(
        program,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={FINDINGS}/",
        "-print_final_stats=1",
        *words,
        check=False,
    )
    found = sorted(set(FINDINGS.iterdir()) - before)
    if found or "Done " not in said:  # a program that leaves by itself leaves no input
        print(said[-8000:], file=sys.stderr)
        print(f"found: {', '.join(map(str, found)) or 'it ended by itself'}", file=sys.stderr)
    return Fuzzed(said, found if found or "Done " in said else [Path("it ended by itself")])


def last(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    return found[-1] if found else ""


def compiler() -> str:
    return subprocess.check_output(["clang", "--version"], text=True).splitlines()[0]


def name_of(data: bytes) -> str:
    """The name of an input, by what is in it."""
    return hashlib.sha1(data).hexdigest()[:16]


def folder_of(inputs: Iterable[bytes], target: Path) -> Path:
    """A new folder with these inputs."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for data in inputs:
        (target / name_of(data)).write_bytes(data)
    return target


def long_run(name: str, title: str, seeds: Iterable[bytes], fuzzer: Callable[[], Path], limits: Sequence[str]) -> int:
    """`make fuzz-NAMEs SECONDS=...`: begins with the seeds and with what earlier runs found, build/fuzz/NAMEs, and
    writes what it counted to docs/fuzz. Returns the exit code."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    if not works():
        print(NEEDED, file=sys.stderr)
        return 2
    found = BUILD / f"{name}s"
    found.mkdir(parents=True, exist_ok=True)
    fuzzed = fuzz(fuzzer(), seconds, *limits, found, folder_of(seeds, BUILD / f"{name}-seeds"))
    patience = last(r"-timeout=([0-9]+)", " ".join(limits))
    results.write(
        "fuzz",
        title,
        [
            f"`make fuzz-{name}s SECONDS={seconds}`: one process at the lowest priority, {compiler()};",
            f"AddressSanitizer, UndefinedBehaviorSanitizer, LeakSanitizer; at most {patience} s for an input.",
            "",
            *results.table(fuzzed.rows() | {"inputs found so far": len(list(found.iterdir()))}),
        ],
        name=f"{name}s",
    )
    return 1 if fuzzed.findings else 0
