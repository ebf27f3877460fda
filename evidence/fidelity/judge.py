"""Judges one case on one Python: bare and recorded, and whether a difference is there again."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

from evidence.fidelity import needs, runner
from evidence.fidelity.case import Case


@dataclass(frozen=True)
class Verdict:
    """`word` is "same", "different", "known" where the case gives a reason for that, "left out", or "broken" where bare
    Python does not do what the case says. A case with a reason is "different" if it is the same: the reason has gone.
    """

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
    if case.known and recorded:
        return Verdict("known", (case.known,)) if found else Verdict("different", ("the same, in spite of its reason",))
    return Verdict("different", tuple(found)) if found else Verdict("same")
