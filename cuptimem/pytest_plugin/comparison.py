"""The records of a run beside a baseline: what each test had then, and the rules that it must keep."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cuptimem import sizes
from cuptimem.output.text.cells import cut
from cuptimem.output.text.words import count, plural, signed, size
from cuptimem.printable import printable
from cuptimem.pytest_plugin.baselines import (
    CONTRIBUTORS,
    NOTHING,
    Baseline,
    Record,
    Row,
    keys_of,
    last_of_each,
    row_of,
)

if TYPE_CHECKING:
    from cuptimem.report.stacks import Frame

_FIGURES = {"peak": "peak", "leak": "leaked", "allocations": "allocations"}  # what rules are about, in a row
_SHOWN = ("peak", "leaked", "allocated", "allocations")
_RULE = re.compile(r"\s*(\w+)\s*:\s*(?:(\d{1,9}(?:\.\d{1,9})?)\s*%|(.*?))\s*", re.DOTALL)
_HELP = "written peak:5%, peak:512KiB, leak:0B or allocations:3"

LINES_OF_A_TEST = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """How far above the baseline a figure may be: by a share of what it was there, or by a number."""

    text: str
    figure: str  # in a row
    percent: Fraction | None
    amount: int

    def allows(self, before: int, after: int) -> bool:
        allowance = self.amount if self.percent is None else before * self.percent / 100
        return after <= before + allowance


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The rules of all texts, each of one or, with commas between, of several. Raises ValueError, one line."""
    rules = {rule.text: rule for text in texts for rule in map(_rule, text.split(","))}
    return tuple(rules.values())


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"a rule is {_HELP}, not {text!r}")
    name, percent, amount = found[1].lower(), found[2], found[3]
    if name not in _FIGURES:
        raise ValueError(f"{text!r}: rules are about {', '.join(_FIGURES)}, {_HELP}")
    if percent is not None:
        return Rule(f"{name}:{percent}%", _FIGURES[name], Fraction(percent), 0)
    try:
        if name == "allocations":
            if not re.fullmatch(r"\d{1,15}", amount, re.ASCII):
                raise ValueError
            number = int(amount)
        else:
            number = sizes.parse(amount, needs_unit=True)
    except ValueError:
        unit = "a number" if name == "allocations" else "a size with its unit"
        raise ValueError(f"{text!r}: {name} may grow by a share such as 5%, or by {unit}; {_HELP}") from None
    return Rule(f"{name}:{amount}", _FIGURES[name], None, number)


@dataclass(frozen=True, slots=True)
class LineChange:
    """One line at the peak, then and now. None: it was not among the contributors that are kept, and others were not
    either, so how many bytes it had is unknown."""

    place: str
    source: str
    before: int | None
    after: int | None
    change: int  # bytes; where one side is unknown, those by which it changed at least
    edited: bool = False  # it has another text than it had

    @property
    def what(self) -> str:
        if self.edited:
            return "changed"
        if self.before is None or self.after is None:
            return "grew" if self.change > 0 else "shrank"
        if not self.before:
            return "added"
        if not self.after:
            return "removed"
        return "grew" if self.change > 0 else "shrank"


