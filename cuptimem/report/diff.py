"""Two recordings beside one another: which lines came, went, grew. No formats here."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from cuptimem.report.brief import Brief
from cuptimem.report.model import Contents, Line, Report, lines_of
from cuptimem.report.stacks import Frame, short_file

TABLES = ("end", "stepped")  # what both reports must be opened with
SECTIONS = ("peak", *TABLES)

Place = tuple[str, int]  # file and line


@dataclass(frozen=True, slots=True, repr=False)
class Change(Brief):
    """One line and phase in both recordings; 0 bytes where it is not in one."""

    phase: str
    before: Line | None
    after: Line | None

    def _said(self) -> str:
        return f"{self.shown.where}, {self.phase}: {self.bytes[0]} B, then {self.bytes[1]} B"

    @property
    def bytes(self) -> tuple[int, int]:
        return (self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    @property
    def count(self) -> tuple[int, int]:
        return (self.before.count if self.before else 0, self.after.count if self.after else 0)

    @property
    def shown(self) -> Line:
        """As it is afterwards; as it was where it went."""
        line = self.after or self.before
        assert line is not None
        return line


@dataclass(frozen=True, slots=True, repr=False)
class Section(Brief):
    """What two recordings of one device differ in: at their peaks, at their ends, or in what their steps allocated.

    The changes' bytes and `rest` sum to `bytes`. steps: how many there were (1 where the section is about a moment).
    """

    what: str
    bytes: tuple[int, int]
    rest: tuple[int, int]
    steps: tuple[int, int]
    changes: tuple[Change, ...]  # what changed most first

    def a_step(self, pair: tuple[int, int]) -> tuple[float, float]:
        """Bytes for each step; of a moment the bytes themselves."""
        return pair[0] / max(1, self.steps[0]), pair[1] / max(1, self.steps[1])


@dataclass(frozen=True, slots=True, repr=False)
class DeviceDiff(Brief):
    device: str
    sections: tuple[Section, ...]
    below: tuple[Frame, ...]  # the lines that are shown by the library's lines below them, as they are afterwards


def compare(before: Report, after: Report, below: tuple[Collection[Frame], Collection[Frame]]) -> list[DeviceDiff]:
    """Every device of either, those of `after` first. below: lines of the two that are left for the library's below."""
    frames = [_frames(report) for report in (before, after)]
    same = match(*frames)
    back = {old: new for new, old in same.items()}
    places = [{(frame.file, frame.line): frame for frame in some} for some in frames]
    left = (
        [*below[0], *(places[0][same[f.file, f.line]] for f in below[1] if (f.file, f.line) in same)],
        [*below[1], *(places[1][back[f.file, f.line]] for f in below[0] if (f.file, f.line) in back)],
    )
    names = dict.fromkeys([peak.device for report in (after, before) for peak in report.peaks])
    return [
        DeviceDiff(
            name,
            tuple(_section(what, name, before, after, left, same) for what in SECTIONS),
            tuple({(f.file, f.line): f for f in left[1]}.values()),
        )
        for name in names
    ]


def _contents(report: Report, what: str, device: str) -> Contents | None:
    there = any(one.name == device for one in report.devices)
    return report.contents(what, device) if there else None


def _section(
    what: str,
    device: str,
    before: Report,
    after: Report,
    below: tuple[Collection[Frame], Collection[Frame]],
    same: Mapping[Place, Place],
) -> Section:
    one, other = _contents(before, what, device), _contents(after, what, device)
    lines = [lines_of(c.contributors, left) if c else () for c, left in zip((one, other), below, strict=True)]
    old: dict[object, Line] = {_key(line): line for line in lines[0]}
    changes = []
    for line in lines[1]:
        frame = line.frame
        place = same.get((frame.file, frame.line)) if frame is not None else None
        key = _key(line) if frame is None else (place, line.phase)
        changes.append(Change(line.phase, old.pop(key, None), line))
    changes += [Change(line.phase, line, None) for line in old.values()]
    steps = (1, 1) if what != "stepped" else (_steps(before, device), _steps(after, device))
    section = Section(what, _pair(one, other, "bytes"), _pair(one, other, "rest_bytes"), steps, ())

    def size_of_change(change: Change) -> float:
        was, is_ = section.a_step(change.bytes)
        return abs(is_ - was)

    changes.sort(key=lambda change: (-size_of_change(change), change.shown.where, change.phase))
    return Section(section.what, section.bytes, section.rest, section.steps, tuple(changes))


