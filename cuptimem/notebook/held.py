"""Which names of a notebook hold tensors: variables, outputs that IPython keeps (Out[3], _), the last traceback.

Blocks are found by the addresses of storages below each name. What no name leads to is shown as that: a library, a
thread, C++ or the autograd graph may hold it.
"""

import gc
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cuptimem.objects.reachable import Tensors, owner
from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import code, count, more, place, plural, size
from cuptimem.report.model import KeptBlock, Report
from cuptimem.report.stacks import user_frame

_MOST = 1 << 17  # objects looked at below one name
_LATEST = ("_", "__", "___")  # the last three results
_NAMES = 4  # shown of those that hold the same blocks
_ROWS = 8
TRACEBACK = "the traceback of the last exception"


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that the same names hold; no names: none leads to them."""

    names: tuple[str, ...]
    device: str
    bytes: int
    count: int
    blocks: tuple[KeptBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What is alive at the end of a cell, by the names that hold it."""

    made: tuple[Group, ...] = ()  # allocated in the cell, the most bytes first
    unknown: int = 0  # bytes allocated in the cell and alive that the report does not list one by one
    earlier: tuple[Group, ...] = ()  # made before the cell, and held by outputs that IPython keeps
    is_partial: bool = False  # below some name there was more than is looked at

    def names_of(self, blocks: Iterable[KeptBlock]) -> tuple[str, ...]:
        """Names that hold any of these blocks."""
        wanted = set(blocks)
        return tuple(dict.fromkeys(name for group in self.made if wanted & set(group.blocks) for name in group.names))


def find(shell: Any, report: Report) -> Held:
    """Looks below every name of the shell's user. The report must have the table "kept"."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "UntypedStorage"):
        return Held()
    tensors = Tensors(torch)
    names_at: dict[int, list[str]] = {}
    sizes: dict[int, int] = {}
    is_partial = False
    for name, roots in _roots(shell):
        seen: dict[int, Any] = {id(shell.user_ns): shell.user_ns}
        found = tensors.below(roots, _may_enter, _MOST, seen)
        is_partial |= len(seen) >= _MOST
        sizes.update(found)
        for address in found:
            names_at.setdefault(address, []).append(name)
    made: dict[tuple[tuple[str, ...], str], list[KeptBlock]] = {}
    for block in report.kept_blocks:
        key = (tuple(names_at.get(block.address, ())), block.device)
        made.setdefault(key, []).append(block)
    known = {block.address for block in report.kept_blocks}
    groups = [
        Group(names, device, sum(b.bytes for b in blocks), len(blocks), tuple(blocks))
        for (names, device), blocks in made.items()
    ]
    unlisted = sum(device.kept for device in report.devices) - sum(group.bytes for group in groups)
    # With blocks that are not listed, "not in the list" does not mean "made before".
    earlier = _earlier(names_at, sizes, known) if not unlisted else ()
    return Held(tuple(sorted(groups, key=lambda group: -group.bytes)), unlisted, earlier, is_partial)


def _earlier(names_at: dict[int, list[str]], sizes: dict[int, int], made: set[int]) -> tuple[Group, ...]:
    """Storages made before, where an output or a traceback is the only holder: what people forget."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for address, names in names_at.items():
        if address not in made and sizes[address] and all(map(_is_kept_by_ipython, names)):
            groups.setdefault(tuple(names), []).append(sizes[address])
    rows = [Group(names, "", sum(found), len(found)) for names, found in groups.items()]
    return tuple(sorted(rows, key=lambda group: -group.bytes))


def _is_kept_by_ipython(name: str) -> bool:
    return name.startswith("Out[") or name in _LATEST or name == TRACEBACK


