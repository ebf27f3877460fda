"""What grows, in words: the bodies of `cuptimem leaks` and of the leaks' place in the summary."""

from collections.abc import Sequence
from pathlib import Path

from cuptimem.output.text import garbage_views, held_views, process_views
from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Style, Table, Text
from cuptimem.output.text.clock_views import counted_by
from cuptimem.output.text.words import code, count, first_loops, function, place, plural, share, size, where
from cuptimem.report import process
from cuptimem.report.advice import LeakAtPeak
from cuptimem.report.cycles import CYCLE
from cuptimem.report.leaks import STEPS_NEEDED, Holder, Leak, LeakPart
from cuptimem.report.line_holders import LineHolders
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame, Stack

_INDENT, _DEEPER = "   ", "       "
_IN_SUMMARY = 3
_CALLERS = 3
_KEPT = 4  # lines that stand under an entry

_REASONS = {
    "few births": "it grew in too few steps to tell: record a longer run",
    "stopped": "it grew, and then stopped: a cache that fills up looks like this, or a result that the next run of the "
    "same code replaces",
    "one epoch": "it grew within one epoch, and was judged at the last step of that: it may be kept only until the "
    "epoch ends. Record until the next one has begun (a smaller data set gets there sooner); where there is only one "
    "epoch (max_steps), a list that is read when it ends is right, and one that nothing reads is a leak",
    "no collection": "no garbage collection ran behind these steps, so it may be garbage that waits for one. The end "
    "of a profile makes one. In the middle of a run, call gc.collect() before you ask for the report; if the program "
    "is killed, let it call gc.collect() every few hundred steps",
    "collections unknown": "a snapshot of PyTorch's does not say when Python's garbage collection ran, so it may be "
    "garbage that waits for one. If the program called gc.collect() before it dumped the snapshot, it is a leak",
    "filling": "it is in a container with a bound that has not been reached (a deque with maxlen, an lru_cache, a list "
    "or array with empty places): record until it is full",
    "late garbage": "it went in the collection at the end, when the loop's function had returned: garbage that waited, "
    "or held until then by an object in a reference cycle (a trainer and its callback). Put cuptimem.profile() into "
    "that function, or call gc.collect() in the loop now and then, to tell",
    "freed behind the loop": "it grew while this evaluation ran, and was freed when that was over, while the program "
    "went on: results that were read and dropped, or a list that was freed because its function had returned",
    "one pass": "it grew in one run of this evaluation, and that was over: an index or features that are made once "
    "look like this, and so does a list that nothing empties. Record until the same code has run again: if it then "
    "grows by as much, it is a leak",
    "carried on": "one value that this evaluation hands from step to step and makes larger, as a cache of keys and "
    "values does while one answer is generated. If it is dropped when the answer is complete, it is no leak: record "
    "two of them to tell",
    "garbage": "garbage in reference cycles that waited for a collection: the next one frees it; "
    "without the cycles it would go at once",
    "events lost": "events were lost while this was recorded, and a lost free looks like a leak",
    "negligible": "true growth, but too slow to matter; --min-rate 0 judges it",
}
_RELATIONS = {
    "retained by the graph": "The graph keeps:",
    "made in the same steps": "Made in the same steps, so probably kept by the same graph:",
    "grows with it": "Grows with it, so it is probably computed from it:",
}
_TOO_FEW = f"Leaks: not judged, too few steps ({STEPS_NEEDED} are needed)"
_CYCLE = (
    "Nothing holds these any more but reference cycles, and no collection ran to find them: call gc.collect() every "
    "now and then, leave automatic collection on, or break the cycle (weakref)."
)
_GONE = (
    "What held them was gone when the recording ended, as variables of a function are when it has returned. "
    "cuptimem.profile() around the loop ends before and knows it."
)

_EARLY = " While it ran they were searched in its first {} events only: to read more would have paused the program."


def reason(leak: Leak) -> str:
    """Why a suspect is no verdict, in words; "" for a verdict."""
    return _REASONS.get(leak.reason, leak.reason)


# -- parts of sentences --------------------------------------------------------------------------------------------


def _amount(value: float) -> str:
    """Bytes of a rate, which may be less than one."""
    return f"{value:.1f} B" if 0 < value < 9.95 and value != round(value) else size(round(value))


