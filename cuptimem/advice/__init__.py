"""What to change in a program, and what peak it would have: predicted from a recording, on edited lives of its blocks.

A technique is a rule (technique.py) in a file of its kind. None subtracts from the old peak: each edits the list of
blocks, whose new maximum may lie elsewhere.
"""

from cuptimem.advice import recorded
from cuptimem.advice.budget import fit
from cuptimem.advice.catalogue import TECHNIQUES
from cuptimem.advice.checkpoint import CHECKPOINT
from cuptimem.advice.in_place import IN_PLACE
from cuptimem.advice.no_grad import NO_GRAD
from cuptimem.advice.program import Block
from cuptimem.advice.readers import Readers, Variable
from cuptimem.advice.release import released
from cuptimem.advice.technique import Change, Technique, worst
from cuptimem.advice.trainers import in_settings
from cuptimem.errors import Error
from cuptimem.report.advice import Advice, Estimate, Proposal, Rejected
from cuptimem.report.leaks_at_peak import at_peak
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame

LEAST = 0.02  # of the peak: less is no proposal

__all__ = ["advise", "estimate", "fit", "checkpointed", "operators_in_place", "unread", "without_graph"]


def advise(report: Report, device: str | None = None, readers: Readers | None = None) -> Advice:
    """Every technique that lowers the peak of a device (None: the first one) by at least 2 %.

    readers: of another run of the same program, for the techniques that need them. Raises Error.
    """
    peak = report.device(device).peak if device is not None else report.peak
    lived = recorded.of(report, peak.device)
    if isinstance(lived, str):
        alive = [((one.stack, one.phase), one.bytes) for one in peak.contributors]
        kept = tuple(at_peak(report.leaks, peak.device, peak.bytes, alive))
        return Advice(peak.device, peak.bytes, peak.step, reason=lived, leaks=kept)
    program, read = lived.program, recorded.read(readers, peak.device)
    program.beside = read
    proposals: list[Proposal] = []
    rejected: list[Rejected] = []
    for one in TECHNIQUES:
        of = read if one.reads and read is not None else program
        if one.unread and of is program:
            rejected.append(Rejected(one.name, one.unread))
            continue
        change = one.rule(of, of.blocks, "")
        if isinstance(change, str):
            rejected.append(Rejected(one.name, change))
            continue
        change = in_settings(of, one.name, change)
        saved = of.peak - of.replay(change.blocks)[0]
        size = program.peak - saved
        if saved < LEAST * program.peak:
            rejected.append(Rejected(one.name, "" if saved > 0 else one.nothing, size))
        else:
            row = (change.frame, change.write, change.cost, one.confidence)
            made = Proposal(one.name, one.free and change.is_sure, size, saved, *row)
            if any(other.technique == one.better and other.bytes <= size for other in proposals):
                rejected.append(Rejected(one.name, f"{one.better} saves as much", size))
            else:
                proposals.append(made)
    proposals.sort(key=lambda one: (not one.free, one.bytes))
    alive = [((block.of.stack, block.phase), block.bytes) for block in program.blocks if block.alive(program.at)]
    kept = tuple(at_peak(report.leaks, peak.device, program.peak, alive))
    return Advice(peak.device, program.peak, lived.step, tuple(proposals), tuple(rejected), note=lived.note, leaks=kept)


def operators_in_place(report: Report, readers: Readers | None) -> tuple[tuple[str, int, str, str], ...]:
    """Those that the proposal of in_place names: the file, the line, the operator and its operand (self or other)."""
    program = recorded.read(readers, report.peak.device)
    change = IN_PLACE.rule(program, program.blocks, "") if program is not None else ""
    return change.operators if isinstance(change, Change) else ()


def estimate(
    report: Report, device: str | None = None, readers: Readers | None = None, /, **changes: object
) -> Estimate:
    """The peak of a device with all of these changes: estimate(report, checkpoint="blocks.*", sgd=True).

    The names are those of Advice.proposals; a value is a pattern, a number, or True. readers: as of advise,
    of single changes. Raises Error.
    """
    peak = report.device(device).peak if device is not None else report.peak
    known = {one.name: one for one in TECHNIQUES}
    lived = recorded.of(report, peak.device)
    if isinstance(lived, str):
        raise Error(f"nothing can be predicted: {lived}")
    program = lived.program
    program.beside = recorded.read(readers, peak.device)
    if len(changes) == 1 and all(known[name].reads for name in changes if name in known):
        program = program.beside or program
    blocks: list[Block] = program.blocks
    notes = [lived.note] if lived.note else []
    made: list[Technique] = []
    asked = tuple((name, "" if value is True else str(value)) for name, value in changes.items())
    for name, value in asked:
        if name not in known:
            raise Error(f"no change {name!r}: there are {', '.join(sorted(known))}")
        if value and not known[name].takes:
            raise Error(f"{name} takes no value, not {value!r}; what is left out is not made")
        if other := next((one for one in made if one.excludes(known[name])), None):
            raise Error(f"{name} does not go together with {other.name}")
        change = known[name].rule(program, blocks, value)
        if not isinstance(change, Change):
            raise Error(f"{name} does not apply: {change}")
        blocks = change.blocks
        notes += [change.note] if change.note else []
        made.append(known[name])
    return Estimate(peak.device, program.peak, program.replay(blocks)[0], asked, worst(made), tuple(notes))


def unread(readers: Readers) -> list[Variable]:
    """The variables that a proposal of `release` deletes, of the first device."""
    program = recorded.read(readers, readers.report.peak.device)
    return released(program, program.blocks)[1] if program is not None else []


def checkpointed(report: Report, readers: Readers | None) -> str:
    """The names of the modules that a proposal of `checkpoint` is about, "" for none."""
    lived = recorded.of(report, report.peak.device)
    if isinstance(lived, str):
        return ""
    lived.program.beside = recorded.read(readers, report.peak.device)
    change = CHECKPOINT.rule(lived.program, lived.program.blocks, "")
    return change.value if isinstance(change, Change) else ""


def without_graph(readers: Readers) -> tuple[Frame, ...]:
    """The lines that a proposal of `no_grad` names, of the first device."""
    program = recorded.read(readers, readers.report.peak.device)
    change = NO_GRAD.rule(program, program.blocks, "") if program is not None else ""
    return change.lines if isinstance(change, Change) else ()
