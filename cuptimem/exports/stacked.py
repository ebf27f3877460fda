"""Contributors as stacks of names, outermost first: what speedscope and collapsed stacks have in common."""

from cuptimem.exports.events import text
from cuptimem.report import Contributor
from cuptimem.stacks import Frame


def label(frame: Frame) -> str:
    """function (file:line)"""
    return "(deeper frames)" if frame.truncated else text(f"{frame.function} ({frame.place})")


def labels(contributor: Contributor) -> tuple[str, ...]:
    """Outermost first; the autograd node that ran is the innermost."""
    names = [label(frame) for frame in reversed(contributor.stack)] or [text(contributor.where)]
    if contributor.operator:
        names.append(f"{text(contributor.operator)} (backward)")
    return tuple(names)


def root(device: str) -> str:
    return text(device)