def _roots(shell: Any) -> Iterator[tuple[str, list[Any]]]:
    """Names as a user would write them, variables first."""
    space = shell.user_ns
    hidden = shell.user_ns_hidden
    outputs = space.get("Out") if isinstance(space.get("Out"), dict) else {}
    for name, value in list(space.items()):
        is_users = isinstance(name, str) and not name.startswith("_") and name not in ("In", "Out")
        if is_users and hidden.get(name, hidden) is not value:
            yield name, [value]
    for number, value in list(outputs.items()):
        yield f"Out[{number}]", [value]
    for name in _LATEST:
        if name in space:
            yield name, [space[name]]
    yield TRACEBACK, _kept_by_exception(getattr(sys, "last_value", None))


def _kept_by_exception(error: object) -> list[Any]:
    """Local variables of the functions in an exception's traceback, and of those that it came from."""
    values: list[Any] = []
    errors: list[BaseException] = []
    while isinstance(error, BaseException) and not any(error is known for known in errors):
        errors.append(error)
        traceback = error.__traceback__
        while traceback is not None:
            frame = traceback.tb_frame
            if frame.f_code.co_flags & inspect.CO_NEWLOCALS:  # of a function: the notebook's variables have names
                around = (frame.f_globals, frame.f_builtins, frame.f_back, frame.f_code)
                # Asking for f_locals would make a dictionary that keeps the tensors longer.
                values += [one for one in gc.get_referents(frame) if not any(one is other for other in around)]
            traceback = traceback.tb_next
        error = error.__cause__ or error.__context__
    return values


def _may_enter(one: Any) -> bool:
    """Not into what leads everywhere: classes, modules, frames, IPython itself."""
    kind = type(one)
    if issubclass(kind, (type, types.ModuleType, types.CodeType, types.FrameType)):
        return False
    return owner(kind).partition(".")[0] not in ("IPython", "ipykernel", "traitlets", "cuptimem")


# -- in words ------------------------------------------------------------------------------------------------------


def text(names: tuple[str, ...]) -> str:
    """Out[3], _"""
    if not names:
        return "(no name: autograd's graph, a library or a thread)"
    return ", ".join(names[:_NAMES]) + more(len(names) - _NAMES)


def blocks(held: Held) -> list[Block]:
    """What a notebook shows of it."""
    said: list[Block] = []
    if held.made:
        total = sum(group.bytes for group in held.made) + held.unknown
        said.append(Text(f"Alive at the end of the cell, of what it allocated: {size(total)}", "title"))
        rows = [(size(g.bytes), count(g.count), g.device, text(g.names), _largest(g)) for g in held.made[:_ROWS]]
        rest = held.made[_ROWS:]
        if rest:
            rows.append((size(sum(g.bytes for g in rest)), count(sum(g.count for g in rest)), "", "(others)", ""))
        if held.unknown:
            rows.append((size(held.unknown), "", "", "(not listed one by one)", ""))
        columns = (
            Column("alive", right=True, style="strong"),
            Column("blocks", right=True),
            Column("device"),
            Column("held by", flexible=True),
            Column("largest from", flexible=True),
        )
        said.append(Table(columns, tuple(rows)))
    said += [Text(_earlier_line(group), "warning") for group in held.earlier[:_ROWS]]
    if held.is_partial:
        said.append(Text(f"only the first {count(_MOST)} objects below each name were looked at", "dim"))
    return said


def _earlier_line(group: Group) -> str:
    verb = "hold" if len(group.names) > 1 else "holds"
    what = f"{size(group.bytes)} in {plural(group.count, 'tensor')} of an earlier cell"
    return f"! {text(group.names)} still {verb} {what}{_how_to_free(group.names)}"


def _how_to_free(names: tuple[str, ...]) -> str:
    if all(name == TRACEBACK for name in names):
        return "; the next exception frees it"
    if TRACEBACK in names:
        return ""
    return "; %reset -f out frees it"


def _largest(group: Group) -> str:
    block = max(group.blocks, key=lambda one: one.bytes)
    frame = user_frame(block.stack)
    return f"{place(frame)}  {code(frame)}" if frame is not None else "(no Python line)"
