"""Answers about one recording, of which blocks, readers and single changes are worked out once."""

from cuptimem.advice import recorded
from cuptimem.advice.catalogue import TECHNIQUES
from cuptimem.advice.checkpoint import CHECKPOINT
from cuptimem.advice.in_place import IN_PLACE
from cuptimem.advice.no_grad import NO_GRAD
from cuptimem.advice.program import Program
from cuptimem.advice.readers import Readers, Variable
from cuptimem.advice.release import RELEASE
from cuptimem.advice.retained import RETAIN_GRAPH
from cuptimem.advice.technique import Change, Technique, worst
from cuptimem.advice.trainers import in_settings
from cuptimem.advice.views import CLONE_VIEW
from cuptimem.errors import Error
from cuptimem.report.advice import Advice, Estimate, Proposal, Rejected
from cuptimem.report.leaks_at_peak import at_peak
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame

LEAST = 0.02  # of the peak: less is no proposal


class Adviser:
    """device: None for the first one. readers: of another run of the same program, for the techniques that need them.

    Its methods raise Error.
    """

    def __init__(self, report: Report, device: str | None = None, readers: Readers | None = None) -> None:
        self._report = report
        self._peak = report.device(device).peak if device is not None else report.peak
        self._lived = recorded.of(report, self._peak.device)
        self._read = recorded.read(readers, self._peak.device)
        if isinstance(self._lived, recorded.Recorded):
            self._lived.program.beside = self._read
        self._alone: dict[tuple[str, bool], Change | str] = {}

    def advise(self) -> Advice:
        """Every technique that lowers the peak by at least 2 %."""
        peak, lived = self._peak, self._lived
        if isinstance(lived, str):
            alive = [((one.stack, one.phase), one.bytes) for one in peak.contributors]
            kept = tuple(at_peak(self._report.leaks, peak.device, peak.bytes, alive))
            return Advice(peak.device, peak.bytes, peak.step, reason=lived, leaks=kept)
        program = lived.program
        proposals: list[Proposal] = []
        rejected: list[Rejected] = []
        for one in TECHNIQUES:
            of = self._read if one.reads and self._read is not None else program
            if one.unread and of is program:
                rejected.append(Rejected(one.name, one.unread))
                continue
            change = self._change(one, of)
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
        kept = tuple(at_peak(self._report.leaks, peak.device, program.peak, alive))
        return Advice(
            peak.device, program.peak, lived.step, tuple(proposals), tuple(rejected), note=lived.note, leaks=kept
        )

    def estimate(self, **changes: object) -> Estimate:
        """The peak with all of these changes, as cuptimem.advice.estimate has them. Readers serve single ones."""
        known = {one.name: one for one in TECHNIQUES}
        program, note = self._recorded()
        if len(changes) == 1 and all(known[name].reads for name in changes if name in known):
            program = self._read or program
        blocks = program.blocks
        notes = [note] if note else []
        made: list[Technique] = []
        asked = tuple((name, "" if value is True else str(value)) for name, value in changes.items())
        for name, value in asked:
            if name not in known:
                raise Error(f"no change {name!r}: there are {', '.join(sorted(known))}")
            if value and not known[name].takes:
                raise Error(f"{name} takes no value, not {value!r}; what is left out is not made")
            if other := next((one for one in made if one.excludes(known[name])), None):
                raise Error(f"{name} does not go together with {other.name}")
            first = not value and blocks is program.blocks
            change = self._change(known[name], program) if first else known[name].rule(program, blocks, value)
            if not isinstance(change, Change):
                raise Error(f"{name} does not apply: {change}")
            blocks = change.blocks
            notes += [change.note] if change.note else []
            made.append(known[name])
        size, _ = program.replay(blocks)
        return Estimate(self._peak.device, program.peak, size, asked, worst(made), tuple(notes))

    def operators_in_place(self) -> tuple[tuple[str, int, str, str], ...]:
        """Those that the proposal of in_place names: file, line, operator, and the operand (self or other)."""
        change = self._of_readers(IN_PLACE)
        return change.operators if change is not None else ()

    def released(self) -> tuple[Variable, ...]:
        """The variables that the proposal of `release` deletes."""
        change = self._of_readers(RELEASE)
        return change.variables if change is not None else ()

    def without_graph(self) -> tuple[Frame, ...]:
        """The lines that the proposal of `no_grad` names."""
        change = self._of_readers(NO_GRAD)
        return change.lines if change is not None else ()

    def retained(self) -> tuple[Frame, ...]:
        """The lines that the proposal of `retain_graph` names."""
        change = self._of_readers(RETAIN_GRAPH)
        return change.lines if change is not None else ()

    def cloned(self) -> tuple[Frame, ...]:
        """The lines that the proposal of `clone_view` names."""
        change = self._of_readers(CLONE_VIEW)
        return change.lines if change is not None else ()

    def checkpointed(self) -> str:
        """The names of the modules that the proposal of `checkpoint` is about, "" for none."""
        change = "" if isinstance(self._lived, str) else self._change(CHECKPOINT, self._read or self._lived.program)
        return change.value if isinstance(change, Change) else ""

    def _recorded(self) -> tuple[Program, str]:
        if isinstance(self._lived, str):
            raise Error(f"nothing can be predicted: {self._lived}")
        return self._lived.program, self._lived.note

    def _of_readers(self, technique: Technique) -> Change | None:
        change = self._change(technique, self._read) if self._read is not None else ""
        return change if isinstance(change, Change) else None

    def _change(self, technique: Technique, program: Program) -> Change | str:
        """The technique alone, without a value."""
        key = technique.name, program is self._read
        if key not in self._alone:
            self._alone[key] = technique.rule(program, program.blocks, "")
        return self._alone[key]
