"""Coverage-guided fuzzing of everything that reads a trace, and the same harness without libFuzzer.

`python -m tests.tools.fuzz.fuzz [SECONDS]` (make fuzz) needs clang. It fuzzes from the seeds, the kept corpus and what
earlier runs found (build/fuzz/), keeps the smallest inputs that reach everything reached so far in
tests/tools/fuzz/corpus/, lets memory run out in each of them, and writes what it counted to docs/fuzz/. What breaks a
promise is left in build/fuzz/findings/: fix it, and keep the input in the corpus as regression-WHAT."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import results
from tests.build import SANITIZED, SANITIZERS, build, rooms
from tests.tools.fuzz import libfuzzer
from tests.tools.fuzz.libfuzzer import BUILD, FINDINGS, ROOT, folder_of

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"

CORPUS_BYTES = 280 << 10  # kept in git
SMALL = 3000  # bytes; inputs above come last
LONGEST = 16384
OOM_MOST = 100  # failing allocations tried per input
# An input that hangs: its own limit is CPU_SECONDS.
LIMITS = ("-timeout=200", "-report_slow_units=200", "-rss_limit_mb=1024", "-malloc_limit_mb=128", f"-max_len={LONGEST}")
WRAPPED = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc", "strdup", "free")]


def sources(*own: str) -> list[Path]:
    """All that reads, what it is linked with, the harness, and these files beside it."""
    found = rooms("base", "trace", "heap", "analysis", "capture", "compact", "recover")
    found += [ROOT / f"tests/unit/capture/{name}.c" for name in ("frames_double", "connect")]
    return [*found, *(HERE / f"{name}.c" for name in ("input", "empty", "harness", "stream", "mutator", *own))]


def build_driver(*flags: str) -> Path:
    """The harness with driver.c; gcc is enough."""
    return build("driver", sources("blind", "driver"), *SANITIZED, *flags, link=[*WRAPPED, "-lpthread"])


def build_fuzzer() -> Path:
    return libfuzzer.build_fuzzer("fuzzer", sources(), *SANITIZED)


def write_seeds(folder: Path) -> list[Path]:
    """The files of all_seeds."""
    from tests.tools.fuzz.seeds import all_seeds

    folder.mkdir(parents=True, exist_ok=True)
    for name, data in all_seeds().items():
        (folder / name).write_bytes(data)
    return sorted(folder.iterdir())


def keep_corpus(program: Path, found: list[bytes]) -> None:
    """The fewest small inputs with all that small ones reach, then the smallest of the others that add something, as
    far as there is room. Regressions stay."""
    regressions = sorted(CORPUS.glob("regression-*"))
    room = CORPUS_BYTES - sum(path.stat().st_size for path in regressions)
    small = folder_of([data for data in found if len(data) <= SMALL], BUILD / "small")
    kept = folder_of([], BUILD / "kept")
    libfuzzer.run(program, *LIMITS, "-set_cover_merge=1", "-use_counters=0", kept, small)
    first = {path.name for path in kept.iterdir()}
    libfuzzer.run(program, *LIMITS, "-merge=1", "-use_counters=0", kept, folder_of(found, BUILD / "every"))
    chosen = sorted(kept.iterdir(), key=lambda path: (path.name not in first, path.stat().st_size))
    for path in CORPUS.iterdir():
        if path not in regressions:
            path.unlink()
    for path in chosen:
        room -= path.stat().st_size
        if room < 0:
            break
        shutil.copy(path, CORPUS / path.name[:16])


def functions_reached(program: Path) -> tuple[int, int, list[str]]:
    """Of the functions that read (base, trace, heap, recover, analysis): how many the kept corpus reaches, of how many,
    and the names of the others."""
    said = libfuzzer.run(program, *LIMITS, "-runs=0", "-print_coverage=1", CORPUS)
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
    if not libfuzzer.works():
        print(libfuzzer.NEEDED, file=sys.stderr)
        return 2
    found = BUILD / "corpus"
    for folder in (found, CORPUS):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = write_seeds(BUILD / "seeds")
    program = build_fuzzer()
    fuzzed = libfuzzer.fuzz(program, seconds, *LIMITS, found, CORPUS, BUILD / "seeds")
    if not fuzzed.findings:
        keep_corpus(program, [path.read_bytes() for path in (*seeds, *CORPUS.iterdir(), *found.iterdir())])
    driver = Path(shutil.copy(build_driver(SANITIZERS["address"]), BUILD))  # where tests/README.md names it
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
            shutil.copy(Path(folder, "current"), FINDINGS / "oom")
            print(out_of_memory.stderr[-6000:], file=sys.stderr)
    reached, functions, missed = functions_reached(program)
    ended = "nothing" if out_of_memory.returncode == 0 else "a finding"
    rows = fuzzed.rows() | {
        "functions of the reader and the analysis that the kept corpus reaches": f"{reached} of {functions}",
        "inputs found so far": len(list(found.iterdir())),
        "inputs kept, bytes": f"{len(inputs)}, {sum(path.stat().st_size for path in inputs):,}",
        "failing allocations injected, and what came of it": f"{out_of_memory.stdout.split(' ')[0] or '?'}: {ended}",
    }
    results.write(
        "fuzz",
        "Fuzzing the reader",
        [
            f"`make fuzz SECONDS={seconds}`: one process at the lowest priority, {libfuzzer.compiler()};",
            f"AddressSanitizer, UndefinedBehaviorSanitizer, LeakSanitizer; at most {libfuzzer.CPU_SECONDS} s of CPU, "
            "128 MiB in one",
            "allocation and 1 GiB for an input.",
            "",
            *results.table(rows),
            "",
            f"Functions not reached: {', '.join(missed) or 'none'}.",
        ],
    )
    return 1 if fuzzed.findings or out_of_memory.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
