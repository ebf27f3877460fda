"""What stands under a line of the user's: what a library did below it, as parts of its bytes."""

from collections.abc import Iterable, Sequence

from cuptimem.output.text import held_views
from cuptimem.output.text.words import count, more, place, share, size
from cuptimem.report.model import Contents
from cuptimem.report.parts import Part, Row, drives_loop, parts_of
from cuptimem.report.stacks import Frame, bare_name

_CALLS = 3  # named in one line
_MODULES = 5  # below each other
_LEAST = 0.05  # of all bytes, of a line that is worth a second one
_NEARLY_ALL = 0.9  # of a line's bytes: one call that has so many says what the line itself says
_SMALL = 0.01  # of a line's bytes: parts below that are counted only


def under(line: Row, contents: Contents) -> tuple[str, ...]:
    """Lines of text to stand under a row: its parts, and at the end who holds it."""
    held = held_views.under(line.frame, contents.held, line.bytes, contents.bytes)
    return (*parts_under(line, contents), *held)


def parts_under(line: Row, contents: Contents) -> tuple[str, ...]:
    """None where they would say nothing more."""
    if line.bytes < _LEAST * contents.bytes:
        return ()
    if drives_loop(line, contents):
        return _modules(line, parts_of(line, by_module=True))
    said = in_a_line(line, contents)
    return (said,) if said else ()


def in_a_line(line: Row, contents: Contents, most: int = _CALLS) -> str:
    """of which 20.1 MiB conv2d, 19.0 MiB group_norm, 1.2 MiB in 2 more; "" where that says nothing more than the line.
    What it says sums to the line's bytes, as a reader adds them up."""
    by_module = drives_loop(line, contents)
    parts = parts_of(line, by_module)
    if not parts or (not by_module and _says_the_same(parts[0], line)):
        return ""
    shown, rest = _divided(line, parts, most)
    named = [f"{size(part.bytes)} {part.name}" for part in shown]
    if rest and size(line.bytes - _sum(rest)) != size(line.bytes):
        named.append(f"{size(_sum(rest))} {_together(rest, 'in {} more')}")
    return f"of which {', '.join(named)}" if named else ""


def _divided(line: Row, parts: Sequence[Part], most: int) -> tuple[Sequence[Part], Sequence[Part]]:
    """Those that are shown, and the others."""
    shown = min(most, sum(part.bytes >= _SMALL * line.bytes for part in parts))
    return parts[:shown], parts[shown:]


def _together(rest: Sequence[Part], several: str) -> str:
    """How the others are called: a single one by its name."""
    return rest[0].name if len(rest) == 1 else several.format(count(len(rest)))


def _sum(parts: Iterable[Part]) -> int:
    return sum(part.bytes for part in parts)


def _says_the_same(part: Part, line: Row) -> bool:
    """One call of PyTorch's that made nearly all of the line's bytes, or one of the name that the line calls
    once (`opt.step()`, of a package's wrapper); another function of a package says more."""
    if part.bytes < _NEARLY_ALL * line.bytes:
        return False
    if part.frame is None or part.frame.is_plumbing:
        return True
    return line.frame is not None and line.frame.source.count(f".{bare_name(part.frame)}(") == 1


def _modules(line: Row, parts: Sequence[Part]) -> tuple[str, ...]:
    """A line each, with the library's line that has most of it; they sum to the line's bytes."""
    shown, rest = _divided(line, parts, _MODULES)
    rows = [(part.bytes, f"{part.name}{_at(part)}") for part in shown]
    if rest:
        rows.append((_sum(rest), _together(rest, "({} more)")))
    words = ("of which", *["        "] * len(rows))
    return tuple(
        f"{word} {size(bytes_):>9} {share(bytes_, line.bytes):>5}  {name}"
        for word, (bytes_, name) in zip(words, rows, strict=False)
    )


def _at(part: Part) -> str:
    if part.frame is None or part.name == part.frame.place:
        return ""
    return f"  {place(part.frame)}{more(part.more)}"


def lines_below(frames: Iterable[tuple[Frame, int]]) -> str:
    """of which 12 at torch/_tensor.py:40: counts by the library's line; "" where there is none."""
    sums: dict[str, int] = {}
    for frame, number in frames:
        sums[place(frame)] = sums.get(place(frame), 0) + number
    largest = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{count(number)} at {where}" for where, number in largest[:_CALLS])
    return f"of which {named}{more(len(largest) - _CALLS)}" if named else ""
