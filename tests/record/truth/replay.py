"""A plain replay of a trace in Python: what is alive, and whose line it is. It shares nothing with csrc/analysis."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cuptimem import Frame, _core

ALLOC, FREE, SEED, LOST, TICK, THREAD = "alloc", "free", "seed", "lost", "tick", "thread"
NODE_NEW, NODE_RUN, NODE_DONE = "node_new", "node_run", "node_done"
IN_NODE, NODE_STACK = 1, 2
NO_SEQUENCE = (1 << 64) - 1

Stack = tuple[tuple[Any, ...], ...]


class Row(NamedTuple):
    kind: str
    time_ns: int
    thread: int
    address: int
    size: int
    origin: Any  # frames (innermost first) of allocations, node creations and ticks; a name or number elsewhere
    flags: int
    device_type: int
    device_index: int


def rows(path: Path | str) -> list[Row]:
    """Every event of the trace in the order of the file (and of the ring behind it, if its process is dead)."""
    return [Row(*row) for row in _core.trace_dump(str(path)) if row[0] != "end"]


def end(path: Path | str) -> tuple[Any, ...]:
    """("end", state, reason, what is wrong, lost events, lost stacks, start) of the trace."""
    return tuple(_core.trace_dump(str(path))[-1])


@dataclass
class Block:
    address: int
    size: int
    stack: Stack  # own
    forward: Stack  # of the node that ran; () where there was none
    charged: Stack  # the stack it is charged to
    in_node: bool
    seeded: bool


def without_the_user(stack: Stack) -> bool:
    """Whether no frame that is newer than the innermost call of autograd's engine is the user's."""
    for file, *_ in stack:
        if file is None:
            return False
        if file.endswith("/torch/autograd/__init__.py"):
            return True
        if not Frame(file, "", 0).is_library:
            return False
    return bool(stack)


@dataclass
class Result:
    live: dict[int, Block]
    bytes: int
    peak: int
    peak_at: int  # index of the row that reached it
    allocations: int
    frees: int
    unknown_frees: int
    duplicates: int
    lost: int
    backward_bytes: int
    resolved_bytes: int  # of backward_bytes, those that got a forward line
    unresolved: list[Block]
    born: list[Block]  # every block, in order
    at_peak: dict[int, Block]


def replay(events: Iterable[Row], *, snapshot_peak: bool = True) -> Result:
    events = list(events)
    first: dict[int, str] = {}
    for row in events:
        if row.kind in (ALLOC, FREE) and row.address not in first:
            first[row.address] = row.kind
    live: dict[int, Block] = {}
    born: list[Block] = []
    total = peak = 0
    peak_at = -1
    unknown = duplicates = lost = allocations = frees = backward = resolved = 0
    unresolved: list[Block] = []
    for row in events:  # a seed counts from the start, if the first event of its address is not an allocation
        if row.kind == SEED and first.get(row.address) != ALLOC and row.address not in live:
            live[row.address] = block = Block(row.address, row.size, (), (), (), False, True)
            born.append(block)
            total += row.size
    peak = total
    autograd_thread: dict[int, int] = {}  # our thread -> autograd's id
    # (thread, sequence) -> stack, and the node it was made in
    made: dict[tuple[int, int], tuple[Stack, tuple[int, int] | None]] = {}
    running: dict[int, list[tuple[int, int]]] = {}
    pending: dict[int, list[tuple[int, Stack, tuple[int, int] | None]]] = {}
    before_accumulate: dict[int, tuple[int, int] | None] = {}
    for index, row in enumerate(events):
        own: Stack = row.origin if isinstance(row.origin, tuple) else ()
        if row.kind == THREAD and row.size:
            autograd_thread[row.thread] = row.size
            for sequence, stack, inside in pending.pop(row.thread, []):
                made[row.size, sequence] = (stack, inside)
        elif row.kind == NODE_NEW:
            stack_of = running.get(row.thread)
            inside = stack_of[-1] if stack_of else None
            owner = autograd_thread.get(row.thread)
            if owner is None:
                pending.setdefault(row.thread, []).append((row.address, own, inside))
            else:
                made[owner, row.address] = (own, inside)
        elif row.kind == NODE_RUN:
            nested = running.setdefault(row.thread, [])
            key = (row.size, row.address)
            if row.address == NO_SEQUENCE:
                key = before_accumulate.get(row.thread) or key
            else:
                before_accumulate[row.thread] = key
            nested.append(key)
        elif row.kind == NODE_DONE:
            if running.get(row.thread):
                running[row.thread].pop()
        elif row.kind == ALLOC:
            allocations += 1
            if row.address in live:
                duplicates += 1
                total -= live[row.address].size
            forward: Stack = ()
            charged = own
            if row.flags & IN_NODE:
                backward += row.size
                nested = running.get(row.thread)
                key = nested[-1] if nested else None
                seen = set()
                while key is not None and key not in seen:
                    seen.add(key)
                    stack, inside = made.get(key, ((), None))
                    if stack:
                        forward = stack
                    key = inside
                if row.flags & NODE_STACK or (forward and without_the_user(own)):
                    charged = forward
            block = Block(row.address, row.size, own, forward, charged, bool(row.flags & IN_NODE), False)
            if block.in_node:
                if charged:
                    resolved += row.size
                else:
                    unresolved.append(block)
            live[row.address] = block
            born.append(block)
            total += row.size
            if total > peak:
                peak, peak_at = total, index
        elif row.kind == FREE:
            gone = live.pop(row.address, None)
            if gone is None:
                unknown += 1
            else:
                frees += 1
                total -= gone.size
        elif row.kind == LOST:
            lost += row.size
    at_peak: dict[int, Block] = {}
    if snapshot_peak and peak_at >= 0:
        before = replay(events[: peak_at + 1], snapshot_peak=False)
        seeds = {a: b for a, b in before.live.items() if not b.seeded or first.get(a) != ALLOC}
        at_peak = seeds
    elif snapshot_peak:
        at_peak = {b.address: b for b in born if b.seeded}
    return Result(
        live, total, peak, peak_at, allocations, frees, unknown, duplicates, lost, backward, resolved, unresolved, born,
        at_peak,
    )  # fmt: skip


def died_in_step(events: Iterable[Row], found: Result, bounds: list[tuple[int, int]]) -> list[Block]:
    """Blocks of the replay that were freed between the same two bounds of steps that they were made between.

    A bound is a tick, or the first event of what leads to one: the trace's begin, a node, the batch's allocation.
    """
    step_of: list[int] = []  # of each row: how many bounds lie before it
    events = list(events)
    times = sorted({time for pair in bounds for time in pair})
    ticks = {row.time_ns for row in events if row.kind == TICK}
    passed = int(times[0] <= events[0].time_ns)
    for row in events:
        while passed < len(times) and row.time_ns >= times[passed] and (row.kind == TICK or times[passed] not in ticks):
            passed += 1
        step_of.append(passed)
    born = iter(block for block in found.born if not block.seeded)
    made: dict[int, tuple[Block, int]] = {}
    died = []
    for row, step in zip(events, step_of, strict=True):
        if row.kind == ALLOC:
            made[row.address] = (next(born), step)
        elif row.kind == FREE and row.address in made:
            block, birth = made.pop(row.address)
            if birth == step and 0 < step < len(times):
                died.append(block)
    return died


def live_set(path: Path | str) -> dict[int, int]:
    """address -> bytes of what is alive where the trace ends."""
    return {a: b.size for a, b in replay(rows(path), snapshot_peak=False).live.items()}
