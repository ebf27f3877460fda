"""host_snapshot: copies of weights and states that wait on the device to be loaded again, as the best ones of a run."""

import re
from collections import defaultdict
from collections.abc import Iterator

from cuptimem.advice.program import Block, Program, lines_of
from cuptimem.advice.technique import UNREAD, Change, Technique
from cuptimem.report.stacks import Frame, user_frame

_SOURCES = ("parameter", "buffer", "optimizer state")
_MOST = 0.5  # of the bytes that a line copies
_CLONE, _COPY = re.compile(r"^aten\.(?:clone|_to_copy)\."), re.compile(r"^aten\.copy_\.")
_STORAGE = re.compile(r"^aten\.set_\.")  # copy.deepcopy() gives a tensor another storage, and copies into that
_MAPPING = "{name: value.cpu() for name, value in model.state_dict().items()} in the place of this copy"
_TENSOR = ".cpu() in the place of this copy"
_COST = "care: these steps read it to load it again at most, later ones may do more; a copy to the host"


def _copies(program: Program, blocks: list[Block]) -> Iterator[tuple[Block, bool]]:
    """Copies that are read by nothing but copies, and whether they are known to be of what lasts."""
    lives = [(block, life) for block in blocks if (life := program.life(block)) is not None]
    sources = {block.birth for block, _ in lives if block.category in _SOURCES}
    copied = {  # by the number of the copy
        one.number for block, life in lives if block.birth in sources for one in life.reads if _COPY.match(one.operator)
    }
    for block, life in lives:
        first = min((one.number for one in life.reads), default=-1)
        is_copy = _CLONE.match(life.operator) or (_STORAGE.match(life.operator) and first >= 0)
        if is_copy and block.birth not in sources and all(_COPY.match(one.operator) for one in life.reads):
            yield block, first in copied if _STORAGE.match(life.operator) else not sources.isdisjoint(life.inputs)


def _of_one_line(program: Program, blocks: list[Block]) -> dict[Frame, list[Block]]:
    """By the line that copies them. Weights that a library has joined have no life, so their copies have no source:
    these go with the others of their line."""
    found: dict[Frame, list[tuple[Block, bool]]] = defaultdict(list)
    for block, is_known in _copies(program, blocks):
        if (frame := user_frame(block.of.stack)) is not None:
            found[frame].append((block, is_known))
    lines = {}
    for frame, made in found.items():
        known = sum(block.bytes for block, is_known in made if is_known)
        if known >= _MOST * sum(block.bytes for block, _ in made):
            lines[frame] = [block for block, _ in made]
    return lines


def host_snapshot(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Nothing of them is on the device."""
    if program.device == "cpu":
        return "it lies in host memory already"
    if not program.read:
        return UNREAD
    lines = _of_one_line(program, blocks)
    if not lines:
        return "no copy of weights waits on the device to be loaded again"
    gone = {id(block) for made in lines.values() for block in made}
    frame, *_ = lines_of((line, block.bytes) for line, made in lines.items() for block in made)
    write = _MAPPING if "state_dict" in frame.text else _TENSOR
    return Change([block for block in blocks if id(block) not in gone], frame, write, _COST)


HOST_SNAPSHOT = Technique(
    "host_snapshot",
    False,
    "exact",
    host_snapshot,
    "no copy of weights is there at the peak",
    reads=True,
    costs="time",
)
