"""Contributors as stacks of names, outermost first: what speedscope and collapsed stacks have in common."""

from functools import lru_cache

from cuptimem.output.exports.events import text
from cuptimem.report.model import Contributor
from cuptimem.report.stacks import Frame


@lru_cache(1024)
def label(frame: Frame) -> str:
    """function (file:line)"""
    return "(deeper frames)" if frame.truncated else text(f"{frame.function} ({frame.place})")


def operator_label(contributor: Contributor) -> str:
    """The autograd node that ran, or the operator."""
    return text(contributor.operator) + (" (backward)" if contributor.phase == "backward" else "")


def labels(contributor: Contributor) -> tuple[str, ...]:
    """Outermost first; the autograd node that ran, or the operator, is the innermost."""
    names = [label(frame) for frame in reversed(contributor.stack)] or [text(contributor.where)]
    if contributor.operator:
        names.append(operator_label(contributor))
    return tuple(names)


def root(device: str) -> str:
    return text(device)
