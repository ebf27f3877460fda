"""Recording changes nothing that can be seen of a program: the part of the table that needs no tools and little time.

All of it, on every Python that is here: `make fidelity`.
"""

import pytest

from evidence.fidelity import needs, table
from evidence.fidelity.judge import judge

FIXED = [case for cases in table.KINDS.values() for case in cases if case.fixed]


@pytest.mark.parametrize(
    "name", [pytest.param(case.name, marks=[pytest.mark.torch] if "torch" in case.needs else []) for case in FIXED]
)
def test_recording_changes_nothing(name: str, python: str) -> None:
    case = table.CASES[name]
    if why := [reason for need in case.needs if (reason := needs.missing(python, need))]:
        pytest.skip("; ".join(why))
    verdict = judge(case, python)
    assert verdict.word == "same", "\n".join(verdict.lines)
