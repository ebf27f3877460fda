"""Coverage-guided fuzzing of everything that reads a trace, and the same harness without libFuzzer.

`python -m tests.tools.fuzz.fuzz [SECONDS]` (make fuzz) needs clang. It fuzzes from the seeds, the kept corpus and what
earlier runs found (build/fuzz/), keeps the smallest inputs that reach everything reached so far in
tests/tools/fuzz/corpus/, lets memory run out in each of them, and writes what it counted to docs/fuzz/. What breaks a
promise is left in build/fuzz/findings/: fix it, and keep the input in the corpus as regression-WHAT."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.build import SANITIZED, SANITIZERS, build, rooms

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
BUILD = ROOT / "build/fuzz"

CORPUS_BYTES = 280 << 10  # kept in git
SMALL = 3000  # bytes; inputs above come last
LONGEST = 16384
OOM_MOST = 100  # failing allocations tried per input
LIMITS = ["-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=128", f"-max_len={LONGEST}"]
WRAPPED = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc", "strdup", "free")]


def sources() -> list[Path]:
    """All that reads, and what it is linked with."""
    found = rooms("base", "trace", "heap", "analysis", "capture", "compact", "recover")
    return [*found, *(ROOT / f"tests/unit/capture/{name}.c" for name in ("frames_double", "connect"))]


def build_driver(*flags: str) -> Path:
    """The harness with driver.c; gcc is enough."""
    own = [HERE / f"{name}.c" for name in ("input", "harness", "stream", "mutator", "driver")]
    return build("driver", [*sources(), *own], *SANITIZED, *flags, link=[*WRAPPED, "-lpthread"])


def build_fuzzer(target: Path) -> Path:
    own = [HERE / f"{name}.c" for name in ("input", "harness", "stream", "mutator")]
    words = [*SANITIZED, "-fsanitize=fuzzer,address,undefined", *sources(), *own, "-lpthread", "-o", target]
    subprocess.run(["clang", *map(str, words)], check=True)
    return target


def has_libfuzzer() -> bool:
    if shutil.which("clang") is None:
        return False
    with tempfile.TemporaryDirectory() as name:
        source = Path(name, "f.c")
        source.write_text("int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p == 0 && n == 1; }\n")
        words = ["clang", "-fsanitize=fuzzer,address,undefined", str(source), "-o", f"{name}/f"]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0


def libfuzzer(program: Path, *words: object, check: bool = True) -> str:
    """Runs it in a folder of its own; what it says. Its leak check is on."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        done = subprocess.run(
            ["nice", "-n", "19", str(program), *LIMITS, *map(str, words)],
            env={**os.environ, "FUZZ_FOLDER": folder},
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if check and done.returncode != 0:
        raise SystemExit(f"{words}: exit {done.returncode}\n{done.stderr[-6000:]}")
    return done.stderr


