"""Advice as text: what to change, where, and what it saves; then what saves nothing, in a line for each reason."""

from collections.abc import Sequence

from cuptimem.output.text import leak_views
from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import plural, share, size
from cuptimem.report.advice import Advice, Estimate, Plan, Proposal
from cuptimem.report.model import Report

_QUICK = 20_000  # blocks: with more the summary waits for no advice
_BEST = 4

_WHOLE = 120  # a text of less is never cut: it stands under its row where there is no room beside it
PLACE = (
    Column("where", flexible=True, keep_end=True, least=12),
    Column("write", flexible=True, least=_WHOLE),
    Column("cost", flexible=True, least=_WHOLE),
)
_COLUMNS = (Column("saves", right=True), Column("share", right=True), Column("change"), *PLACE)


def advice(one: Advice) -> list[Block]:
    step = "" if one.step is None else f" in step {one.step}"
    blocks: list[Block] = [Text(f"peak {size(one.peak)} on {one.device}{step}", "title")]
    if one.note:
        blocks.append(Text(one.note, hang=2, prose=True))
    blocks += leak_views.at_peak(one.leaks, one.peak)
    if one.reason:
        return [*blocks, Text(f"Nothing is predicted: {one.reason}.")]
    for free, title in ((True, "free: no slower, equal up to rounding"), (False, "trades: each with its cost")):
        rows = [row for row in one.proposals if row.free is free]
        if rows:
            blocks += [
                Text(),
                Text(title, "strong"),
                Table(_COLUMNS, tuple(_row(row, one.peak) for row in rows), first=4),
            ]
    if not one.proposals:
        blocks += [Text(), Text("No change that is known here would save 2 % of it.")]
    if one.rejected:
        blocks += [Text(), *_silent(one)]
    return [*blocks, Text(), Text("Savings are predicted from the recording, each alone; they do not add up.", "dim")]


def short(report: Report) -> list[Block]:
    """The best changes in a line; nothing where the report has no single blocks, too many, or none would help."""
    return in_a_line(quick(report) if report.lived else None)


def in_a_line(one: Advice | None) -> list[Block]:
    rows = () if one is None else best(one, _BEST)
    if one is None or not rows:
        return []
    said = (f"{row.technique} {share(row.saved, one.peak)}" for row in rows)
    where = f" (of step {one.step})" if one.note and one.step is not None else ""
    return [Text(f"What would lower it{where}, each alone: {', '.join(said)}", hang=2)]


def quick(report: Report, device: str | None = None) -> Advice | None:
    """What is advised for a device (None: the first one) where that takes little time, else None."""
    if len(report.lives(device).blocks) > _QUICK:
        return None
    return report.advise(device)


def best(one: Advice, most: int) -> Sequence[Proposal]:
    """Those that save most, whatever they cost."""
    return sorted(one.proposals, key=lambda row: row.bytes)[:most]


def saving(one: Proposal, peak: int) -> str:
    """about 60.0 MiB (40 %)"""
    return f"{_about(one)}{size(one.saved)} ({share(one.saved, peak)})"


def sentence(one: Proposal, peak: int) -> str:
    """about 60.0 MiB (40 %): sgd, train.py:25: torch.optim.SGD without momentum and weight decay"""
    where = "" if one.frame is None else f", {one.frame.shown}"
    return f"{saving(one, peak)}: {one.technique}{where}: {one.write}"


def _about(one: Proposal) -> str:
    return "about " if one.confidence == "rough" else ""


def _row(one: Proposal, peak: int) -> tuple[str, ...]:
    return f"{_about(one)}{size(one.saved)}", share(one.saved, peak), one.technique, *place(one)


def place(one: Proposal) -> tuple[str, ...]:
    """As PLACE: where, what to write there, and what it costs."""
    return "" if one.frame is None else one.frame.shown, one.write, one.cost


def _silent(one: Advice) -> Sequence[Text]:
    """Names with a reason in common share a line."""
    reasons: dict[str, list[str]] = {}
    raised = []
    for row in one.rejected:
        if row.bytes is not None and row.bytes > one.peak:
            raised.append(f"{row.technique} by {size(row.bytes - one.peak)}")
        else:
            reasons.setdefault(row.reason or "less than 2 %", []).append(row.technique)
    lines = [Text(f"would raise this peak: {', '.join(raised)}", hang=2)] if raised else []
    said = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return [*lines, Text(f"saves nothing here: {said}", "dim", hang=2)] if said else lines


def estimate(one: Estimate) -> list[Block]:
    changes = ", ".join(name if not value else f"{name}={value}" for name, value in one.changes)
    less = one.bytes <= one.peak
    change = f"{share(abs(one.peak - one.bytes), one.peak)} {'less' if less else 'more'}"
    about = "about " if one.confidence == "rough" else ""
    text = f"{one.device}: {about}{size(one.bytes)} with {changes} (recorded: {size(one.peak)}, {change})"
    return [Text(text, "title"), *(Text(note) for note in one.notes)]


def plan(one: Plan) -> list[Block]:
    step = "" if one.step is None else f" in step {one.step}"
    title = f"peak {size(one.peak)} on {one.device}{step}"
    blocks: list[Block] = [Text(title, "title"), Text(_verdict(one), "strong", hang=2)]
    if one.note:
        blocks.append(Text(one.note, hang=2, prose=True))
    if one.changes:
        rows = tuple(
            (size(row.bytes), f"{_about(row)}{size(row.saved)}", row.technique, *place(row)) for row in one.changes
        )
        blocks += [
            Text(),
            Table((Column("peak then", right=True), Column("saves", right=True), *_COLUMNS[2:]), rows, first=4),
        ]
    tried = f"{plural(one.tried, 'set')} of changes tried"
    more = "" if one.complete else ", not all: another with fewer may be enough"
    said = "Predicted of what tensors have; PyTorch reserves more"
    return [*blocks, Text(), Text(f"{tried}{more}. {said}: cuptimem simulate says whether it fits.", "dim", hang=2)]


def _verdict(one: Plan) -> str:
    about = "about " if one.confidence == "rough" else ""
    if not one.changes:
        over = size(one.budget)
        return f"within {over} as it is" if one.fits else f"no change that is known here lowers it to {over}"
    number = plural(len(one.changes), "change")
    if one.fits:
        return f"{about}{size(one.bytes)} with {number}, {size(one.budget - one.bytes)} below {size(one.budget)}"
    missing = f"{about}{size(one.bytes - one.budget)} too much"
    return f"no changes that are known here lower it to {size(one.budget)}: {missing} with the best {number}"
