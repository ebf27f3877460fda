"""python -m evidence.advice.truth [NAME ...] [--print KEY]

Runs each program of evidence/advice/programs, unchanged and with every change, on the simulated device without
cuptimem, and writes NAME.json: the peaks of PyTorch's own allocator. Says where an author's word and the allocator
disagree.
--print KEY shows the program with that change instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.advice import suite
from tests.pythons import WITH_LIBRARIES
from tests.results import json_text

TIMEOUT = 600  # of all changes of a program


def count(program: suite.Program, folder: Path) -> dict[str, Any]:
    """Raises RuntimeError, with what failed, if the unchanged program or a change does not run."""
    texts = {change.key: (program.changed(change), change.environment) for change in program.changes}
    answers = measured(program, {"": (program.path.read_text(), {}), **texts}, folder)
    return {"before": answers.pop(""), "changes": answers}


def measured(
    program: suite.Program, texts: Mapping[str, tuple[str, Mapping[str, str]]], folder: Path
) -> dict[str, dict[str, Any]]:
    """Peaks of these texts of a program, each with its environment variables. Raises RuntimeError."""
    requests = []
    for number, (key, (text, variables)) in enumerate(texts.items()):
        path = folder / str(number) / program.path.name
        path.parent.mkdir()
        path.write_text(text)
        row = {"key": key, "path": str(path), "arguments": list(program.arguments), "environment": dict(variables)}
        requests.append(row)
    environment = suite.environment() | {"PYTHONPATH": str(suite.STAND_INS)}
    done = subprocess.run(
        [WITH_LIBRARIES, suite.FOLDER / "measure.py", *program.libraries],
        input=json.dumps(requests),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    answers = {(answer := json.loads(line)).pop("key"): answer for line in done.stdout.splitlines()}
    failed = [f"{key or 'unchanged'}: {answer['error']}" for key, answer in answers.items() if "error" in answer][:2]
    if done.returncode or failed or len(answers) < len(requests):
        raise RuntimeError(
            "\n".join([f"{program.name}: {len(answers)} of {len(requests)} ran", *failed, done.stderr[-3000:]])
        )
    return answers


def table(program: suite.Program) -> list[str]:
    """What each change saves, marked where the author said otherwise."""
    before = program.counted["before"]
    mib = 1024 * 1024
    lines = [f"{program.name}: {before['allocated'] / mib:,.0f} MiB, reserved {before['reserved'] / mib:,.0f}"]
    for change in program.changes:
        share = program.saved(change) / before["reserved" if change.reserved else "allocated"]
        mark = "" if program.worth(change) == change.saves else "   !! its author said otherwise"
        lines.append(f"    {change.key:<28}{share:8.1%} {program.saved(change) / mib:10,.1f} MiB{mark}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence.advice.truth", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--print", metavar="KEY", dest="key")
    options = parser.parse_args()
    try:
        programs = suite.programs(options.names)
    except ValueError as error:
        parser.error(str(error))
    if options.key:
        for program in programs:
            for change in program.changes:
                if change.key == options.key:
                    print(program.changed(change))
        return 0
    wrong = 0
    for program in programs:
        with tempfile.TemporaryDirectory() as folder:
            try:
                counted = count(program, Path(folder))
            except RuntimeError as error:
                print(error, flush=True)
                wrong += 1
                continue
        (suite.PROGRAMS / f"{program.name}.json").write_text(json_text(counted))
        lines = table(dataclasses.replace(program, counted=counted))
        wrong += sum("!!" in line for line in lines)
        print(*lines, sep="\n", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
