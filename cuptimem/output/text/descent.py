"""Where one line of the user's holds most of the bytes, as trainer.train() does, the library's line below says more."""

from collections.abc import Iterable, Sequence

from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import code, function, place, share
from cuptimem.report.model import Contents, HostRead, Line, lines_of
from cuptimem.report.stacks import Frame, library_line

# Of a line's bytes: one line of PyTorch's that has so many of them explains less than the user's line.
_NEARLY_ALL = 0.9


def line_to_leave(contents: Contents) -> Frame | None:
    """The user's line that holds more than half of the bytes, if the library's lines below it explain more."""
    return _line_to_leave([(c.bytes, c.frame, c.library_line) for c in contents.contributors], contents.bytes)


_Part = tuple[int, Frame | None, Frame | None]  # how much, the user's line, the library's below it


def _line_to_leave(parts: Iterable[_Part], whole: int) -> Frame | None:
    held: dict[tuple[str, int], list[_Part]] = {}
    for part in parts:
        frame = part[1]
        if frame is not None and not frame.is_library:
            held.setdefault((frame.file, frame.line), []).append(part)
    for group in held.values():
        if 2 * sum(part[0] for part in group) > whole:
            return group[0][1] if _explain_more(group) else None
    return None


def _explain_more(parts: Iterable[_Part]) -> bool:
    below: dict[tuple[str, int], int] = {}
    packages = total = 0
    for much, _, line in parts:
        total += much
        if line is not None:
            below[line.file, line.line] = below.get((line.file, line.line), 0) + much
            packages += 0 if line.is_plumbing else much
    if 2 * sum(below.values()) <= total:
        return False  # most of it is made by the line itself
    return 2 * packages > total or max(below.values()) < _NEARLY_ALL * total


def shown_lines(contents: Contents) -> tuple[tuple[Line, ...], list[Block]]:
    """The lines to show, with a note where they are not all the user's."""
    left = line_to_leave(contents)
    if left is None:
        return contents.lines, []
    return lines_of(contents.contributors, below=(left,)), [note(contents, left)]


def shown_reads(reads: Sequence[HostRead]) -> tuple[list[tuple[Frame | None, HostRead]], list[Block]]:
    """The same for host reads, by their number: each with the line to show it by."""
    whole = sum(read.count for read in reads)
    left = _line_to_leave([(read.count, read.frame, library_line(read.stack)) for read in reads], whole)
    if left is None:
        return [(read.frame, read) for read in reads], []
    at = [read.frame is not None and read.frame.same_line(left) for read in reads]
    shown = [
        (library_line(read.stack) or read.frame if there else read.frame, read)
        for read, there in zip(reads, at, strict=True)
    ]
    return shown, [_said(sum(read.count for read, there in zip(reads, at, strict=True) if there), whole, left)]


def note(contents: Contents, left: Frame) -> Text:
    held = sum(c.bytes for c in contents.contributors if c.frame is not None and c.frame.same_line(left))
    return _said(held, contents.bytes, left)


def _said(held: int, whole: int, left: Frame) -> Text:
    what = code(left) or function(left)
    return Text(f"  {share(held, whole)} stands at {place(left)} {what}: shown by the library's line below it")
