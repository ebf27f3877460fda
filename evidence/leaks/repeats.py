"""python -m evidence.leaks.repeats [N] NAME ...

Records each program N times (20) beside two busy loops and compares what the reports say: the steps of each loop, and
every leak and suspect with its numbers. Prints a line per program; exit 0 if all its runs agree, 1 if any does not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import cuptimem
from evidence.leaks import suite
from evidence.leaks.__main__ import environment

BUSY = [sys.executable, "-c", "while True: pass"]


def said(trace: Path) -> str:
    """Everything that a machine's load must not change."""
    report = cuptimem.open(trace)
    rows = [
        (row.reason or "leak", row.where, row.count, row.bytes, f"{row.bytes_per_step:.1f}", len(row.keeps))
        for row in (*report.leaks, *report.suspects)
    ]
    return f"{report.clock.kind} {report.loops} {rows}"


def repeat(program: suite.Program, times: int, python: Path, folder: Path) -> Counter[str]:
    answers: Counter[str] = Counter()
    for _ in range(times):
        problem = suite.record(program, program.steps, python, folder).problem
        answers[problem or said(folder / f"{program.name}-{program.steps}.cmem")] += 1
    return answers


def main(arguments: list[str]) -> int:
    times = int(arguments.pop(0)) if arguments and arguments[0].isdecimal() else 20
    agree = True
    busy = [subprocess.Popen(BUSY) for _ in range(2)]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            plain = suite.interpreter(folder / "python")
            for program in suite.programs(arguments):
                answers = repeat(program, times, environment() if program.needs else plain, folder)
                agree = agree and len(answers) == 1
                print(f"{program.name}  {answers.most_common(1)[0][1]} of {times} the same", flush=True)
                for answer, number in answers.most_common() if len(answers) > 1 else ():
                    print(f"    {number}: {answer}")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
