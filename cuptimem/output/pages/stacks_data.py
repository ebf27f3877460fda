"""What pages about stacks draw: rows of bytes with their stacks, of one recording or two. No formats, no colours.

A page gets rows, not trees: scripts sum them by stack, by module, inwards and outwards, with and without libraries.
The rows of each measure sum to its bytes. Of more rows than ROWS the smaller ones are merged where their stacks leave
those that are kept; what was merged is counted.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuptimem.output.text.peak_views import rest_name, when
from cuptimem.output.text.words import count, function, plural, shortened
from cuptimem.report import grouping
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Contents, Report
from cuptimem.report.stacks import PACKAGE_FOLDER, Frame, Stack, is_compiled, is_generated, short_file, temporary_part

ROWS = 3000  # of each measure, the largest
DEPTH = 400  # calls of one stack; of a deeper one those in the middle are one

OWN = "your code"
_TEXT = 240  # characters of a name or a line of code

WHATS = ("peak", "end", "leaked", "kept", "allocated", "temporary")
STEP_WHATS = ("peak", "end", "allocated", "temporary")  # of one step; the others are about the whole run
TITLES = {
    "peak": "At the peak",
    "end": "At the end",
    "leaked": "Leaked",
    "kept": "Left behind",
    "allocated": "Allocated",
    "stepped": "Allocated in steps",
    "temporary": "Temporary",
}
_WORDS = {
    "leaked": "what grows from step to step, by where it is made",
    "kept": "made in the recording and alive at its end",
}
_MEANINGS = {
    "peak": "what was alive when the most bytes were",
    "end": "what is alive at the end, older than the recording or not",
    "leaked": "what is a leak, as judged at the end of the last step, by where it is made",
    "kept": "what was made in the recording and is alive at its end, leak or not",
    "allocated": "everything that was ever allocated, freed or not",
    "temporary": "what was freed in the step that made it",
}

_PACKAGE = re.compile(PACKAGE_FOLDER + r"[/\\]([^/\\]+)")
_NAMES = {"torch": "PyTorch", "torch.compile": "torch.compile", "_pytest": "pytest"}


def of_report(report: Report) -> dict[str, Any]:
    """All measures of a report that was opened with `tables`, device by device."""
    builder = Builder()
    for device in report.devices:
        for what in WHATS if report.step is None else STEP_WHATS:
            if what == "leaked":
                builder.add_leaks(report.leaks, device.name)
            else:
                builder.add_contents(report.contents(what, device.name))
    return builder.data()


def of_contents(chosen: Sequence[Contents], rows: int = ROWS) -> dict[str, Any]:
    """One measure for each, which are of different devices."""
    builder = Builder(rows=rows)
    for contents in chosen:
        builder.add_contents(contents)
    return builder.data()


def merged_note(data: Mapping[str, Any], rows: int = ROWS) -> list[str]:
    """What was merged to keep the page small."""
    merged = max((measure["merged"] for measure in data["measures"]), default=0)
    if not merged:
        return []
    return [
        f"Of each kind of bytes the {count(rows)} largest stacks are shown; up to {count(merged)} smaller ones are "
        "merged where they leave those that are shown, and counted there. All sums are exact."
    ]


def tables(step: int | None) -> tuple[str, ...]:
    """What a report must be opened with so that one reading has it all."""
    whats = WHATS if step is None else STEP_WHATS
    return tuple(what for what in whats if what not in ("peak", "leaked"))


def short(text: str) -> str:
    """Text of a trace: printable, and of a bounded length."""
    return shortened(text, _TEXT)


def library(frame: Frame) -> str:
    """Whose code a frame is: the user's own, or the name of a library."""
    if not frame.is_library:
        return OWN
    if frame.truncated:
        return "Python"
    if frame.file.startswith("<frozen "):
        return "Python"
    if is_generated(frame.file):
        made_by_others = is_compiled(frame.file) and not frame.file.startswith("<eval_with_key>")
        return "generated code" if made_by_others else "torch.compile"
    found = _PACKAGE.findall(frame.file)
    if not found:
        return "generated code" if temporary_part(frame.file) else "Python"
    name = str(found[-1]).removesuffix(".py")
    return _NAMES.get(name, short(name))


def frame_name(frame: Frame) -> str:
    """The function. Scripts show a module's class in the place of PyTorch's function that calls it."""
    return "(outer calls that were not kept)" if frame.truncated else short(function(frame))


