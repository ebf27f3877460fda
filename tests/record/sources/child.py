"""What every test program in a child process starts with: a capture of its own, and a few helpers.

Importing this starts the capture and records nothing yet; `core.capture_record(True)` does.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from cuptimem import _core as core

IN_NODE, NODE_STACK, BEFORE_START = 1, 2, 4
MARK_SEEDED, MARK_LATE_HOOKS = 3, 4
ALLOC, FREE, OOM, RESERVED = "alloc", "free", "oom", "reserved"
NODE_NEW, NODE_RUN, NODE_DONE, NODE_FREE = "node_new", "node_run", "node_done", "node_free"
THREAD, TICK, OBJECT_NEW, SEED, MARK = "thread", "tick", "object_new", "seed", "mark"

_folder = tempfile.mkdtemp(dir=os.getcwd())
_traces = 0


def start() -> None:
    """A new capture, in a file of its own."""
    global _traces
    why = core.frames_init()
    assert why is None, why
    _traces += 1
    core.capture_start(trace(), {})


def trace() -> str:
    return str(Path(_folder) / f"{_traces}.cmem")


def restart() -> None:
    """Ends the running capture and starts another one."""
    core.capture_record(False)
    assert core.capture_stop() == ""
    start()


def keep_pace() -> None:
    """For loops without end: no faster than a collector that shares its core with others can write."""
    while core.capture_active() and core.capture_counts()["ring_blocks_used"] > 400:
        time.sleep(0.001)


start()


class Event:
    """One recorded event, with the fields of csrc/base/event.h; `origin` is its stack or name."""

    __slots__ = ("kind", "time", "thread", "address", "size", "origin", "flags", "type", "index")

    def __init__(self, row: tuple[Any, ...]) -> None:
        (self.kind, self.time, self.thread, self.address, self.size, self.origin, self.flags, self.type, self.index) = (
            row
        )

    def __repr__(self) -> str:
        return f"Event({self.kind}, address={self.address:#x}, size={self.size}, flags={self.flags})"

    def frames(self) -> list[tuple[str, str, int]]:
        """(file, function, line), innermost first."""
        return [(frame[0], frame[2], frame[1]) for frame in self.origin]


def events(*kinds: str) -> list[Event]:
    """Everything that the sources recorded so far. What this allocates itself is Python's, not PyTorch's."""
    if core.capture_active():
        core.capture_sync()
    rows = core.trace_dump(trace())
    assert rows[-1][0] == "end" and rows[-1][4:6] == (0, 0), rows[-1]
    return [e for e in map(Event, rows[:-1]) if (e.kind in kinds if kinds else e.kind != "sample")]


class Heap:
    """The live set of the CPU that the recorded events describe, and what is wrong with them."""

    def __init__(self) -> None:
        self.live: dict[int, Event] = {}
        self.duplicates: list[Event] = []
        self.unknown_frees: list[Event] = []
        for e in events(ALLOC, FREE, SEED):
            if e.type != 0:
                continue
            if e.kind == FREE:
                if self.live.pop(e.address, None) is None:
                    self.unknown_frees.append(e)
            else:
                if e.address in self.live:
                    self.duplicates.append(e)
                self.live[e.address] = e

    def sizes(self) -> dict[int, int]:
        return {a: e.size for a, e in self.live.items()}


def alive() -> dict[int, int]:
    """Address -> bytes of every CPU storage that Python or autograd's graph holds: the truth to compare with.

    Shares no code with cuptimem.objects.seed: it unpacks saved tensors through their public attributes.
    """
    import gc

    import torch

    gc.collect()
    found: dict[int, int] = {}
    roots = []

    def add(tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if storage.device.type == "cpu" and storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()

    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and item.layout == torch.strided:
            add(item)
            if item.is_leaf and item.grad is not None:
                add(item.grad)
            if item.grad_fn is not None:
                roots.append(item.grad_fn)
    seen = set()
    while roots:
        node = roots.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        roots += [following for following, _ in node.next_functions]
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    value = getattr(node, name)
                except RuntimeError:  # released
                    continue
                for tensor in value if isinstance(value, tuple) else (value,):
                    if isinstance(tensor, torch.Tensor):
                        add(tensor)
    return found


def saved_tensors_tell() -> bool:
    """Whether a saved tensor says if it has hooks (torch 2.10 and later); before, a walk at start leaves it out."""
    import torch

    return hasattr(torch._C._autograd.SavedTensor, "unpack_hook")


def slots(library: str, symbol: str) -> list[int]:
    """Addresses of the slots through which a loaded library calls a symbol, by its own file's relocations."""
    from elf import relocations

    path, base = next(
        (fields[5], int(fields[0].split("-")[0], 16))
        for fields in map(str.split, Path("/proc/self/maps").read_text().splitlines())
        if len(fields) > 5 and fields[5].endswith("/" + library) and int(fields[2], 16) == 0
    )
    return [base + offset for offset, kind, name in relocations(path) if name == symbol and kind != "other"]


def report(**values: Any) -> None:
    """The program's answer to its test; the last line of its output."""
    import json

    if core.capture_active():
        core.capture_record(False)
        assert core.capture_stop() == ""
    print("\n" + json.dumps(values, default=str))
