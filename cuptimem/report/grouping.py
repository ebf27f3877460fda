"""Contributors summed by one property: the line, the module, the category, the operator, ..."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cuptimem.errors import Error
from cuptimem.report.model import CATEGORIES, Contributor
from cuptimem.report.stacks import Frame, Stack, function

# By what; and what --help says of it.
GROUPINGS: Mapping[str, str] = {
    "line": "your line of code",
    "library-line": "the library's line below it",
    "function": "your function",
    "file": "your file",
    "module": "the nn.Module by its name in the model (its class, where the name is not known); see --depth",
    "category": ", ".join(CATEGORIES),
    "operator": "in backward the autograd node, else the expression that allocates",
    "phase": "data, forward, backward, optimizer, other",
    "stack": "the whole stack",
}
ORDERS = ("bytes", "blocks", "mean", "name")
PLACES = ("line", "library-line", "function", "file")  # places of the program's code
OUTSIDE = "(outside modules)"
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # of one of equal modules: the 3 of h.3.attn

# A call that hands on what it got says nothing of what allocates: its caller does.
_FORWARDING = re.compile(r"\(\*\w+, \*\*\w+\)$")
_OPEN_CALL = re.compile(r"\(\s*\.\.\.$")  # of an expression with more lines


@dataclass(frozen=True, slots=True)
class Group:
    """Contributors with one key."""

    key: str
    bytes: int
    count: int
    contributors: tuple[Contributor, ...]
    frame: Frame | None  # of the first one


def group(
    contributors: Iterable[Contributor],
    by: str,
    order: str = "bytes",
    depth: int | None = None,
) -> tuple[Group, ...]:
    """Sums by one of GROUPINGS, sorted by one of ORDERS; behind places what has none. Raises Error for another name.

    depth: of modules, the first so many parts of their names.
    """
    if by not in GROUPINGS or order not in ORDERS:
        raise Error(f"cannot group by {by!r} or sort by {order!r}")
    members: dict[tuple[str, tuple[str, ...]], list[Contributor]] = {}
    frames: dict[tuple[str, tuple[str, ...]], Frame | None] = {}
    for contributor in contributors:
        frame = contributor.library_line or contributor.frame if by == "library-line" else contributor.frame
        key = _key(contributor, by, frame, depth), _files(contributor, by, frame)
        members.setdefault(key, []).append(contributor)
        frames.setdefault(key, frame)
    orders: dict[str, Callable[[Group], tuple[Any, ...]]] = {
        "bytes": lambda one: (-one.bytes, one.key),
        "blocks": lambda one: (-one.count, one.key),
        "mean": lambda one: (-one.bytes // max(1, one.count), one.key),
        "name": lambda one: (one.key,),
    }
    groups = (
        Group(key[0], sum(c.bytes for c in some), sum(c.count for c in some), tuple(some), frames[key])
        for key, some in members.items()
    )
    return tuple(sorted(groups, key=lambda one: (by in PLACES and one.frame is None, orders[order](one))))


def without_number(module: str) -> str:
    """h.*.attn of h.3.attn"""
    return _NUMBER.sub("*", module)


def module(contributor: Contributor, depth: int | None = None) -> str:
    """The module's name, "encoder.layers.3"; where no walk has seen it, the called classes, outermost first."""
    if contributor.qualified is not None:
        return ".".join(contributor.qualified.split(".")[:depth])
    return " > ".join(contributor.modules[:depth]) or OUTSIDE


def operator(contributor: Contributor) -> str:
    """What allocates: in backward the node's type, else the source expression, "F.linear(input, self.weight)"."""
    if contributor.operator is not None:
        return contributor.operator
    return expression(contributor.stack) or contributor.where


def expression(stack: Stack) -> str:
    """The expression of the innermost call that does not only hand on its arguments; "" without a stack."""
    frame = next((one for one in stack if not _FORWARDING.search(one.expression)), stack[0] if stack else None)
    if frame is None:
        return ""
    return _OPEN_CALL.sub("(...)", frame.expression) or f"{frame.function} ({frame.place})"


def _files(contributor: Contributor, by: str, frame: Frame | None) -> tuple[str, ...]:
    """What keeps files apart that a key names alike: two folders may each have an inner/mod.py."""
    if by == "stack":
        return tuple(one.file for one in contributor.stack)
    return (frame.file,) if frame is not None and by in PLACES else ()


def _key(contributor: Contributor, by: str, frame: Frame | None, depth: int | None) -> str:
    if by in ("line", "library-line"):
        return frame.place if frame is not None else contributor.where
    if by == "function":
        return f"{function(frame)} ({_file(frame)})" if frame is not None else contributor.where
    if by == "file":
        return _file(frame) if frame is not None else contributor.where
    if by == "module":
        return module(contributor, depth)
    if by == "category":
        return contributor.category
    if by == "operator":
        return operator(contributor)
    if by == "phase":
        return contributor.phase
    return " < ".join(f.place for f in contributor.stack) or contributor.where


def _file(frame: Frame) -> str:
    return frame.place.rsplit(":", 1)[0]
