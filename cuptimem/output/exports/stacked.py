"""Contributors as stacks, outermost first: what speedscope, pprof and collapsed stacks have in common."""

from functools import lru_cache

from cuptimem.output.exports import Options, events
from cuptimem.output.exports.events import text
from cuptimem.report.model import Contents, Contributor, Report
from cuptimem.report.stacks import Frame

KINDS = ("peak", "end", "kept", "allocated", "temporary")
COMPACTED = "(compacted: the recording is past its bound)"


def opened(trace: str, options: Options) -> tuple[Report, tuple[str, ...], list[Contents]]:
    """The report, the kinds of contents that were asked for, and these of each device that was."""
    kinds: tuple[str, ...] = (options.what,) if options.what is not None else KINDS
    report = events.report(trace, options, tuple(kind for kind in kinds if kind != "peak"))
    if not report.steps:
        kinds = tuple(kind for kind in kinds if kind != "temporary")  # nothing is known to be temporary
    devices = [report.device(options.device)] if options.device is not None else report.devices
    return report, kinds, [report.contents(kind, device.name) for device in devices for kind in kinds]


def frames(contributor: Contributor) -> list[Frame | str]:
    """Outermost first, the autograd node or operator innermost; where no frame is known, the reason is the frame."""
    rows: list[Frame | str] = list(reversed(contributor.stack)) or [text(contributor.where)]
    return [*rows, operator_label(contributor)] if contributor.operator else rows


@lru_cache(1024)
def label(frame: Frame) -> str:
    """function (file:line)"""
    return "(deeper frames)" if frame.truncated else text(f"{frame.function} ({frame.place})")


def operator_label(contributor: Contributor) -> str:
    """The autograd node that ran, or the operator."""
    return operator_text(contributor.operator, contributor.phase)


def operator_text(operator: str | None, phase: str) -> str:
    return text(operator) + (" (backward)" if phase == "backward" else "")


def labels(contributor: Contributor) -> tuple[str, ...]:
    """Outermost first; the autograd node that ran, or the operator, is the innermost."""
    return tuple(frame if isinstance(frame, str) else label(frame) for frame in frames(contributor))


def root(device: str) -> str:
    return text(device)