def _number(value: float) -> str:
    """A count of a rate: 12, 2.5"""
    return count(round(value)) if abs(value - round(value)) < 0.05 or value >= 100 else f"{value:.1f}"


def _how_often(leak: Leak) -> str:
    """One a step, 2.5 a step, one every 4 steps."""
    rate = leak.count_per_step
    if rate >= 0.95:
        return "one a step" if _number(rate) == "1" else f"{_number(rate)} a step"
    return f"one every {_number(1 / rate)} steps" if rate > 0 else ""


def _rate(leak: Leak) -> str:
    if leak.kind == "nodes":
        # Of a set whose members are replaced only the growth in bytes is known.
        rate = leak.count_per_step or leak.bytes_per_step * leak.count / max(1, leak.bytes)
        pace = plural(round(rate), "node") if _number(rate) == count(round(rate)) else f"{rate:.1f} nodes"
        what = f"graph +{pace} a step (about {_amount(leak.bytes_per_step)})"
    else:
        what = f"+{_amount(leak.bytes_per_step)} a step on {leak.device}"
    if not leak.keeps or _amount(leak.bytes_per_step) == _amount(leak.total_bytes_per_step):
        return what
    return f"{what}, {'with what it keeps' if leak.kind == 'nodes' else 'in all'} {_total(leak)} a step"


def _total(leak: Leak, sign: str = "+") -> str:
    """The rate of an entry, with all that stands under it."""
    return f"{'about ' if leak.bytes_estimated else ''}{sign}{_amount(leak.total_bytes_per_step)}"


def _thousand_steps(leak: Leak) -> str:
    about = "about " if leak.bytes_estimated else ""
    return f"{about}+{_amount(leak.total_bytes_per_step * 1000)} per 1,000 steps"


def _frame_line(frame: Frame | None, where: str) -> str:
    return f"{where} in {function(frame)}" if frame is not None else where


def _prose(text: str, style: Style = "") -> list[Block]:
    return [Text(_INDENT + text, style, hang=len(_INDENT), prose=True)]


def _code(frame: Frame | None) -> list[Block]:
    return [Text(_DEEPER + code(frame), cut=True)] if code(frame) else []


# -- one leak ------------------------------------------------------------------------------------------------------


def _place(leak: Leak) -> list[Block]:
    """The line to look at with its code, and the others that belong to it."""
    blocks: list[Block] = []
    retained, made = leak.frame, leak.made_frame
    if leak.kind == "nodes" and leak.retained_at:
        verb = "made at" if any(one.put_at and not _is_at(leak, one.put_at) for one in _holders(leak)) else "kept by"
        blocks += [Text(f"{_INDENT}{verb} {_frame_line(retained, where(leak))}", "strong"), *_code(retained)]
        if made is not None and _line_of(made) != _line_of(retained):
            also = "and at" if verb == "made at" else "made at"
            blocks += [Text(f"{_INDENT}{also} {_frame_line(made, place(made))}{_share_of(made, leak)}"), *_code(made)]
    else:
        blocks += [Text(_INDENT + _frame_line(retained, where(leak)), "strong"), *_code(retained)]
    inner, ways = leak.library_frame, _ways(leak)
    listed = any(isinstance(way, Text) and "  in " in way.text for way in ways)
    if inner is not None and not listed:  # the list of library lines has it, with its share
        blocks.append(Text(f"{_INDENT}in {place(inner)} {inner.function}", "dim"))
    return blocks + ways


def _line_of(frame: Frame | None) -> tuple[str, int] | None:
    return None if frame is None else (frame.file, frame.line)


def _share_of(frame: Frame, leak: Leak) -> str:
    """How many of a graph's nodes come from this line: its forward lines are many, and none is to blame."""
    part = sum(part.bytes for part in leak.parts if _line_of(part.frame) == _line_of(frame))
    return f" ({share(part, leak.bytes)} of them)" if 0 < part < leak.bytes else ""


def _caller(stack: Stack) -> Frame | None:
    """The line of the user's that called the user's line."""
    own = [frame for frame in stack if not frame.is_library]
    return own[1] if len(own) > 1 else None