@dataclass
class Measure:
    """A kind of bytes on one device, in one run."""

    what: str
    device: str
    bytes: int
    count: int
    words: str  # of what the bytes are
    run: int = 0  # of two runs, which one
    merged: int = 0  # rows without a place of their own, and their bytes
    merged_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "title": TITLES[self.what],
            "meaning": _MEANINGS.get(self.what, ""),
            "device": self.device,
            "bytes": self.bytes,
            "count": self.count,
            "words": self.words,
            "run": self.run,
            "merged": self.merged,
            "merged_bytes": self.merged_bytes,
        }


@dataclass(frozen=True, slots=True)
class _Key:
    """What makes a row: frames from the outermost inwards, or a label where there are none."""

    path: tuple[int, ...]
    phase: str
    operator: str = ""
    label: str = ""
    category: str = ""
    module: str = ""  # its qualified name; classes are in the frames


@dataclass
class Builder:
    """Collects measures, then gives the data of a page."""

    # Of two recordings: what a frame of the first is in the second, and a name that keeps apart what is in one alone.
    canonical: Callable[[Frame], tuple[str, Frame]] = field(default=lambda frame: ("", frame))
    rows: int = ROWS
    measures: list[Measure] = field(default_factory=list)
    _values: dict[_Key, dict[int, list[int]]] = field(default_factory=dict)
    _frames: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _columns: list[tuple[str | int, ...]] = field(default_factory=list)
    _seen: dict[int, tuple[Stack, tuple[int, ...]]] = field(default_factory=dict)
    _seen_frames: dict[int, tuple[Frame, int]] = field(default_factory=dict)

    # -- collecting --

    def add_contents(self, contents: Contents, run: int = 0) -> None:
        """Contents of a report; what has no stack gets a row that says why."""
        measure = self._measure(
            contents.what, contents.device, contents.bytes, contents.count, moment_of(contents), run
        )
        for one in contents.contributors:
            label = "" if one.stack else one.where
            operator = grouping.operator(one) if one.stack else one.operator or ""
            key = _Key(self._path(one.stack), one.phase, operator, label, one.category, one.qualified or "")
            self._add(measure, key, one.bytes, one.count)
        if contents.rest_bytes or contents.rest_count:
            self._add(measure, _Key((), "", label=rest_name(contents)), contents.rest_bytes, contents.rest_count)

    def add_leaks(self, leaks: Iterable[Leak], device: str, run: int = 0) -> None:
        """Blocks of verdicts by the stacks that make them. Graph nodes are left out: their sizes are estimates."""
        parts = [part for leak in _all(leaks) if leak.kind == "bytes" and leak.device == device for part in leak.parts]
        total, blocks = sum(part.bytes for part in parts), sum(part.count for part in parts)
        measure = self._measure("leaked", device, total, blocks, _WORDS["leaked"], run)
        for part in parts:
            label = "" if part.stack else part.where
            self._add(measure, _Key(self._path(part.stack), "", label=label), part.bytes, part.count)

    def _measure(self, what: str, device: str, bytes_: int, count_: int, words: str, run: int) -> int:
        self.measures.append(Measure(what, device, bytes_, count_, words, run))
        return len(self.measures) - 1

    def _add(self, measure: int, key: _Key, bytes_: int, count_: int) -> None:
        sums = self._values.setdefault(key, {}).setdefault(measure, [0, 0])
        sums[0] += bytes_
        sums[1] += count_

    def _path(self, stack: Stack) -> tuple[int, ...]:
        known = self._seen.get(id(stack))
        if known is None:
            known = self._seen[id(stack)] = (stack, tuple(self._outermost_first(stack)))
        return known[1]

    def _outermost_first(self, stack: Stack) -> Iterator[int]:
        if len(stack) <= DEPTH:
            yield from map(self._frame, reversed(stack))
            return
        half = DEPTH // 2
        yield from map(self._frame, reversed(stack[-half:]))
        yield self._pseudo(f"({plural(len(stack) - 2 * half, 'call')} in between)")
        yield from map(self._frame, reversed(stack[:half]))

    def _frame(self, frame: Frame) -> int:
        known = self._seen_frames.get(id(frame))
        if known is None:
            known = self._seen_frames[id(frame)] = (frame, self._new_frame(*self.canonical(frame)))
        return known[1]

    def _new_frame(self, alone: str, frame: Frame) -> int:
        key = (alone, frame.file, frame.line, frame.function, frame.module)
        if key not in self._frames:
            self._frames[key] = len(self._columns)
            self._columns.append(
                (
                    frame_name(frame),
                    "" if frame.truncated else short(short_file(frame.file)),
                    frame.line,
                    short(frame.source),
                    short(frame.module or ""),
                    library(frame),
                    0 if not frame.is_library else 2 if frame.is_plumbing else 1,
                )
            )
        return self._frames[key]

    def _pseudo(self, name: str) -> int:
        """What stands on a stack and is no call."""
        if (name,) not in self._frames:
            self._frames[name,] = len(self._columns)
            self._columns.append((name, "", 0, "", "", "", 2))
        return self._frames[name,]

    # -- giving --

    def data(self) -> dict[str, Any]:
        """What scripts read (assets/stacks.js says what the columns are)."""
        kept = self._kept()
        nodes: dict[tuple[int, int], int] = {}  # parent and frame: the tree of all stacks that are kept
        rows: dict[tuple[int | str, ...], int] = {}
        smaller: dict[int, int] = {}  # row: how many were merged into it
        values: list[list[tuple[int, int, int]]] = [[] for _ in self.measures]

        def row(node: int, key: _Key) -> int:
            texts = map(short, (key.operator, key.label, key.category, key.module))
            return rows.setdefault((node, key.phase, *texts), len(rows))

        for key in kept:
            node = -1
            for frame in key.path:
                node = nodes.setdefault((node, frame), len(nodes))
            number = row(node, key)
            for measure, (bytes_, count_) in self._values[key].items():
                values[measure].append((number, bytes_, count_))
        merged: dict[tuple[int, int], list[int]] = {}
        for key, sums in self._values.items():
            if key in kept:
                continue
            node = -1
            for frame in key.path:
                below = nodes.get((node, frame))
                if below is None:
                    break
                node = below
            number = row(node, _Key((), key.phase, label="*", category=key.category))
            smaller[number] = smaller.get(number, 0) + 1
            for index, (bytes_, count_) in sums.items():
                total = merged.setdefault((index, number), [0, 0])
                total[0] += bytes_
                total[1] += count_
                self.measures[index].merged += 1
                self.measures[index].merged_bytes += bytes_
        for (index, number), (bytes_, count_) in merged.items():
            values[index].append((number, bytes_, count_))
        used = sorted({frame for _, frame in nodes})
        place = {frame: number for number, frame in enumerate(used)}
        strings: dict[str, int] = {"": 0}

        def packed(fields: Sequence[str | int]) -> tuple[int, ...]:
            return tuple(strings.setdefault(one, len(strings)) if isinstance(one, str) else one for one in fields)

        return {
            "measures": [measure.to_dict() for measure in self.measures],
            "frames": _transposed(
                [packed(self._columns[frame]) for frame in used],
                ("name", "file", "line", "source", "module", "library", "kind"),
            ),
            "nodes": {"parent": [parent for parent, _ in nodes], "frame": [place[frame] for _, frame in nodes]},
            "rows": _transposed(
                [packed((*key, smaller.get(number, 0))) for key, number in rows.items()],
                ("node", "phase", "operator", "label", "category", "module", "smaller"),
            ),
            "values": [_transposed(value, ("row", "bytes", "count")) for value in values],
            "strings": list(strings),
        }

    def _kept(self) -> dict[_Key, None]:
        """Rows that keep their stack: the largest of each measure, and those without a stack. In an order that does not
        depend on hashes, so that a page is the same each time."""
        kept: dict[_Key, None] = {}
        by_measure: list[list[tuple[int, _Key]]] = [[] for _ in self.measures]
        for key, sums in self._values.items():
            if not key.path:
                kept[key] = None
            for measure, (bytes_, _) in sums.items():
                by_measure[measure].append((bytes_, key))
        for some in by_measure:
            some.sort(key=lambda one: -one[0])
            kept.update(dict.fromkeys(key for _, key in some[: self.rows]))
        return kept


def moment_of(contents: Contents) -> str:
    return _WORDS[contents.what] if contents.what in _WORDS else when(contents)


def _all(leaks: Iterable[Leak]) -> Iterator[Leak]:
    for leak in leaks:
        yield leak
        yield from _all(leak.keeps)


def _transposed(rows: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, list[int]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
