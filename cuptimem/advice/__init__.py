"""What to change in a program, and what peak it would have: predicted from a recording, on edited lives of its blocks.

A technique is a rule (technique.py) in a file of its kind. None subtracts from the old peak: each edits the list of
blocks, whose new maximum may lie elsewhere.
"""

from cuptimem.advice.adviser import LEAST, Adviser
from cuptimem.advice.budget import fit
from cuptimem.report.advice import Advice, Estimate
from cuptimem.report.model import Report

__all__ = ["LEAST", "Adviser", "advise", "estimate", "fit"]


def advise(report: Report, device: str | None = None) -> Advice:
    """Every technique that lowers the peak of a device (None: the first one) by at least 2 %. Raises Error."""
    return Adviser(report, device).advise()


def estimate(report: Report, device: str | None = None, /, **changes: object) -> Estimate:
    """The peak of a device with all of these changes: estimate(report, checkpoint="blocks.*", sgd=True).

    The names are those of Advice.proposals; a value is a pattern, a number, or True. Raises Error.
    """
    return Adviser(report, device).estimate(**changes)
