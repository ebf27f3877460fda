"""The whole process beside its tensors, in words."""

from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.words import signed, size
from cuptimem.report import process
from cuptimem.report.leaks import STEPS_NEEDED
from cuptimem.report.model import Report
from cuptimem.report.process import ProcessGrowth

_CAUSES = (
    "It can be a library's cache (oneDNN keeps a kernel for each new shape; with ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 it "
    "keeps one), heap that glibc keeps for later (MALLOC_ARENA_MAX=1 keeps less), Python objects and numpy arrays "
    "(tracemalloc counts both), files that are mapped, or what worker processes have sent."
)
_STEADY = 1 << 20  # bytes that the process's memory may change by at any time


def headline(one: ProcessGrowth) -> str:
    """The process grows by 126.7 MiB that no tensor explains (steps 31 to 298, about +486.0 KiB a step)"""
    steps = f"steps {one.first_step} to {one.last_step}"
    pace = f"about {signed(round(one.bytes_per_step))} a step"
    return f"The process grows by {size(one.bytes)} that no tensor explains ({steps}, {pace})"


def causes(report: Report) -> list[Block]:
    """What grows in a process where no tensor does."""
    if report.process_growth is None or report.leaks or report.undecided:
        return []
    return [Text(f"   {_CAUSES}", "dim", hang=3, prose=True)]


def trend(report: Report) -> list[Block]:
    """How the process went, over the steps behind its warm-up, as the devices' lines say it of live bytes."""
    measured = process.measured_steps(report)
    if len(measured) < STEPS_NEEDED:
        return []
    (first, begin), (last, end) = measured[0], measured[-1]
    if abs(end - begin) < _STEADY:
        return [Text(f"  whole process: {size(end)} at step ends, steady")]
    pace = signed(round((end - begin) / (len(measured) - 1)))
    return [
        Text(f"  whole process: {size(begin)} (step {first.index}) to {size(end)} (step {last.index}), {pace} a step")
    ]