@dataclass(frozen=True, slots=True)
class Difference:
    """A test with other figures than in the baseline, on one device."""

    nodeid: str
    device: str
    before: Row
    after: Row
    broken: tuple[Rule, ...]

    @property
    def change(self) -> int:
        """Of the peak, in bytes."""
        return int(self.after["peak"] - self.before["peak"])

    def figures(self) -> list[tuple[str, int, int]]:
        """Those that differ and are known on both sides: name, then, now."""
        pairs = [(name, self.before[name], self.after[name]) for name in _SHOWN]
        return [pair for pair in pairs if None not in pair and pair[1] != pair[2]]

    def lines(self) -> list[LineChange]:
        """What the peaks differ in, the largest change first."""
        return changed_lines(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A test counts once for each device on which it allocated, now or in the baseline; once if it never did."""

    compared: int
    new: int  # the baseline of this device has no such test
    not_comparable: int
    reasons: Mapping[str, int]  # why not, and how often
    differences: tuple[Difference, ...]  # those that broke a rule first, then by how much the peak changed
    judged: Mapping[Rule, int]  # how often each rule was applied: a figure must be known on both sides

    @property
    def failures(self) -> tuple[Difference, ...]:
        return tuple(one for one in self.differences if one.broken)

    @property
    def idle_rules(self) -> tuple[Rule, ...]:
        """Rules that compared nothing: a run that has one fails, unless the user was lenient."""
        return tuple(rule for rule, times in self.judged.items() if times == 0)

    def summary(self) -> str:
        return f"compared {count(self.compared)}, new {count(self.new)}, not comparable {count(self.not_comparable)}"

    def notes(self) -> list[str]:
        """What the summary does not say: why tests were not comparable, and rules that were not applied everywhere."""
        notes = [f"not comparable: {count(times)}, {reason}" for reason, times in self.reasons.items()]
        for rule, times in self.judged.items():
            if times == 0:
                notes.append(f"{rule.text} compared nothing")
            elif times < self.compared:
                notes.append(f"{rule.text} compared {count(times)} of {count(self.compared)}: leaks were not measured")
        return notes


def compare(
    records: Iterable[Record], environment: Mapping[str, Any], baseline: Baseline, rules: Sequence[Rule] = ()
) -> Comparison:
    """Tests that were skipped were not measured, and are not counted."""
    ended = last_of_each(records)
    keys = keys_of(environment, ended)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    judged = dict.fromkeys(rules, 0)
    differences = []
    for record in ended:
        if record["outcome"] == "skipped":
            continue
        if record["outcome"] != "passed":
            reasons["the test did not pass"] += 1
            continue
        for device, key in _units(record, keys, baseline):
            before = baseline.row(key, record["nodeid"], device)
            if before is None:
                if key in baseline.files:
                    counts["new"] += 1
                else:
                    reasons[f"the baseline is of {', '.join(sorted(baseline.files))}, this is {key}"] += 1
                continue
            counts["compared"] += 1
            figures = record["devices"].get(device)
            after = row_of(figures) if figures is not None else NOTHING
            before, after = _with_leaks(before, after), _with_leaks(after, before)
            broken = []
            for rule in rules:
                pair = (before[rule.figure], after[rule.figure])
                if None not in pair:
                    judged[rule] += 1
                    if not rule.allows(*pair):
                        broken.append(rule)
            difference = Difference(record["nodeid"], device, before, after, tuple(broken))
            if difference.figures():
                differences.append(difference)
    differences.sort(key=lambda one: (not one.broken, -abs(one.change), one.nodeid, one.device))
    return Comparison(
        counts["compared"],
        counts["new"],
        sum(reasons.values()),
        dict(sorted(reasons.items())),
        tuple(differences),
        judged,
    )


def _with_leaks(row: Row, other: Row) -> Row:
    """A device without an allocation has no leak, if leaks were measured: what the other side says."""
    unknown = row is NOTHING and (other is NOTHING or other["leaked"] is None)
    return {**row, "leaked": None} if unknown else row


def _units(record: Record, keys: Mapping[str, str], baseline: Baseline) -> list[tuple[str, str]]:
    """Devices, with their keys, that the record or its rows in the baseline are about; any if there is none."""
    nodeid = record["nodeid"]
    found = {
        device: key
        for device, key in keys.items()
        if device in record["devices"] or device in baseline.files.get(key, {}).get(nodeid, {})
    }
    if not found:
        # It allocated nothing, then and now. A file that has the test, or at least is there, says more than none.
        def known(pair: tuple[str, str]) -> tuple[bool, bool]:
            return nodeid in baseline.files.get(pair[1], {}), pair[1] in baseline.files

        return [max(keys.items(), key=known, default=("", "a run without any device"))]
    return list(found.items())


def changed_lines(before: Row, after: Row) -> list[LineChange]:
    """Lines at the peak that were added, removed and edited, grew and shrank, the largest change first.

    A line that an edit moved is the same line: see cuptimem.report.diff.match. One that was removed and one that was
    added at its place, in the same function, are one line that was edited, unless other lines of that function moved.
    """
    from cuptimem.report import diff
    from cuptimem.report.stacks import Frame

    old, new = _by_line(before), _by_line(after)

    def frame(line: str, source: str) -> Frame | None:
        found = re.fullmatch(r"(.+):(\d{1,9})(?: (.*))?", line, re.DOTALL)
        return Frame(found[1], found[3] or "", int(found[2]), text=source) if found is not None else None

    frames = [{line: frame(line, source) for line, (_, source) in side.items()} for side in (old, new)]
    # Two functions may share a line.
    unique = [{(f.file, f.line, f.function): f for f in side.values() if f is not None} for side in frames]
    same = diff.match(unique[0].values(), unique[1].values())

    def known_as(line: str, one: Frame | None, moved: bool) -> object:
        if one is None:
            return line
        place = same.get((one.file, one.line)) if moved else (one.file, one.line)
        return (place, one.function)

    waiting = {known_as(line, frames[0][line], False): line for line in old}
    pairs = {line: waiting.pop(known_as(line, frames[1][line], True), None) for line in new}
    moved = {_function(frames[1][line]) for line, was in pairs.items() if was is not None and was != line}
    gone = set(waiting.values())
    changes = []
    for line, (now, source) in new.items():
        edited = line in gone and pairs[line] is None and _function(frames[1][line]) not in moved
        was = line if edited else pairs[line]
        if edited:
            gone.remove(line)
        change = _change(line, source, old[was][0] if was is not None else None, now, before, after)
        changes.append(replace(change, edited=edited))
    changes += [_change(line, old[line][1], old[line][0], None, before, after) for line in gone]
    kept = [change for change in changes if change.change]
    return sorted(kept, key=lambda change: (-abs(change.change), change.place))


def _function(frame: "Frame | None") -> tuple[str, str]:
    return (frame.file, frame.function) if frame is not None else ("", "")


def _by_line(row: Row) -> dict[str, tuple[int, str]]:
    """Bytes and text by place. Older records have a row for each phase of a line."""
    lines: dict[str, tuple[int, str]] = {}
    for number, _, place, _, source in row["contributors"]:
        total, text = lines.get(place, (0, ""))
        lines[place] = (total + number, text or source)
    return lines


def _change(line: str, source: str, was: int | None, now: int | None, before: Row, after: Row) -> LineChange:
    """A line that is missing on one side had at most what that side's contributors leave of the peak."""
    if was is None and now is not None:
        most = _unlisted(before)
        return LineChange(line, source, None if most else 0, now, max(0, now - most))
    if now is None and was is not None:
        most = _unlisted(after)
        return LineChange(line, source, was, None if most else 0, min(0, most - was))
    assert was is not None and now is not None
    return LineChange(line, source, was, now, now - was)


def _unlisted(row: Row) -> int:
    """The most bytes that a line can have which is not among the contributors. They are the largest, where there are
    as many as are kept."""
    listed = [one[0] for one in row["contributors"]]
    rest: int = max(0, row["peak"] - sum(listed))
    return min([rest, *listed]) if len(listed) >= CONTRIBUTORS else rest


def describe(one: Difference, width: int, lines: int = LINES_OF_A_TEST) -> list[str]:
    """A test and what it differs in, in a few lines of at most so many characters."""
    device = f" on {one.device}"
    shown = [cut(printable(one.nodeid), max(1, width - len(printable(device))), keep_end=True) + device]
    for name, before, after in one.figures():
        broken = " and ".join(rule.text for rule in one.broken if rule.figure == name)
        shown.append(f"  {_figure(name, before, after)}{f', over {broken}' if broken else ''}")
    changes = one.lines() if one.change else []
    for change in changes[:lines]:
        shown.append(f"    {_line(change)}")
        if change.edited:
            shown.append(f"      {change.source}")
    if len(changes) > lines:
        shown.append(f"    and {plural(len(changes) - lines, 'more line')}")
    return [cut(printable(line), width) for line in shown]


def _figure(name: str, before: int, after: int) -> str:
    share = f"{100 * (after - before) / before:+.1f} %, " if before else ""
    if name == "allocations":
        return f"{name} {after - before:+,} ({share}{count(before)} to {count(after)})"
    return f"{name} {signed(after - before)} ({share}{size(before)} to {size(after)})"


def _line(change: LineChange) -> str:
    if change.before is None:
        then = f"{size(change.after or 0)}, not among the largest {CONTRIBUTORS} before"
    elif change.after is None:
        then = f"was {size(change.before)}, no longer among the largest {CONTRIBUTORS}"
    else:
        then = f"{size(change.before)} to {size(change.after)}"
    least = "at least " if None in (change.before, change.after) else ""
    return f"{least}{signed(change.change)} {change.what} {change.place}: {then}"


def beside(record: Record, baseline: Baseline, width: int) -> list[str]:
    """What the baseline had of a test that is over a limit, and so did not pass, on each device."""
    found = compare([{**record, "outcome": "passed"}], record["environment"], baseline)
    lines = [f"baseline {baseline.name!r} has other figures:"] if found.differences else []
    for one in found.differences:
        figures = describe(one, width)[1:]
        lines += [f"  on {one.device}", *figures] if len(record["devices"]) > 1 else figures
    if not lines and found.compared:
        lines = [f"baseline {baseline.name!r} has the same figures"]
    return lines


def report(comparison: Comparison, width: int, most: int = 10) -> list[str]:
    """For the end of a run: every test that broke a rule, the largest of the other changes, and the summary."""
    failures = comparison.failures
    others = comparison.differences[len(failures) :]
    lines = [line for one in (*failures, *others[:most]) for line in describe(one, width)]
    if len(others) > most:
        lines.append(cut(f"and {plural(len(others) - most, 'more test')} with other figures, within the rules", width))
    return [*lines, *comparison.notes(), comparison.summary()]
