"""python -m evidence.advice [NAME ...] [--save] [--try] [--answers FOLDER]

Asks cuptimem about every program of evidence/advice/programs, then compares with what PyTorch's allocator said of the
programs changed by hand. What rows of release and no_grad say is made by hand, too (follow.py). --try also tries the
changes that can be injected. --save writes results/<date>.md. --answers compares what an earlier run was told, and left
in that folder. Exit 1 for a false alarm of a free change or a program that could not be asked.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence.advice import follow, judge, suite
from evidence.advice.page import Result, page, totals

RESULTS = suite.FOLDER / "results"


def compare(programs: Sequence[suite.Program], answers: Path) -> Result:
    result = Result()
    for program in programs:
        path = answers / f"{program.name}.json"
        said: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"error": "was not asked"}
        problem = said.get("error") or said["advice"].get("error")
        if problem:
            result.failed[program.name] = problem
            continue
        rows = judge.rows(program, said)
        result.findings += judge.findings(program, rows)
        result.alarms += judge.alarms(program, rows, said)
        result.peaks += judge.peaks(program, said)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.advice", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--try", action="store_true", dest="tries")
    parser.add_argument("--answers", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.save and options.names:
        parser.error("--save is for all programs")
    with contextlib.ExitStack() as stack:
        answers = options.answers or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.answers is None:
            # A process of its own, which has no truth at hand.
            command = [sys.executable, "-m", "evidence.advice.ask", answers, *options.names]
            subprocess.run([*command, *(["--try"] if options.tries else [])], cwd=suite.ROOT, check=True)
        try:
            programs = suite.programs(options.names)
        except ValueError as error:
            parser.error(str(error))
        follow.follow_all(programs, answers)
        result = compare(programs, answers)
        unseen = compare([program for program in programs if not program.seen], answers)
    head = {
        "date": datetime.date.today().isoformat(),
        "about": f"Python {platform.python_version()}, PyTorch for CUDA on a simulated H100",
        "programs": len(programs),
        "changes": sum(len(program.changes) for program in programs),
        "seen": sum(program.seen for program in programs),
    }
    text = page(result, unseen, head)
    if options.save:
        RESULTS.mkdir(exist_ok=True)
        target = RESULTS / f"{head['date']}.md"
        target.write_text(text)
        print(*(f"{key}: {value}" for key, value in totals(result).items()), sep="\n")
        print(f"wrote {target.relative_to(suite.ROOT)}")
    else:
        print(text)
    wrong = any(alarm.free and alarm.counted for alarm in result.alarms)
    return 1 if wrong or result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
