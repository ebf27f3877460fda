"""What a line of the user's is made of: by what libraries did below it, or by module where it only drives a loop."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cuptimem.report import grouping
from cuptimem.report.model import Contents, Contributor
from cuptimem.report.stacks import Frame

OWN = "the line itself"  # what it allocated with no library's line below it
_COMPILED = "compiled code"
_CALL = re.compile(
    r"(?:return\s+)?(?:torch\.ops\.\w+\.(\w+)\.\w+|(?:[\w.]*\.)?(\w+))\s*\("
)  # addmm of aten.addmm.default
_COMPILER = re.compile(r"[/\\]torch[/\\](?:_dynamo|_functorch[/\\]_aot_autograd)[/\\]")


@dataclass(frozen=True, slots=True)
class Part:
    """Some of a line's bytes. frame: the library's line that has the most of them, and how many others there are; None
    of what the line itself allocated."""

    name: str  # of a call, "conv2d", or of modules, "h.*.attn"
    bytes: int
    count: int
    frame: Frame | None
    more: int


class Row(Protocol):
    """A line of the user's with all its contributors."""

    @property
    def bytes(self) -> int: ...
    @property
    def frame(self) -> Frame | None: ...
    @property
    def contributors(self) -> tuple[Contributor, ...]: ...


def drives_loop(line: Row, contents: Contents) -> bool:
    """Whether the line only drives a library's loop, in any stack of the recording."""
    return line.frame is not None and any(line.frame.same_line(one) for one in contents.loops)


def parts_of(line: Row, by_module: bool) -> tuple[Part, ...]:
    """The largest first; they sum to the line's bytes. None where libraries did nothing below it. by_module: where it
    drives a loop."""
    if line.frame is None or line.frame.is_library:
        return ()
    name = _module if by_module else _call
    groups: dict[str, list[Contributor]] = {}
    for one in line.contributors:
        if one.library_line is not None:
            groups.setdefault(name(one, one.library_line), []).append(one)
    if not groups:
        return ()
    found = [_part(key, group) for key, group in groups.items()]
    own = [one for one in line.contributors if one.library_line is None]
    if own:
        found.append(Part(OWN, sum(one.bytes for one in own), sum(one.count for one in own), None, 0))
    return tuple(sorted(found, key=lambda part: (-part.bytes, part.name)))


def _part(name: str, group: list[Contributor]) -> Part:
    below = _sums(group)
    most = max(below, key=lambda frame: below[frame])
    return Part(name, sum(one.bytes for one in group), sum(one.count for one in group), most, len(below) - 1)


def _sums(group: Iterable[Contributor]) -> dict[Frame, int]:
    """Bytes of each of the library's lines."""
    lines: dict[tuple[str, int], Frame] = {}
    sums: dict[Frame, int] = {}
    for one in group:
        if (frame := one.library_line) is not None:
            frame = lines.setdefault((frame.file, frame.line), frame)
            sums[frame] = sums.get(frame, 0) + one.bytes
    return sums


def _module(one: Contributor, below: Frame) -> str:
    """Its module, equal ones together; outside of modules the library's line."""
    name = grouping.module(one)
    return below.place if name == grouping.OUTSIDE else grouping.without_number(name)


def _call(one: Contributor, below: Frame) -> str:
    """A package's function; below PyTorch alone what is called: conv2d for F.conv2d(...)."""
    if not below.is_plumbing:
        return below.function
    if _COMPILER.search(below.file):
        return _COMPILED  # which runs the graph that it made, forward or backward
    found = _CALL.match(grouping.expression(one.stack))
    return found[1] or found[2] if found is not None else below.function.rsplit(".", 1)[-1]
