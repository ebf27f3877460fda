"""Of which part of a recording advice can be reckoned."""

from collections import Counter
from dataclasses import dataclass

from cuptimem.advice.program import Program
from cuptimem.advice.readers import Readers
from cuptimem.report.lives import Lives
from cuptimem.report.model import OutOfMemory, Report
from cuptimem.words import size

_FEW = 8  # types of less than this part of the parameters' bytes say nothing of the model


@dataclass(frozen=True, slots=True)
class Recorded:
    """step: that of the program's peak. note: why it is not the recorded peak's, or why that may not be the highest."""

    program: Program
    step: int | None
    note: str = ""


def read(readers: Readers | None, device: str) -> Program | None:
    """The program as a run with readers has it, for the techniques that need them."""
    if readers is None or device not in (one.name for one in readers.report.devices):
        return None
    found = of(readers.report, device, readers)
    return found.program if isinstance(found, Recorded) and found.program.read else None


def of(report: Report, device: str, readers: Readers | None = None) -> Recorded | str:
    """readers: of that run. A text says why nothing can be predicted."""
    if why := _why_not(report):
        return why
    lives, peak = report.lives(device), report.device(device).peak
    program = _program(report, lives, readers)
    if lives.cut or program.peak != peak.bytes:
        return "its blocks are too many to be kept one by one"
    refused = _refused(report, device)
    if refused is None:
        return Recorded(program, peak.step)
    note = f"memory was refused at {size(refused.allocated)}: what the program would have asked for next is unknown"
    return _ended(report, lives, readers) or Recorded(program, peak.step, note)


def _refused(report: Report, device: str) -> OutOfMemory | None:
    """The request that cut short the peak's step, or what came outside of all steps."""
    peak = report.device(device).peak
    for one in report.ooms:
        if one.escaped and one.device == device and one.step == peak.step:
            between = (step for step in report.steps if peak.time_ns <= step.end_ns <= one.time_ns)
            if peak.step is not None or not any(between):
                return one
    return None


def _ended(report: Report, lives: Lives, readers: Readers | None) -> Recorded | None:
    """Without the step that the refused request cut short, where an earlier one has a backward pass.

    The backward pass of a step that did not end is missing, and with it what checkpointing would make again.
    """
    peak = report.device(lives.device).peak
    if peak.step is None:
        return None
    program = _program(report, lives.before(peak.step), readers)
    step = next((one.step for one in program.steps if one.begin <= program.at < one.end), None)
    if step is None or not program.trained:
        return None
    note = f"memory was refused in step {peak.step}, at {size(peak.bytes)}; it did not end, so this is of step {step}"
    return Recorded(program, step, note)


def _why_not(report: Report) -> str:
    if report.compacted is not None:
        return "past its bound the recording has no single blocks"
    if report.lost.events:
        return "events were lost"
    if report.step is not None:
        return "the report is of one step"
    return ""


def _most(types: Counter[str]) -> frozenset[str]:
    """Without those of a few parameters: adapters beside the weights that they adapt."""
    return frozenset(one for one, size in types.items() if _FEW * size >= types.total())


def _program(report: Report, lives: Lives, readers: Readers | None) -> Program:
    device = report.device(lives.device)
    freed = device.garbage.freed_contributors if device.garbage is not None else ()
    cycles = [one for leak in report.leaks if leak.cause == "cycle" for one in (leak, *leak.keeps)]
    garbage = {one.stack for one in freed} | {part.stack for one in cycles for part in one.parts}
    types: Counter[str] = Counter()
    for one in device.peak.tensors:
        if one.category == "parameter" and one.dtype is not None:
            types[one.dtype] += one.bytes
    return Program(lives, report.clock.kind, frozenset(garbage), _most(types), readers)
