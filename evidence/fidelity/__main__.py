"""python -m evidence.fidelity [NAME ...] [--python VERSION] [--jobs N] [--save] [--bare] [--list]

Runs every case of evidence/fidelity bare and under `cuptimem run`, on every Python that is here, and compares
standard output, standard error, exit code or signal, the files that are left, and whether a trace is there. NAME is a
case, a kind ("ends"), or a pattern ("fork*"). Prints a line for each case that is not the same. Exit 0 if all are, 1 if
not, 2 for wrong usage.

--bare runs both without cuptimem: what is not the same then is the case's own fault. --save writes
evidence/fidelity/results/<date>.md. The environments, one for each Python, are made below .venv-fidelity.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence.fidelity import environments, results, table
from evidence.fidelity.judge import Verdict, judge
from tests import pythons

DOCS = Path(__file__).parent / "results"


def chosen(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Kind and name of the cases that the patterns choose; all without a pattern."""
    return [
        (kind, case.name)
        for kind, cases in table.KINDS.items()
        for case in cases
        if not patterns or any(pattern == kind or fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.fidelity")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--python", action="append", choices=pythons.SUPPORTED, help="only this version")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time (all cores)")
    parser.add_argument("--save", action="store_true", help="write evidence/fidelity/results/<date>.md")
    parser.add_argument("--bare", action="store_true", help="bare both times, to find fault with a case")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    options = parser.parse_args(arguments)
    cases = chosen(options.names)
    if not cases:
        parser.error(f"no case is named so: {' '.join(options.names)}")
    if options.list:
        for kind, name in cases:
            print(f"{kind:10} {name}")
        return 0
    verdicts: dict[str, dict[str, Verdict]] = {name: {} for _, name in cases}
    here: dict[str, str] = {}
    for version in options.python or pythons.SUPPORTED:
        python = environments.prepare(version)
        if python is None:
            print(f"Python {version}: not here, left out")
            continue
        here[version] = environments.versions(python)
        with ThreadPoolExecutor(options.jobs) as pool:
            running = [pool.submit(judge, table.CASES[name], python, not options.bare) for _, name in cases]
            for (kind, name), future in zip(cases, running, strict=True):
                verdict = verdicts[name][version] = future.result()
                for line in verdict.lines:
                    print(f"{version} {verdict.word}: {kind}: {name}: {line}", flush=True)
    print("\n".join(results.summary(verdicts)))
    if options.save and not options.bare:
        DOCS.mkdir(exist_ok=True)
        today = datetime.date.today().isoformat()
        (DOCS / f"{today}.md").write_text(results.document(today, results.commit(), cases, verdicts, here))
    bad = any(verdict.word in ("different", "broken") for row in verdicts.values() for verdict in row.values())
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
