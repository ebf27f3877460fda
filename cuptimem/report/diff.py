"""Two recordings beside one another: which lines were added, were removed, grew. No formats here."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cuptimem.report.brief import Brief
from cuptimem.report.model import Contents, Line, Report, Step, lines_of
from cuptimem.report.parts import Part, drives_loop, parts_of
from cuptimem.report.stacks import Frame, bare_name, short_file

TABLES = ("end", "stepped")  # what both reports must be opened with
SECTIONS = ("peak", *TABLES)
STEP_TABLES = ("stepped",)  # those of a step

Place = tuple[str, int]  # file and line
_LEAST_TEXT = 12  # characters of a line of code that is known again in another function
_LOOPS = 4  # the most common ones are compared


@dataclass(frozen=True, slots=True, repr=False)
class Change(Brief):
    """One line of the user's in both recordings; 0 bytes where it is not in one."""

    phase: str  # of most of its bytes
    before: Line | None
    after: Line | None
    parts: tuple[tuple[str, int, int], ...] = ()  # of its bytes: what libraries did below it, or modules
    moved: bool = False  # the same code stands in another function or file

    def _summary(self) -> str:
        return f"{self.shown.where}, {self.phase}: {self.bytes[0]} B, then {self.bytes[1]} B"

    @property
    def bytes(self) -> tuple[int, int]:
        return (self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    @property
    def count(self) -> tuple[int, int]:
        return (self.before.count if self.before else 0, self.after.count if self.after else 0)

    @property
    def frame(self) -> Frame | None:
        return self.shown.frame

    @property
    def shown(self) -> Line:
        """As it is afterwards; as it was where it was removed."""
        line = self.after or self.before
        assert line is not None
        return line

    @property
    def kind(self) -> str:
        """added, removed, grew, shrank, moved, or same."""
        was, is_ = self.bytes
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if was != is_:
            return "grew" if is_ > was else "shrank"
        return "moved" if self.moved else "same"


@dataclass(frozen=True, slots=True, repr=False)
class Section(Brief):
    """What two recordings of one device differ in: at their peaks, at their ends, or in what their steps allocated.

    The changes' bytes and `rest` sum to `bytes`. steps: how many there were (1 where the section is about a moment or
    about one step). loop: of one step of it on each side, which `at` has.
    """

    what: str
    bytes: tuple[int, int]
    rest: tuple[int, int]
    steps: tuple[int, int]
    changes: tuple[Change, ...]  # what changed most first, and behind the lines what has none
    loop: str = ""
    at: tuple[int | None, int | None] = (None, None)

    def a_step(self, pair: tuple[int, int]) -> tuple[float, float]:
        """Bytes for each step; of a moment the bytes themselves."""
        return pair[0] / max(1, self.steps[0]), pair[1] / max(1, self.steps[1])


@dataclass(frozen=True, slots=True, repr=False)
class DeviceDiff(Brief):
    """One device. shown: the sections that people look at: like with like, where loops were compared."""

    device: str
    sections: tuple[Section, ...]  # of SECTIONS
    of_loops: tuple[Section, ...] = ()
    peak_loops: tuple[str, str] = ("", "")  # of the steps that have the peaks; "": none has

    @property
    def shown(self) -> tuple[Section, ...]:
        peak, end, stepped = self.sections
        like = [section for section in self.of_loops if section.what == "peak"]
        steps = [section for section in self.of_loops if section.what == "stepped"]
        return (peak, *like, end, *(steps or [stepped]))


@dataclass(frozen=True, slots=True)
class OfLoop:
    """A step of the same loop in two recordings: reports that were opened at it with STEP_TABLES; None: it has none."""

    loop: str
    what: str  # "stepped": what a usual one allocated; "peak": what the highest one held
    before: Report | None
    after: Report | None


def steps_to_compare(before: Report, after: Report) -> list[tuple[str, str, int | None, int | None]]:
    """Loop, what of it (see OfLoop), and the step of each recording; None: it has no such loop."""
    counts = [report.loops for report in (before, after)]
    loops = sorted(dict.fromkeys([*counts[1], *counts[0]]), key=lambda loop: -sum(one.get(loop, 0) for one in counts))
    found: list[tuple[str, str, int | None, int | None]] = []
    for loop in loops[:_LOOPS]:
        usual = [_usual(report, loop) for report in (before, after)]
        found.append((loop, "stepped", usual[0], usual[1]))
    moments = [_peak_loop(report, report.devices[0].name) if report.devices else "" for report in (before, after)]
    if moments[0] != moments[1]:
        for loop in filter(None, moments):
            highest = [_highest(report, loop) for report in (before, after)]
            if None not in highest:
                found.append((loop, "peak", highest[0], highest[1]))
    return found


def _of(report: Report, loop: str) -> list[Step]:
    """Steps of a loop on the first device that allocates in them."""
    steps = [step for step in report.steps.ended if step.loop == loop]
    device = next((d.name for d in report.devices if any(s.device == d.name and s.allocated for s in steps)), "")
    return [step for step in steps if step.device == device]


def _usual(report: Report, loop: str) -> int | None:
    """The step that allocated the median: first steps make more, for they build state."""
    steps = sorted(_of(report, loop), key=lambda step: (step.allocated, step.index))
    return steps[(len(steps) - 1) // 2].index if steps else None


def _highest(report: Report, loop: str) -> int | None:
    steps = _of(report, loop)
    return max(steps, key=lambda step: (step.peak, -step.index)).index if steps else None


def _peak_loop(report: Report, device: str) -> str:
    peak = next((one.peak for one in report.devices if one.name == device), None)
    if peak is None or peak.step is None:
        return ""
    return next((step.loop for step in report.steps if step.index == peak.step and step.device == device), "")


def compare(before: Report, after: Report, of_loops: Sequence[OfLoop] = ()) -> list[DeviceDiff]:
    """Every device of either, those of `after` first. of_loops: the steps of steps_to_compare()."""
    pairs = [(one.what, one.before, one.after) for one in of_loops]
    sides = ([before, *(one for _, one, _ in pairs if one)], [after, *(one for _, _, one in pairs if one)])
    frames = [_frames(reports) for reports in sides]
    same = match(*frames)
    known = _Known(same, {frame.file for frame in frames[1]})
    names = dict.fromkeys([peak.device for report in (after, before) for peak in report.peaks])
    return [
        DeviceDiff(
            name,
            tuple(_section(what, name, before, after, known) for what in SECTIONS),
            tuple(
                replace(_section(one.what, name, one.before, one.after, known, of_step=True), loop=one.loop)
                for one in of_loops
            ),
            (_peak_loop(before, name), _peak_loop(after, name)),
        )
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class _Known:
    """Which line of the first recording each of the second is, and the second one's files."""

    same: Mapping[Place, Place]
    files: set[str]

    def moved(self, old: Frame, new: Frame) -> bool:
        """Whether it stands elsewhere; that its file has another name says nothing, where the old file is gone."""
        same = old.function == new.function or old.function == bare_name(new) or bare_name(old) == new.function
        return not same or (short_file(old.file) != short_file(new.file) and old.file in self.files)


def _contents(report: Report | None, what: str, device: str) -> Contents | None:
    there = report is not None and any(one.name == device for one in report.devices)
    return report.contents(what, device) if report is not None and there else None


def _section(
    what: str, device: str, before: Report | None, after: Report | None, known: _Known, of_step: bool = False
) -> Section:
    one, other = _contents(before, what, device), _contents(after, what, device)
    lines = [lines_of(c.contributors) if c else () for c in (one, other)]
    old: dict[object, Line] = {_key(line): line for line in lines[0]}
    pairs: list[tuple[Line | None, Line | None]] = []
    for line in lines[1]:
        frame = line.frame
        key = _key(line) if frame is None else known.same.get((frame.file, frame.line))
        pairs.append((old.pop(key, None), line))
    pairs += [(line, None) for line in old.values()]
    steps = (1, 1) if what != "stepped" or of_step else (_steps(before, device), _steps(after, device))
    at = (one.step if one else None, other.step if other else None)
    section = Section(what, _pair(one, other, "bytes"), _pair(one, other, "rest_bytes"), steps, (), at=at)

    def size_of_change(change: Change) -> float:
        was, is_ = section.a_step(change.bytes)
        return abs(is_ - was)

    changes = [_change(was, is_, one, other, known) for was, is_ in pairs]
    changes.sort(key=lambda change: (change.frame is None, -size_of_change(change), change.shown.where, change.phase))
    return replace(section, changes=tuple(changes))


def _change(
    was: Line | None, is_: Line | None, before: Contents | None, after: Contents | None, known: _Known
) -> Change:
    sides = [(line, contents) for line, contents in ((was, before), (is_, after)) if line and contents]
    # The same form on both sides, though only one recording may have the stack that shows it.
    by_module = any(drives_loop(line, contents) for line, contents in sides)
    moved = was is not None and is_ is not None and was.frame is not None and is_.frame is not None
    # Where one recording has texts, parts have the names of its expressions, and else of functions.
    comparable = by_module or len({bool(line.frame and line.frame.source) for line, _ in sides}) == 1
    return Change(
        sides[-1][0].phase,
        was,
        is_,
        _parts(*(parts_of(line, by_module) if line else () for line in (was, is_))) if comparable else (),
        moved and known.moved(was.frame, is_.frame),  # type: ignore[union-attr, arg-type]  # they are there: moved
    )


def _parts(before: Sequence[Part], after: Sequence[Part]) -> tuple[tuple[str, int, int], ...]:
    sums = {part.name: (part.bytes, 0) for part in before}
    for part in after:
        sums[part.name] = (sums.get(part.name, (0, 0))[0], part.bytes)
    found = ((name, *pair) for name, pair in sums.items())
    return tuple(sorted(found, key=lambda one: (-abs(one[2] - one[1]), one[0])))


def _key(line: Line) -> object:
    """Of a line of the first recording: one without a frame is known by what it says."""
    frame = line.frame
    return line.where if frame is None else (frame.file, frame.line)


def _pair(one: Contents | None, other: Contents | None, name: str) -> tuple[int, int]:
    return getattr(one, name, 0), getattr(other, name, 0)


def _steps(report: Report | None, device: str) -> int:
    return len({step.index for step in report.steps.ended if step.device == device}) if report is not None else 0


def _all_contents(reports: Iterable[Report]) -> Iterable[Contents]:
    for report in reports:
        for device in report.devices:
            for what in SECTIONS if report.step is None else ("peak", *STEP_TABLES):
                yield report.contents(what, device.name)


def _frames(reports: Iterable[Report]) -> list[Frame]:
    """Every line that a row may be about."""
    found: dict[Place, Frame] = {}
    for contents in _all_contents(reports):
        for contributor in contents.contributors:
            if (frame := contributor.frame) is not None:
                found.setdefault((frame.file, frame.line), frame)
    return list(found.values())


def places(before: Report, after: Report) -> dict[Place, Place]:
    """The line of `after` that each line on a stack of `before` is: as in `compare`, and the other lines of stacks."""
    same = match(_frames([before]), _frames([after]))
    taken = set(same.values())
    old = [frame for frame in _stack_frames(before) if (frame.file, frame.line) not in taken]
    new = [frame for frame in _stack_frames(after) if (frame.file, frame.line) not in same]
    return {old_place: new_place for new_place, old_place in (same | match(old, new)).items()}


def _stack_frames(report: Report) -> list[Frame]:
    found: dict[Place, Frame] = {}
    for contents in _all_contents([report]):
        for contributor in contents.contributors:
            for frame in contributor.stack:
                found.setdefault((frame.file, frame.line), frame)
    return list(found.values())


def match(before: Iterable[Frame], after: Iterable[Frame]) -> dict[Place, Place]:
    """The line of `before` that each line of `after` is.

    An edit moves lines: what counts is the function and the text; the file and the number where several lines have
    both. Of equal texts in one function the first is the first. A text that stands once on either side is the same
    line in another function, too. Where a text is unknown, file, function and number must agree; PyTorch's snapshots
    have neither texts nor the classes of functions.
    """
    found: dict[Place, Place] = {}
    # Sorted, which is the order in which equal ones pair. By number, so that a pair is taken out at once.
    old, new = (dict(enumerate(sorted(some, key=lambda f: (f.file, f.line)))) for some in (before, after))

    def text(frame: Frame) -> tuple[object, ...] | None:
        return (frame.function, frame.source) if frame.source else None

    def file_text(frame: Frame) -> tuple[object, ...] | None:
        return (short_file(frame.file), frame.function, frame.source) if frame.source else None

    def place(frame: Frame) -> tuple[object, ...]:
        return (short_file(frame.file), bare_name(frame), frame.line)

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
    for side in (old, new):  # what is left: only texts that stand once
        texts = Counter(frame.source for frame in side.values())
        single = {number: frame for number, frame in side.items() if texts[frame.source] == 1}
        side.clear()
        side.update(single)
    pair(lambda frame: frame.source if len(frame.source) >= _LEAST_TEXT else None)
    return found
