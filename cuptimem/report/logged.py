"""What the program's own logs call the steps of training: notes that cuptimem/integrations makes in the trace."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuptimem.report.model import Report

STEPS = "logged.steps"  # the numbers of the first and the last step that ended, "1-40", without a gap
PHASE = "logged.phase"  # of a recording that is none of a training: evaluate, predict, test
_DIGITS = 18  # of a number; a trace may say anything


def numbers(report: "Report") -> dict[int, int]:
    """The program's number of each step of training, by its index; {} where the two have not counted alike."""
    first, last = (
        int(word) if word.isascii() and word.isdecimal() and len(word) <= _DIGITS else -1
        for word in report.environment.get(STEPS, "").partition("-")[::2]
    )
    ended = {step.index: not step.incomplete for step in report.steps if step.loop.startswith("training")}
    if first < 0 or last - first + 1 != sum(ended.values()):
        return {}
    return {index: first + number for number, index in enumerate(ended)}