def _ways(leak: Leak) -> list[Block]:
    """Of several stacks: what tells them apart, their lines, their callers or the library lines below."""
    if len(leak.parts) < 2:
        return []

    def line(part: LeakPart) -> str:
        return _frame_line(part.frame, where(part))

    def caller(part: LeakPart) -> str:
        frame = _caller(part.stack)
        return _frame_line(frame, place(frame)) if frame is not None else ""

    def inner(part: LeakPart) -> str:
        return _frame_line(part.stack[0], place(part.stack[0])) if part.stack else ""

    for verb, name in (("made at", line), ("called from", caller), ("in", inner)):
        sums: dict[str, int] = {}
        for part in leak.parts:
            sums[name(part)] = sums.get(name(part), 0) + part.bytes
        if len(sums) < 2:
            continue
        if leak.kind == "nodes" and name is line:
            return []
        blocks: list[Block] = [
            Text(f"{_INDENT}{share(part_bytes, leak.bytes):>5}  {verb} {said or '(elsewhere)'}", "dim")
            for said, part_bytes in list(sums.items())[:_CALLERS]
        ]
        if len(sums) > _CALLERS:
            blocks.append(Text(f"{_INDENT}       and {plural(len(sums) - _CALLERS, 'more line')}", "dim"))
        return blocks
    return [Text(f"{_INDENT}on {len(leak.parts)} different stacks", "dim")]


def _is_of_nodes(leak: Leak, report: Report) -> bool:
    """Whether graph nodes, which are not tensors, are a share of an entry's bytes, or make them more than any peak."""
    total = leak.bytes + sum(one.bytes for one in leak.keeps)
    highest = max((device.peak.bytes for device in report.devices), default=0)
    return leak.kind == "nodes" and (leak.bytes * 10 >= total or total > highest)


def _beside_tensors(leak: Leak, report: Report) -> str:
    if not _is_of_nodes(leak, report):
        return ""
    part = f"about {_amount(leak.bytes_per_step)} of it "
    if _amount(leak.bytes_per_step) == _amount(leak.total_bytes_per_step):
        part = ""
    return f" ({part}graph nodes, beside tensors)"


def _nodes_of(leaks: Sequence[Leak], report: Report) -> list[Block]:
    """Why a row may have more bytes than the peak."""
    nodes = sum(leak.bytes for leak in leaks if _is_of_nodes(leak, report))
    what = f"about {size(nodes)} of this are graph nodes, no tensors: in the whole process, but in no peak of tensors"
    return [Text(f"  {what}", "dim", hang=4, prose=True)] if nodes else []


def alive(leak: Leak) -> str:
    """The bytes of an entry now, with all that stands under it."""
    return f"{'about ' if leak.bytes_estimated else ''}{size(leak.bytes + sum(one.bytes for one in leak.keeps))}"


def _account(leak: Leak, several_loops: bool) -> str:
    """How much it is now, since when, and where that leads."""
    loop = f" of {leak.loop}" if several_loops else ""
    often = _how_often(leak)
    if leak.kind == "nodes":
        now = f"{plural(leak.count, 'node')} (about {size(leak.bytes)} beside tensors) alive"
    else:
        now = f"{size(leak.bytes)} alive in {plural(leak.count, 'block')}"
    if leak.keeps:
        now += f", {'with what it keeps' if leak.kind == 'nodes' else 'in all'} {alive(leak)}"
    made = f"made in steps {leak.first_step} to {leak.last_step}{loop}"
    if leak.signature == "growing":
        how = f"older ones are replaced by more or larger ones, up to step {leak.last_step}{loop}"
    elif leak.kind == "nodes":
        how = made
    else:
        how = f"{made}, {often}" if often else made
    sure = "" if leak.confidence == "high" else f" Confidence: {leak.confidence}."
    return f"{now}; {how}. At this rate {_thousand_steps(leak)}.{sure}"


def _kept(leak: Leak) -> list[Block]:
    """What grows because of this entry, by why it stands under it."""
    blocks: list[Block] = []
    for relation in dict.fromkeys(one.relation for one in leak.keeps):
        rows = [one for one in leak.keeps if one.relation == relation]
        blocks.append(Text(_INDENT + _RELATIONS.get(relation, relation)))
        for one in rows[:_KEPT]:
            line = f"+{_amount(one.bytes_per_step)} a step  {_frame_line(one.frame, where(one))}"
            text = code(one.frame)
            blocks.append(Text(f"{_DEEPER}{line}  {text}" if text else _DEEPER + line, "dim", cut=True))
        if len(rows) > _KEPT:
            rest = sum(one.bytes_per_step for one in rows[_KEPT:])
            blocks.append(Text(f"{_DEEPER}+{_amount(rest)} a step  {plural(len(rows) - _KEPT, 'more line')}", "dim"))
    return blocks


