"""Recording changes nothing that can be seen of a program: the part of the table that needs no tools and little time.

All of it, on every Python that is here: `make fidelity`.
"""

import pytest

from evidence.fidelity import needs, table
from evidence.fidelity.judge import judge

FIXED = [case for cases in table.KINDS.values() for case in cases if case.fixed]
# What their tracebacks show is in tests/record/api/test_hidden.py as well.
EXTENDED = ("module with a wrong argument", "optimizer without parameters")


def marks(case: table.Case) -> list[pytest.MarkDecorator]:
    return [pytest.mark.torch] * ("torch" in case.needs) + [pytest.mark.extended] * (case.name in EXTENDED)


@pytest.mark.parametrize("name", [pytest.param(case.name, marks=marks(case)) for case in FIXED])
def test_recording_changes_nothing(name: str, python: str) -> None:
    case = table.CASES[name]
    if why := [reason for need in case.needs if (reason := needs.missing(python, need))]:
        pytest.skip("; ".join(why))
    verdict = judge(case, python)
    assert verdict.word == "same", "\n".join(verdict.lines)
