"""What every test program in a child process starts with: the test's own `_core`, and a few helpers.

`cuptimem` is made a plain package here, without its `__init__`: these tests concern the sources alone.
"""

import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

ALLOC, FREE, OOM, RESERVED, NODE_NEW, NODE_RUN, NODE_DONE, NODE_FREE, THREAD, TICK, OBJECT_NEW, SEED, MARK = range(1, 14)
IN_NODE, NODE_STACK, BEFORE_START = 1, 2, 4


def load() -> Any:
    package = types.ModuleType("cuptimem")
    package.__path__ = [str(ROOT / "cuptimem")]
    sys.modules["cuptimem"] = package
    spec = importlib.util.spec_from_file_location("cuptimem._core", os.environ["CUPTIMEM_TEST_CORE"])
    assert spec is not None and spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    sys.modules["cuptimem._core"] = core
    package._core = core  # type: ignore[attr-defined]
    core.double_fork_handlers()
    return core


core = load()


class Event:
    """One recorded event, with the fields of csrc/capture/event.h."""

    __slots__ = ("kind", "address", "size", "stack", "flags", "type", "index", "thread")

    def __init__(self, row: tuple[int, ...]) -> None:
        self.kind, self.address, self.size, self.stack, self.flags, self.type, self.index, self.thread = row

    def __repr__(self) -> str:
        return f"Event(kind={self.kind}, address={self.address:#x}, size={self.size}, flags={self.flags})"

    def frames(self) -> list[tuple[str, str, int]]:
        return core.double_stack(self.stack)


def events(*kinds: int) -> list[Event]:
    return [e for e in map(Event, core.double_events()) if not kinds or e.kind in kinds]


class Heap:
    """The live set that the recorded events describe, and what is wrong with them."""

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

    Shares no code with cuptimem.seed: it unpacks saved tensors through their public attributes.
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


def report(**values: Any) -> None:
    """The program's answer to its test; the last line of its output."""
    import json

    print("\n" + json.dumps(values, default=str))
