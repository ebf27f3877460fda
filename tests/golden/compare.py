"""One trace's answers beside those that are kept."""

from dataclasses import dataclass
from functools import cache

from tests.golden import answers, renames


@dataclass(frozen=True)
class Compared:
    """answers and values: how many were compared. differences: by question, only where there are any."""

    answers: int
    values: int
    differences: dict[str, list[str]]


@cache
def trace(name: str) -> Compared:
    """Compares every answer to this trace, those that are kept in the words of the table of renames."""
    old, new = answers.expected(name), answers.of_trace(name)
    table = renames.read()
    found: dict[str, list[str]] = {}
    for question in [*old, *(question for question in new if question not in old)]:
        if question not in old or question not in new:
            found[question] = ["is asked now, and was not" if question in new else "was asked, and is not now"]
        elif lines := list(renames.differences(table.translate(old[question], question), new[question])):
            found[question] = lines
    return Compared(len(old), sum(map(renames.values, old.values())), found)