def _holders(leak: Leak) -> Sequence[Holder]:
    """What stands under a leak is mostly held by the same names. What only reference cycles hold at the end had a name
    for a moment at most."""
    holders = leak.holders or next((one.holders for one in leak.keeps if one.holders), ())
    return [one for one in holders if one.path.startswith(CYCLE)] if leak.cause == "cycle" else holders


def why(leak: Leak) -> str:
    """Who holds the most of it; of a suspect, why it is no verdict."""
    return ". ".join(filter(None, (_holder(leak), reason(leak))))


def _holder(leak: Leak, short: bool = False) -> str:
    """Who holds the most of it, where that has a name, and the line that puts it there. short: the name alone."""
    if leak.cause == "cycle":
        return "held only by reference cycles"
    most = max(_holders(leak), key=lambda one: one.bytes, default=None)
    if most is None or not most.is_named:
        return ""
    path, line = held_views.said(most), most.put_at
    if short:
        path, line = path.split(" → ")[0], line.partition(" in ")[0]
    return f"{path}, put there by {line}" if line and not _is_at(leak, line) else path


def _held(leak: Leak) -> list[Block]:
    """Who holds it."""
    holders = _holders(leak)
    blocks: list[Block] = []
    for one in holders:
        part = f" ({share(one.bytes, sum(each.bytes for each in holders))})" if len(holders) > 1 else ""
        if one.step is not None and one.step < leak.last_step:
            part += f", as of step {one.step}"
        blocks += _prose(held_views.said(one) + part, "strong" if one.is_named else "")
        if one.put_at and not _is_at(leak, one.put_at):
            blocks += _prose(f"put there by {one.put_at}", "strong")
    return blocks


def _is_at(leak: Leak, line: str) -> bool:
    """Whether a leak's own line is this one (train.py:30, train.py:30 in Trainer.log)."""
    frame = leak.frame
    return frame is not None and line.partition(" in ")[0] == f"{Path(frame.file).name}:{frame.line}"


def held_as_it_grew(one: LineHolders) -> list[Block]:
    """Who held what grew on a line."""
    return [block for leak in one.leaks for block in (Text(f"{_rate(leak)} in {leak.loop}"), *_held(leak))]


def _is_gone(report: Report, leak: Leak) -> bool:
    """Whether what held it went before the recording ended, so that no search could find it."""
    if leak.cause == "cycle" or any(one.holders for one in (leak, *leak.keeps)):
        return False
    held = leak.bytes if leak.kind == "bytes" else sum(one.bytes for one in leak.keeps)
    return report.device(leak.device).kept < held


def entry(leak: Leak, several_loops: bool, number: int | None = None, holders: bool = True) -> list[Block]:
    """A leak with its line, who holds it, its size now and its growth."""
    title = _rate(leak) if number is None else f"{number}. {_rate(leak)}"
    blocks: list[Block] = [Text(), Text(title, "title"), *_place(leak)]
    blocks += [*(_held(leak) if holders else []), *_kept(leak)]
    blocks += _prose(_account(leak, several_loops))
    if leak.cause == "cycle":
        blocks += _prose(_CYCLE)
    return blocks


def _suspect(leak: Leak, holders: bool) -> list[Block]:
    now = size(leak.bytes)
    if leak.kind == "nodes":
        now = f"{plural(leak.count, 'node')}, about {now} beside tensors,"
    steps = f"made in steps {leak.first_step} to {leak.last_step}, {_total(leak)} a step"
    return [
        Text(),
        Text(f"?  {_frame_line(leak.frame, where(leak))}"),
        *_code(leak.frame),
        *(_held(leak) if holders else []),
        *_kept(leak),
        *_prose(f"{now} alive, {steps}: {reason(leak)}.", "dim"),
    ]


# -- what was judged -----------------------------------------------------------------------------------------------


def _judged(report: Report) -> dict[str, int]:
    """The loops with enough steps, and how many; those with a verdict in any case."""
    accused = {leak.loop for leak in (*report.leaks, *report.suspects)}
    return {loop: steps for loop, steps in report.loops.items() if steps >= STEPS_NEEDED or loop in accused}


