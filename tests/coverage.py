"""python -m tests.coverage [PYTEST'S ARGUMENTS]: which lines of C and Python the tests reach.

Tests run in a copy of the tree, build/coverage/tree, whose extension and C programs count their lines (gcov): the
normal extension stays. Reported are lines by room; build/coverage/report.json has each line. Where a run before
wrote one, --before FILE names the lines that only that one reached, and --floor C PYTHON fails below these percents.
What a test says under a tracer is not its verdict: failures are counted, no more.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "coverage"
SOURCES = ("csrc", "cuptimem")
SETTINGS = """[run]
source = cuptimem
parallel = true
patch = fork, _exit
data_file = {tree}/build/python/lines
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""
Lines = dict[str, dict[int, bool]]  # of each file the lines that have code: whether they ran


def copied(target: Path) -> Path:
    """A copy of the files that git knows, with the environments of this tree; what has not changed keeps its time."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    for name in names:
        old, new = target / name, ROOT / name
        if not old.is_file() or old.read_bytes() != new.read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(new, old)
    for old in [path for place in ("tests", *SOURCES) for path in (target / place).rglob("*.[cph]*")]:
        if old.suffix in (".c", ".h", ".py") and not (ROOT / old.relative_to(target)).exists():
            old.unlink()
    for environment in ROOT.glob(".venv*"):
        link = target / environment.name
        if not link.is_symlink():
            link.symlink_to(environment)
    return target


def build_extension(tree: Path, **environment: str) -> bool:
    """Whether the copy's extension could be built, with these variables, and with ccache where it is."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    if shutil.which("ccache"):
        environment |= {"CC": "ccache gcc", "CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(tree)}
        environment["CCACHE_SLOPPINESS"] = "time_macros"
    done = subprocess.run(command, cwd=tree, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    return done.returncode == 0


def of_c(tree: Path) -> Lines:
    """Lines of csrc, of the extension and of all programs of tests."""
    found: Lines = defaultdict(dict)
    for counts in [*tree.glob("build/temp.*/**/*.gcda"), *tree.glob("build/tests/**/*.gcda")]:
        command = ["gcov", "--json-format", "--stdout", str(counts)]
        shown = subprocess.run(command, cwd=tree, capture_output=True, text=True).stdout
        for report in map(json.loads, filter(None, shown.splitlines())):
            for file in report["files"]:
                path = Path(report["current_working_directory"], file["file"]).resolve()
                if path.is_relative_to(tree / "csrc"):
                    lines = found[str(path.relative_to(tree))]
                    for line in file["lines"]:
                        number = line["line_number"]
                        lines[number] = lines.get(number, False) or line["count"] > 0
    return found


def of_python(tree: Path) -> Lines:
    """Lines of cuptimem, of pytest's process and those that it starts with the tests' interpreter."""
    run = [sys.executable, "-m", "coverage"]
    rc, out = f"--rcfile={tree}/build/python/settings", tree / "build/python/lines.json"
    subprocess.run([*run, "combine", "-q", rc], cwd=tree, check=True)
    subprocess.run([*run, "json", "-q", "-i", rc, "-o", str(out)], cwd=tree, check=True)
    files = json.loads(out.read_text())["files"]
    return {
        name: {line: key == "executed_lines" for key in ("missing_lines", "executed_lines") for line in file[key]}
        for name, file in files.items()
    }


def show(lines: Lines) -> dict[str, float]:
    """Prints a row a room; the percents of C and Python."""
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, file in lines.items():
        parts = Path(name).parts
        for key in {"/".join(parts[:2]) if len(parts) > 2 else parts[0], f"all of {parts[0]}"}:
            rooms[key][0] += sum(file.values())
            rooms[key][1] += len(file)
    for name, (reached, most) in sorted(rooms.items()):
        print(f"{name:28} {reached:6} of {most:6} lines  {100 * reached / most:5.1f} %")
    return {place: 100 * rooms[f"all of {place}"][0] / rooms[f"all of {place}"][1] for place in SOURCES}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--before", type=Path, help="a report.json of a run before")
    parser.add_argument("--floor", type=float, nargs=2, metavar=("C", "PYTHON"), help="least percents")
    parser.add_argument("--report", type=Path, default=BUILT / "report.json")
    options, words = parser.parse_known_args()
    tree = copied(BUILT / "tree")
    if not build_extension(tree, CFLAGS="--coverage", LDFLAGS="--coverage"):
        return 1
    shutil.rmtree(tree / "build/python", ignore_errors=True)
    (tree / "build/python").mkdir(parents=True)
    (tree / "build/python/settings").write_text(SETTINGS.format(tree=tree))
    for counts in (tree / "build").rglob("*.gcda"):
        counts.unlink()
    environment = {**os.environ, "CUPTIMEM_TEST_FLAGS": "--coverage", "FORKS_END_WHOLE": "1"}
    environment |= {"COVERAGE_PROCESS_START": str(tree / "build/python/settings"), "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=no", *(words or ["tests", "evidence"])]
    subprocess.run(command, cwd=tree, env=environment)
    lines = {**of_c(tree), **of_python(tree)}
    options.report.write_text(json.dumps({name: [n for n, ran in file.items() if ran] for name, file in lines.items()}))
    percents = show(lines)
    if options.before:
        for name, before in json.loads(options.before.read_text()).items():
            if lost := [n for n in before if not lines.get(name, {}).get(n)]:
                print(f"no longer reached: {name}: {lost}")
    return int(any(is_ < least for is_, least in zip(percents.values(), options.floor or (0, 0), strict=True)))


if __name__ == "__main__":
    sys.exit(main())
