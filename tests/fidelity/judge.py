"""Judges one case on one Python: bare and recorded, and whether a difference is there again."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fidelity import needs, runner
from tests.fidelity.case import Case


@dataclass(frozen=True)
class Verdict:
    """`word` is "same", "different", "left out", or "broken" where bare Python does not do what the case says."""

    word: str
    lines: tuple[str, ...] = ()


def judge(case: Case, python: str, recorded: bool = True) -> Verdict:
    """Runs the case in a folder of its own, which is removed. Not recorded: bare twice, which has to be equal."""
    why = [reason for need in case.needs if (reason := needs.missing(python, need))]
    if why:
        return Verdict("left out", tuple(why))
    with tempfile.TemporaryDirectory(prefix="fidelity-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        folder = Path(name).resolve() / "case"
        try:
            bare = runner.run(case, python, folder, recorded=False)
            if faults := runner.faults(case, bare):
                return Verdict("broken", tuple(faults))
            other = runner.run(case, python, folder, recorded)
        finally:
            runner.remove_rings(folder)
    found = runner.differences(case if recorded else dataclasses.replace(case, traces=0), bare, other)
    return Verdict("different", tuple(found)) if found else Verdict("same")