def _steps_of(loops: dict[str, int], several: bool) -> str:
    """24 steps; 24 steps of training and 12 steps of evaluation"""
    named, rest = first_loops(loops)
    parts = [plural(loops[loop], "step") + (f" of {loop}" if several else "") for loop in named]
    *before, last = [*parts, rest] if rest else parts
    return f"{', '.join(before)} and {last}" if before else last


def _verdict(report: Report) -> list[Block]:
    """The headline: how many leaks in how many steps, or why nobody can tell."""
    loops, judged = report.loops, _judged(report)
    if not loops and report.steps:
        return [Text("Leaks: not judged, for no step has ended", "title")]
    if not loops:
        return [
            Text("Leaks: not judged, for no steps were seen", "title"),
            *_prose(
                "A leak is what grows from step to step. Steps are found by the optimizer's step, backward passes, the "
                "data loader's next batch or calls of one module; this recording has none of them. Mark the end of "
                "each pass of its loop yourself: with cuptimem.profile() as prof: ... prof.step()"
            ),
        ]
    if not judged:
        seen = _steps_of(loops, len(loops) > 1)
        return [
            Text(f"Leaks: not judged, for {seen} are too few ({STEPS_NEEDED} are needed)", "title"),
            *_prose(
                f"Steps are counted by {counted_by(report.clock)}. Record a run of at least {STEPS_NEEDED}; 20 or more "
                "make a clear answer. If your loop has shorter passes, mark the end of each: prof.step()"
            ),
        ]
    steps = _steps_of(judged, len(loops) > 1)
    blocks: list[Block] = [Text(_headline(report, steps), "title"), *process_views.causes(report)]
    short = {loop: steps for loop, steps in loops.items() if loop not in judged}
    if short:
        blocks += _prose(f"Not judged: {_steps_of(short, True)} ({STEPS_NEEDED} are needed).", "dim")
    return blocks


def _headline(report: Report, steps: str, largest: str = "") -> str:
    """One line: the leaks, else what may be one, else that there is none, and what grows all the same.

    largest: stands behind what it is the largest of.
    """
    undecided = _undecided(report)
    short = {loop: steps for loop, steps in report.loops.items() if loop not in _judged(report)}
    if report.leaks:
        also = f"; {_lower(undecided)}" if undecided else ""
        return f"{plural(len(report.leaks), 'leak')} in {steps}{largest}{also}"
    if undecided:
        shown = undecided.partition(" (")[0] if largest and len(report.undecided) == 1 else undecided
        return f"{shown}{largest}; {steps} judged"
    if report.process_growth is not None:
        return f"{process_views.headline(report.process_growth)}; no leak: {steps} judged"
    slow = [one for one in report.suspects if one.reason == "negligible"]
    if refused := garbage_views.refused(report):
        what = refused
    elif report.sawtooth is not None:
        what = garbage_views.sawtooth(report, report.sawtooth)
    elif slow:
        what = f"{where(slow[0])} grows by {_total(slow[0], sign='')} a step, negligible"
        what += f" (and {plural(len(slow) - 1, 'more line')})" if len(slow) > 1 else ""
    elif report.suspects:
        what = "what grew has stopped, was freed, or was garbage"
    elif unmeasured := process.unmeasured(report):
        what = f"no tensors grow, but the whole process by {size(unmeasured)} (what is in use was not measured)"
    else:
        what = "nothing grows" if report.nodes is not None else "no tensors grow"
        what += " in them" if short else ""
    others = f"; {_steps_of(short, True)} not judged" if short else ""
    return f"No leak: {steps} judged, {what}{others}"


def _undecided(report: Report) -> str:
    """Cannot tell: 2 lines grew in every step (+162.0 KiB a step)"""
    rows = report.undecided
    if not rows:
        return ""
    steady = all(_is_steady(row) for row in rows)
    rate = f"+{_amount(sum(row.total_bytes_per_step for row in rows))} a step"
    return f"Cannot tell: {plural(len(rows), 'line')} grew {'in every step ' if steady else ''}({rate})"


def _is_steady(leak: Leak) -> bool:
    """A copy of a model has many blocks: if it is made in few steps, their mean rate says nothing of each step."""
    return leak.signature == "growing" or (leak.count_per_step >= 0.95 and leak.reason != "few births")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _nodes(report: Report) -> list[Block]:
    if report.nodes is None:
        return _prose(f"Graph nodes: not available ({report.nodes_reason}).", "dim")
    return _prose(f"Graph nodes alive at the end of the last step: {count(report.nodes)}.", "dim")


