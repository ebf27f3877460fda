"""Where one line of the user's holds most of the bytes, as trainer.train() does, the library's line below says more."""

from collections.abc import Iterable

from cuptimem.report import Contents, Contributor, Line, lines_of
from cuptimem.reporters.blocks import Block, Text
from cuptimem.reporters.words import code, function, place, share
from cuptimem.stacks import Frame

# Of a line's bytes: one line of PyTorch's that has so many of them explains less than the user's line.
_NEARLY_ALL = 0.9


def line_to_leave(contents: Contents) -> Frame | None:
    """The user's line that holds more than half of the bytes, if the library's lines below it explain more."""
    held: dict[tuple[str, int], list[Contributor]] = {}
    for contributor in contents.contributors:
        frame = contributor.frame
        if frame is not None and not frame.is_library:
            held.setdefault((frame.file, frame.line), []).append(contributor)
    for group in held.values():
        if 2 * sum(c.bytes for c in group) > contents.bytes:
            return group[0].frame if _explain_more(group) else None
    return None


def _explain_more(contributors: Iterable[Contributor]) -> bool:
    below: dict[tuple[str, int], int] = {}
    packages = total = 0
    for contributor in contributors:
        line = contributor.library_line
        total += contributor.bytes
        if line is not None:
            below[line.file, line.line] = below.get((line.file, line.line), 0) + contributor.bytes
            packages += 0 if line.is_plumbing else contributor.bytes
    if 2 * sum(below.values()) <= total:
        return False  # most of it is made by the line itself
    return 2 * packages > total or max(below.values()) < _NEARLY_ALL * total


def shown_lines(contents: Contents) -> tuple[tuple[Line, ...], list[Block]]:
    """The lines to show, with a note where they are not all the user's."""
    left = line_to_leave(contents)
    if left is None:
        return contents.lines, []
    return lines_of(contents.contributors, below=(left,)), [note(contents, left)]


def note(contents: Contents, left: Frame) -> Text:
    held = sum(c.bytes for c in contents.contributors if c.frame is not None and c.frame.same_line(left))
    what = code(left) or function(left)
    return Text(f"  {share(held, contents.bytes)} stands at {place(left)} {what}: shown by the library's line below it")
