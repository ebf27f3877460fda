"""python -m evidence.attribution [NAME ...] [-j N] [--save] [--again]

Runs the programs of evidence/attribution/programs under `cuptimem run` and compares what cuptimem says of each with its
truth. Prints every miss, then the rate of each question. Exit 0 if every program could be judged.

--save writes results.md. --again judges the answers of the last run, which build/attribution keeps.
The truth is counted by python -m evidence.attribution.accounts, without cuptimem.
"""

import argparse
import datetime
import pickle
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence.attribution import answers, page, suite
from evidence.attribution.judge import Check, judge

KEPT = suite.ROOT / "build" / "attribution"


def judged(program: suite.Program, folder: Path, again: bool) -> list[Check] | str:
    """The answers to all questions; why there are none, where that is so."""
    kept = KEPT / program.name
    try:
        if not again:
            kept.write_bytes(pickle.dumps(answers.ask(program, folder)))
        return judge(program, pickle.loads(kept.read_bytes()))
    except (answers.Failed, subprocess.TimeoutExpired, OSError) as why:
        return str(why)


def about() -> dict[str, str]:
    git = ["git", "-C", str(suite.ROOT), "describe", "--always", "--dirty"]
    command: list[str | Path] = [suite.WITH_LIBRARIES, "-c", "import torch; print(torch.__version__)"]
    return {
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "python": platform.python_version(),
        "torch": subprocess.run(command, capture_output=True, text=True).stdout.strip(),
    }


def main() -> int:
    about_it = (__doc__ or "").split("\n\n")[1]
    parser = argparse.ArgumentParser(prog="python -m evidence.attribution", description=about_it)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these programs")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="programs at a time (%(default)s)")
    parser.add_argument("--save", action="store_true", help="write evidence/attribution/results.md")
    parser.add_argument("--again", action="store_true", help="judge the answers of the last run")
    options = parser.parse_args()
    if options.save and options.names:
        parser.error("--save is for the whole suite")
    try:
        programs = suite.programs(options.names)
    except ValueError as error:
        parser.error(str(error))
    KEPT.mkdir(parents=True, exist_ok=True)
    checks: list[Check] = []
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda p: judged(p, Path(folder), options.again), programs)
        for program, result in zip(programs, results, strict=True):
            if isinstance(result, str):
                failed[program.name] = result
                print(f"{program.name}: not judged: {result}", flush=True)
                continue
            checks += result
            wrong = [check for check in result if not check.right]
            print(f"{program.name}: {len(result) - len(wrong)} of {len(result)}", flush=True)
            for check in wrong:
                print(f"  {check.question}: {check.expected}, not {check.given}", flush=True)
    if checks:
        print("", *page.table(("question", "right", "of", "rate"), page.rates(checks)), sep="\n")
    if options.save:
        (suite.FOLDER / "results.md").write_text(page.page(programs, checks, failed, about()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