# -- the views -----------------------------------------------------------------------------------------------------


def full(report: Report, top: int, holders: bool = True) -> list[Block]:
    """Every leak with its line, its size now and its growth; then the suspects, each with what speaks against it."""
    blocks: list[Block] = [Text(), *_verdict(report)]
    several = len(report.loops) > 1
    for number, leak in enumerate(report.leaks[:top], start=1):
        blocks += entry(leak, several, number, holders)
    blocks += _left_out(len(report.leaks) - top, "leaks")
    if holders and any(_is_gone(report, leak) for leak in report.leaks[:top]):
        most = report.environment.get("holders.early", "")
        early = _EARLY.format(count(int(most))) if most.isdecimal() else ""
        blocks += [Text(), *_prose(_GONE + early, "dim")]
    if report.suspects:
        blocks += [Text(), Text("Suspects: these grew, and each says why it is no verdict", "title")]
        for suspect in sorted(report.suspects, key=lambda one: not one.undecided)[:top]:
            blocks += _suspect(suspect, holders)
        blocks += _left_out(len(report.suspects) - top, "suspects")
    if report.steps:
        blocks += [Text(), *_nodes(report)]
    return blocks


def _left_out(number: int, what: str) -> list[Block]:
    return [Text(), Text(f"{_INDENT}{number} more {what} are not shown (-n)", "dim")] if number > 0 else []


def table(leaks: Sequence[Leak]) -> Table:
    """A row for each."""
    rows = tuple(
        (
            _total(leak),
            alive(leak),
            leak.device if leak.kind == "bytes" else plural(leak.count, "graph node"),
            where(leak),
            function(leak.frame),
            code(leak.frame),
        )
        for leak in leaks
    )
    columns = (
        Column("a step", right=True, style="strong"),
        Column("alive", right=True),
        Column("of", optional=2),
        LINE,
        FUNCTION,
        CODE,
    )
    return Table(columns, rows)


def line(report: Report) -> str:
    """All in one line: the headline, and the largest of what grows."""
    loops, judged = report.loops, _judged(report)
    if not loops:
        return f"leaks: not judged, {'no step has ended' if report.steps else 'no steps were seen'}"
    if not judged:
        return _lower(_TOO_FEW)
    found = next(iter(report.leaks or report.undecided), None)
    largest = ""
    if found is not None:
        holder = _holder(found, short=True)
        largest = f": {where(found)} {_total(found)} a step{_beside_tensors(found, report)}"
        largest += f", {holder}" if holder else ""
    return _lower(_headline(report, _steps_of(judged, len(loops) > 1), largest))


def at_peak(leaks: Sequence[LeakAtPeak], peak: int, of: str = "it") -> list[Block]:
    """A line for each: what the program keeps is no change's to save. of: how the `peak` bytes are called."""
    blocks: list[Block] = []
    for one in leaks:
        holder = _holder(one.leak, short=True)
        said = f"a leak has {size(one.bytes)} of {of} ({share(one.bytes, peak)}): {where(one.leak)}"
        blocks.append(Text(f"{said}{holder and ', '}{holder}", "warning", hang=2, prose=True))
    return blocks


def short(report: Report) -> list[Block]:
    """For the summary: the largest leaks, a row each; or one line: there is none, or it cannot be decided."""
    loops, judged = report.loops, _judged(report)
    if not loops:
        return []  # the summary says why there are no steps
    if not judged:
        return [Text(_TOO_FEW)]
    title = _headline(report, _steps_of(judged, len(loops) > 1))
    shown = report.leaks or report.undecided
    if not shown:
        return [Text(title)]
    blocks: list[Block] = [Text(title, "warning"), table(shown[:_IN_SUMMARY])]
    held = [(leak, holder) for leak in shown[:_IN_SUMMARY] if (holder := _holder(leak))]
    blocks += [Text(f"  {where(leak)} is {holder}", "dim", hang=4, prose=True) for leak, holder in held]
    if len(shown) > _IN_SUMMARY:
        blocks.append(Text(f"  and {len(shown) - _IN_SUMMARY} more", "dim"))
    return blocks + _nodes_of(shown, report)