def folder_of(files: Sequence[Path], target: Path) -> Path:
    """A new folder with these files, named by what is in them."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in files:
        data = path.read_bytes()
        (target / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)
    return target


def keep_corpus(program: Path, found: Path) -> None:
    """The fewest small inputs with all that small ones reach, then the smallest of the others that add something, as
    far as there is room. Regressions stay."""
    regressions = sorted(CORPUS.glob("regression-*"))
    room = CORPUS_BYTES - sum(path.stat().st_size for path in regressions)
    every = [path for path in found.iterdir() if path.is_file()]
    small = folder_of([path for path in every if path.stat().st_size <= SMALL], BUILD / "small")
    kept = folder_of([], BUILD / "kept")
    libfuzzer(program, "-set_cover_merge=1", "-use_counters=0", kept, small)
    first = {path.name for path in kept.iterdir()}
    libfuzzer(program, "-merge=1", "-use_counters=0", kept, folder_of(every, BUILD / "every"))
    chosen = sorted(kept.iterdir(), key=lambda path: (path.name not in first, path.stat().st_size))
    for path in CORPUS.iterdir():
        if path not in regressions:
            path.unlink()
    for path in chosen:
        room -= path.stat().st_size
        if room < 0:
            break
        shutil.copy(path, CORPUS / path.name[:16])


def last(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    return found[-1] if found else "?"


def functions_reached(program: Path) -> tuple[int, int, list[str]]:
    """Of the functions that read (base, trace, heap, recover, analysis): how many the kept corpus reaches, of how many,
    and the names of the others."""
    said = libfuzzer(program, "-runs=0", "-print_coverage=1", CORPUS)
    reads = re.compile(
        r"csrc/(analysis|heap|recover|base/(bytes|hash|idmap|ranges|table)"
        r"|trace/(reader|chunks|decode|defs|line_table|lines|side_file|timeline|crc32c))"
    )
    reached: set[str] = set()
    missed: set[str] = set()
    for line in said.splitlines():
        match = re.match(r"(UN)?COVERED_FUNC: (?:hits: \d+ )?(?:edges: \d+/\d+ )?(\S+) (\S+)", line)
        if match and reads.search(match[3]):
            (missed if match[1] else reached).add(match[2])
    missed -= reached
    return len(reached), len(reached | missed), sorted(missed)


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    if not has_libfuzzer():
        print("clang with libFuzzer is needed: apt-get install clang libclang-rt-dev (or clang alone)", file=sys.stderr)
        return 2
    from tests.tools.fuzz.seeds import all_seeds

    BUILD.mkdir(parents=True, exist_ok=True)
    CORPUS.mkdir(exist_ok=True)
    findings = BUILD / "findings"
    for folder in (findings, BUILD / "corpus", BUILD / "seeds"):
        folder.mkdir(exist_ok=True)
    for name, data in all_seeds().items():
        (BUILD / "seeds" / name).write_bytes(data)
    before = set(findings.iterdir())
    program = build_fuzzer(BUILD / "fuzzer")
    said = libfuzzer(
        program,
        f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        BUILD / "corpus",
        CORPUS,
        BUILD / "seeds",
        check=False,
    )
    crashes = sorted(set(findings.iterdir()) - before)
    if crashes:
        print(said[-8000:], file=sys.stderr)
        print(f"found: {', '.join(map(str, crashes))}", file=sys.stderr)
    merged = folder_of([*(BUILD / "seeds").iterdir(), *CORPUS.iterdir(), *(BUILD / "corpus").iterdir()], BUILD / "all")
    if not crashes:
        keep_corpus(program, merged)
    driver = Path(shutil.copy(build_driver(SANITIZERS["address"]), BUILD))  # where docs/testing.md names it
    inputs = sorted(CORPUS.iterdir())
    with tempfile.TemporaryDirectory() as folder:
        out_of_memory = subprocess.run(
            ["nice", "-n", "19", str(driver), "oom", str(OOM_MOST), *map(str, inputs)],
            env={**os.environ, "FUZZ_FOLDER": folder},
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if out_of_memory.returncode != 0:
            shutil.copy(Path(folder, "current"), findings / "oom")
            print(out_of_memory.stderr[-6000:], file=sys.stderr)
    reached, functions, missed = functions_reached(program)
    today = datetime.date.today().isoformat()
    clang = subprocess.check_output(["clang", "--version"], text=True).splitlines()[0]
    size = sum(path.stat().st_size for path in inputs)
    ended = "nothing" if out_of_memory.returncode == 0 else "a finding"
    lines = [
        f"# Fuzzing the reader, {today}",
        "",
        f"`make fuzz SECONDS={seconds}`: one process at the lowest priority, {clang}; AddressSanitizer,",
        "UndefinedBehaviorSanitizer, LeakSanitizer; at most 10 s, 128 MiB in one allocation and 1 GiB for an input.",
        "",
        "| what | number |",
        "|---|---:|",
        f"| executions | {int(last(r'number_of_executed_units: *([0-9]+)', said) or 0):,} |",
        f"| executions a second | {last(r'average_exec_per_sec: *([0-9]+)', said)} |",
        f"| coverage: edges (of all that is linked, the recording side included) | {last(r'cov: ([0-9]+)', said)} of "
        f"{last(r'INFO: Loaded 1 PC tables .([0-9]+) PCs', said)} |",
        f"| coverage: functions of the reader and the analysis, by the kept corpus | {reached} of {functions} |",
        f"| features | {last(r'ft: ([0-9]+)', said)} |",
        f"| inputs found so far | {len(list((BUILD / 'corpus').iterdir())):,} |",
        f"| inputs kept, bytes | {len(inputs)}, {size:,} |",
        f"| slowest input, whole seconds | {last(r'slowest_unit_time_sec: *([0-9]+)', said)} |",
        f"| peak memory of the process, MiB | {last(r'peak_rss_mb: *([0-9]+)', said)} |",
        f"| crashes, leaks, timeouts, excessive allocations | {len(crashes)} |",
        f"| failing allocations injected, and what came of it | {out_of_memory.stdout.split(' ')[0] or '?'}: {ended} |",
        "",
        f"Functions not reached: {', '.join(missed) or 'none'}.",
    ]
    target = ROOT / "docs/fuzz" / f"{today}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if crashes or out_of_memory.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