def _key(line: Line) -> object:
    """Of a line of the first recording: one without a frame is known by what it says."""
    frame = line.frame
    return (line.where if frame is None else (frame.file, frame.line), line.phase)


def _pair(one: Contents | None, other: Contents | None, name: str) -> tuple[int, int]:
    return getattr(one, name, 0), getattr(other, name, 0)


def _steps(report: Report, device: str) -> int:
    return len({step.index for step in report.steps if step.device == device})


def _frames(report: Report) -> list[Frame]:
    """Every line that a row may be about."""
    found: dict[Place, Frame] = {}
    for device in report.devices:
        for what in SECTIONS:
            for contributor in report.contents(what, device.name).contributors:
                for frame in (contributor.frame, contributor.library_line):
                    if frame is not None:
                        found.setdefault((frame.file, frame.line), frame)
    return list(found.values())


def places(before: Report, after: Report) -> dict[Place, Place]:
    """The line of `after` that each line on a stack of `before` is: as in `compare`, and the other lines of stacks."""
    same = match(_frames(before), _frames(after))
    taken = set(same.values())
    old = [frame for frame in _stack_frames(before) if (frame.file, frame.line) not in taken]
    new = [frame for frame in _stack_frames(after) if (frame.file, frame.line) not in same]
    return {old_place: new_place for new_place, old_place in (same | match(old, new)).items()}


def _stack_frames(report: Report) -> list[Frame]:
    found: dict[Place, Frame] = {}
    for device in report.devices:
        for what in SECTIONS:
            for contributor in report.contents(what, device.name).contributors:
                for frame in contributor.stack:
                    found.setdefault((frame.file, frame.line), frame)
    return list(found.values())


def match(before: Iterable[Frame], after: Iterable[Frame]) -> dict[Place, Place]:
    """The line of `before` that each line of `after` is.

    An edit moves lines: what counts is the function and the text; the file and the number where several lines have
    both. Of equal texts in one function the first is the first. Where a text is unknown, file, function and number
    must agree.
    """
    found: dict[Place, Place] = {}
    # Sorted, which is the order in which equal ones pair. By number, so that a pair is taken out at once.
    old, new = (dict(enumerate(sorted(some, key=lambda f: (f.file, f.line)))) for some in (before, after))

    def text(frame: Frame) -> tuple[object, ...] | None:
        return (frame.function, frame.source) if frame.source else None

    def file_text(frame: Frame) -> tuple[object, ...] | None:
        return (short_file(frame.file), frame.function, frame.source) if frame.source else None

    def place(frame: Frame) -> tuple[object, ...]:
        return (short_file(frame.file), frame.function, frame.line)

    def place_text(frame: Frame) -> tuple[object, ...] | None:
        return (*place(frame), frame.source) if frame.source else None

    def pair(key: Callable[[Frame], object], fits: Callable[[Frame, Frame], bool] = lambda a, b: True) -> None:
        waiting: dict[object, deque[tuple[int, Frame]]] = {}
        for number, frame in old.items():
            if key(frame) is not None:
                waiting.setdefault(key(frame), deque()).append((number, frame))
        for number, frame in list(new.items()):
            candidates = waiting.get(key(frame)) if key(frame) is not None else None
            if candidates and fits(candidates[0][1], frame):
                taken, one = candidates.popleft()
                found[frame.file, frame.line] = (one.file, one.line)
                del old[taken], new[number]

    pair(place_text)
    pair(file_text)
    pair(text)
    pair(place, lambda a, b: not a.source or not b.source)
    return found
