"""load_late: data of all steps that is on the device before the first one needs it. What a data set keeps."""

import re
from collections import defaultdict

from cuptimem.advice.program import FOREVER, Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, user_frame

_LATER = 2  # steps: a batch that is fetched ahead ends with the next one
_LEAST = 5  # blocks of one line: fewer may be a few constants
_DATA = ("input", "kept", "unknown", "temporary", "loaded")
_ASSIGNED = re.compile(r"^(\w+)\s*(?:,\s*\w+\s*)*(?::[^=]+)?=[^=]")


def is_cached(program: Program, block: Block) -> bool:
    """A sample that a data set keeps: neither the batch nor the model decides how many there are, and how large."""
    if block.phase != "data" or block.step < 0 or not program.steps:
        return False
    last = program.steps[-1].step if block.end_step is None else block.end_step
    return last - block.step >= _LATER


def _is_early(program: Program, block: Block) -> bool:
    """Made before the first step, and alive through the second."""
    return block.step < 0 and block.category in _DATA and (block.end == FOREVER or (block.end_step or 0) >= 1)


def _is_sliced(frame: Frame, sources: set[str]) -> bool:
    """Whether the line gives what it makes a name, of which lines that run in steps take parts."""
    found = _ASSIGNED.match(frame.source)
    if found is None:
        return False
    parts = re.compile(rf"\b{found[1]}(?:\[[^\]]*:[^\]]*\]|\.(?:split|chunk|narrow)\()")
    return any(parts.search(source) for source in sources)


def load_late(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Of many of one line, one is there at a time; of one that is read in parts, nothing but a part."""
    if program.device == "cpu":
        return "it lies in host memory already"
    lines: dict[object, list[Block]] = defaultdict(list)
    for block in blocks:
        if _is_early(program, block) and user_frame(block.of.stack) is not None:
            lines[block.of.stack, block.requested].append(block)
    sources = {
        frame.source
        for block in blocks
        if block.step >= 0
        for frame in block.of.stack
        if not frame.is_library
    }  # fmt: skip
    gone: dict[int, Block] = {}
    for made in lines.values():
        frame = user_frame(made[0].of.stack)
        if len(made) >= _LEAST:
            gone |= {id(block): block for block in made[1:]}
        elif len(made) == 1 and frame is not None and _is_sliced(frame, sources):
            gone[id(made[0])] = made[0]
    if not gone:
        return "no data of several steps is seen on the device before the first"
    largest = max(gone.values(), key=lambda one: one.bytes)
    edited = [block for block in blocks if id(block) not in gone]
    write = "leave it on the host here; .to(device) of what a step needs, in that step"
    return Change(edited, user_frame(largest.of.stack), write, "a copy from the host in each step")


LOAD_LATE = Technique("load_late", False, "good", load_late, costs="time")
