"""load_late: data of all steps that is on the device before the first one needs it. What a data set keeps."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from cuptimem.advice.program import FOREVER, Block, Program
from cuptimem.advice.readers import Read
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, user_frame

_LATER = 2  # steps: a batch that is fetched ahead ends with the next one
_PARTS = 2  # reads
_LEAST = 5  # blocks of one line: fewer may be a few constants
_DATA = ("input", "kept", "unknown", "temporary", "loaded")
# Operators that hand on a view, and those that take some of the rows.
_VIEWS = re.compile(
    r"alias|as_strided|detach|expand|narrow|permute|select|slice|split\w*|squeeze|t|transpose|unbind|unfold|unsqueeze|view"
)
_TAKES = frozenset({"embedding", "gather", "index", "index_select", "take"})
_UPDATES = re.compile(r"^aten\.(?!copy_|fill_|index_copy_|index_put_|set_|zero_)[a-z]\w*_\.")  # in place
_WRITES = re.compile(r"^aten\.(?:copy_|fill_|index_copy_|index_put_|zero_)\.")
_VIEW = -1
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


def _first(program: Program, block: Block) -> int:
    """Where steps begin; of a program without any, all reads are taken as theirs."""
    return program.steps[0].begin if program.steps else block.birth


def _made_of(program: Program, made: Iterable[Block], early: Mapping[int, Block]) -> Iterator[Block]:
    """What was read to make these, and by nothing in steps: the device does not need it either. early: by birth."""
    following, seen = list(made), set[int]()
    while following:
        life = program.life(following.pop())
        for birth in life.inputs if life is not None else ():
            block = early.get(birth)
            source = program.life(block) if block is not None else None
            if block is None or source is None or birth in seen:
                continue
            if all(one.at <= _first(program, block) for one in source.reads):
                seen.add(birth)
                following.append(block)
                yield block


def _read_part(read: Read, is_index: bool) -> int | None:
    """Bytes; 0 of rows that it picks, None: all, or not known, _VIEW: it hands on a view."""
    name = read.operator.split(".")[1] if "." in read.operator else read.operator
    if _VIEWS.fullmatch(name):
        return _VIEW
    return 0 if name in _TAKES and read.bytes is None and not is_index else read.bytes


def _part(program: Program, block: Block, picked: Mapping[int, int]) -> int | None:
    """The most that steps read of it at once, where they take parts alone: 0 of rows that an operator picks, which it
    puts into a block of its own. None: it is read whole, or that is not known. picked: of each operator the birth of
    what it picks from, of which another block is the index."""
    life, first = program.life(block), _first(program, block)
    reads = [one for one in life.reads if one.at > first] if life is not None else []
    if any(_UPDATES.search(one.operator) for one in reads):
        return None  # it is computed with
    parts = {
        one: part
        for one in reads
        if (part := _read_part(one, picked.get(one.number, block.birth) != block.birth)) != _VIEW
    }
    writes = {one for one in parts if _WRITES.match(one.operator)}
    if writes and any(part for one, part in parts.items() if one not in writes):
        return None  # a cache, which is read as far as it is written; of what steps collect they pick rows
    sizes = [one for one in parts.values() if one is not None and 2 * one <= block.requested]
    return max(sizes) if len(sizes) == len(parts) >= _PARTS else None


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
    picked = {one.number: one.inputs[0] for one in program.read.values() if one.inputs}
    gone: dict[int, Block] = {}
    parts: dict[int, int] = {}  # of these, what stays on the device
    for made in lines.values():
        frame = user_frame(made[0].of.stack)
        known = {id(block): part for block in made if (part := _part(program, block, picked)) is not None}
        if known:
            gone |= {id(block): block for block in made if id(block) in known}
            parts |= known
        elif len(made) >= _LEAST:
            gone |= {id(block): block for block in made[1:]}
        elif len(made) == 1 and frame is not None and program.life(made[0]) is None and _is_sliced(frame, sources):
            gone[id(made[0])] = made[0]
    early = {block.birth: block for some in lines.values() for block in some}
    whole = [gone[key] for key in parts]
    gone |= {id(block): block for block in _made_of(program, whole, early)}
    if not gone:
        return "no data of several steps is seen on the device before the first"
    largest = max(gone.values(), key=lambda one: one.bytes)
    edited = [block for block in blocks if id(block) not in gone]
    edited += [program.with_bytes(gone[key], part) for key, part in parts.items() if part]
    write = "leave it on the host here; .to(device) of what a step needs, in that step"
    return Change(edited, user_frame(largest.of.stack), write, "a copy from the host in each step")


LOAD_LATE = Technique("load_late", False, "good", load_late, reads=True, costs="time")
