"""What was alive before recording began: one walk over Python's objects and autograd's graph.

The walk runs no code of the program: tensor subclasses and modes are bypassed, properties are read through the base
class, and a saved tensor with hooks is never unpacked (under checkpointing that would run the forward pass again).
"""

from __future__ import annotations

import bisect
import mmap
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from cuptimem import _core
from cuptimem.errors import own
from cuptimem.objects import living, near
from cuptimem.objects.living import MODULE, POOL, STORAGE, TENSOR

_POOL_UNIT = 512  # bytes
_SHARED_HEADER = 64  # bytes before a storage that the file_system sharing strategy mapped


@dataclass(frozen=True)
class Seeds:
    """What the walk found: blocks and their bytes, modules and optimizers, and what it had to leave out."""

    blocks: int
    bytes: int
    objects: int
    skipped: int
    """Saved tensors and storages that may hold a block but could not be read without running the program's code."""
    problems: tuple[str, ...] = ()


def seed_alive(found: list[tuple[int, Any]] | None = None) -> Seeds:
    """Records every block, module and optimizer alive now. Call it once recording is on; holds the GIL. found: gets
    what living.find has found.

    Without torch, or with torch still being imported, it records only that there was nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage"):
        _core.mark(_core.MARK_SEEDED, 0)
        return Seeds(0, 0, 0, 0)
    walk = _Walk(torch, found)
    interval = sys.getswitchinterval()
    try:  # a signal's handler may raise anywhere in here
        walk.run()
    finally:
        sys.setswitchinterval(interval)
    _core.mark(_core.MARK_SEEDED, walk.skipped)
    size = sum(block.size for block in walk.blocks.values())
    return Seeds(len(walk.blocks), size, walk.objects, walk.skipped, tuple(walk.problems))


_PYTHONS = os.path.dirname(threading.__file__) + os.sep
_PATIENCE_SECONDS = 2.0
_STILL_SECONDS = 0.1  # Python's switch interval while graphs are read
_FOR_EVER = (1 << 63) - 1


def _hold_still(torch: Any, interval: float) -> int:
    """Waits for a moment in which no other thread runs a backward or drops a gradient, and keeps Python from switching
    threads.

    Backward works without the GIL and drops what nodes have saved while it goes: reading a saved tensor beside it is a
    read of freed memory. So is reading a gradient beside `tensor.grad = None`. A thread cannot begin either without the
    GIL, which the walk then keeps. Returns until when (time.monotonic_ns) graphs may be read; 0: there was no such
    moment. Each read must check the clock with the GIL in hand (_core.call_before): between two instructions this
    thread may sleep for any time.

    A longer switch interval holds for threads that begin to wait after it was set. Those that wait already get their
    turn when the old one is over, so they are let in first. One that then computes without a pause gives the GIL back
    only after the new interval, which must not be long for that reason.
    """
    backward = getattr(getattr(torch.autograd, "graph", None), "_engine_run_backward", None)
    code = getattr(backward, "__code__", None)
    if code is None:
        return 0 if _others() else _FOR_EVER
    still = max(_STILL_SECONDS, 16 * interval)
    if not _others():  # none waits for the GIL, and one that begins to waits for the new interval
        sys.setswitchinterval(still)
        return int((time.monotonic() + still) * 1e9)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        sys.setswitchinterval(still)
        began = time.monotonic()
        while time.monotonic() < began + 4 * interval:
            continue
        if time.monotonic() < began + still / 2 and not _others_run(code) and not _core.gradients_exchanged():
            return int((began + still) * 1e9)
        sys.setswitchinterval(interval)
        if time.monotonic() > deadline:
            return 0
        time.sleep(0.0005)


def _others() -> list[FrameType]:
    """What runs in each of the program's other threads. Ours, of windows on demand, call nothing of PyTorch's, as
    long as no function of the program's is among their callers: a decorated target, a callback of a window."""
    frames = sys._current_frames()
    del frames[threading.get_ident()]  # a frame that names itself is a cycle: all callers' locals would hang on it
    return [top for top in frames.values() if not _is_of_own_thread(top)]


def _is_of_own_thread(top: FrameType) -> bool:
    files = [one.f_code.co_filename for one in _outwards(top) if not _is_pythons(one.f_code.co_filename)]
    return bool(files) and all(file.startswith(near.OWN) for file in files)


def _is_pythons(file: str) -> bool:
    return file.startswith(_PYTHONS) and not any(name in file for name in ("site-packages", "dist-packages"))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _others_run(code: CodeType) -> bool:
    return any(one.f_code is code for top in _others() for one in _outwards(top))


@dataclass(frozen=True)
class _Block:
    size: int
    requested: int = -1  # of the size; -1: not known
    direct: bool = False  # taken from CUDA for itself


class _MovingError(Exception):
    """There is no moment at which graphs could be read."""


class _Walk:
    def __init__(self, torch: ModuleType, found: list[tuple[int, Any]] | None = None) -> None:
        self.torch = torch
        self.base = torch._C.TensorBase
        self.blocks: dict[tuple[int, int, int], _Block] = {}  # by device type, index, address
        self.segments: dict[int, tuple[int, int]] = {}  # address -> bytes, device
        self.mapped: list[tuple[int, int, int]] = []  # of expandable segments: address, bytes, device
        self._on_cuda: dict[int, tuple[int, int]] = {}  # storages: address -> bytes, device
        self._pools: set[tuple[int, int]] = set()  # the program's own memory pools
        self.found = [] if found is None else found
        self.objects = 0
        self.skipped = 0
        self._interval = sys.getswitchinterval()
        self._still_until = 0  # until when autograd's graphs may be read, ns; 0: never
        self.problems: list[str] = []
        self._compound: list[Any] = []  # tensors made of others
        self._storages: set[int] = set()
        self._nodes: dict[int, Any] = {}
        self._saved_names: dict[type, tuple[str, ...]] = {}

    def run(self) -> None:
        torch = self.torch
        # Before objects are listed: a thread inside an operation may have been given a block before recording began,
        # which no object has before the thread is back in Python.
        if _others():
            time.sleep(4 * self._interval)
        self._still_until = _hold_still(torch, self._interval)
        with living.undisturbed(torch):
            why = prepare()
            if why is not None:
                self.problems.append(f"blocks that torch.load or numpy made cannot be told apart: {why}")
            self.found += living.find(torch, living.all_objects())
            for kind, item in self.found:
                if kind == TENSOR:
                    self._tensor(item)
                elif kind == STORAGE:
                    self._storage(item)
                elif kind == POOL:
                    self._pool(item)
                elif kind in (MODULE, living.OPTIMIZER):
                    _core.object_new(_core.OBJECT_MODULE if kind == MODULE else _core.OBJECT_OPTIMIZER, item, True)
                    self.objects += 1
            # After the graphs: asking for the parts lets other threads run.
            while self._compound:
                self._parts(self._compound.pop())
            self._cuda()
        for (device, index, address), block in self.blocks.items():
            _core.seed(address, block.size, device, index, block.requested, block.direct)
        for address, (size, index) in self.segments.items():
            _core.seed_segment(address, size, _core.DEVICE_CUDA, index)
        if _core.cupti_state()["mode"] == "callbacks":  # only these see what is unmapped
            for address, size, index in self.mapped:
                _core.seed_mapped(address, size, _handle(size), index)

    # --- objects ------------------------------------------------------------------------------------

    def _tensor(self, tensor: Any) -> None:
        self._own_storage(tensor)
        try:
            if self.base.is_leaf.__get__(tensor) or self.base.retains_grad.__get__(tensor):
                grad = self._gradient(tensor)
                if grad is not None:
                    self._own_storage(grad)
            self._graph(self._still(self.base.grad_fn.__get__, tensor))
        except _MovingError:
            self.skipped += not self.base.is_leaf.__get__(tensor)
        except own(RuntimeError):  # a tensor with an unknown graph, as inside torch.func
            self.skipped += 1

    def _gradient(self, tensor: Any) -> Any:
        try:
            return self._still(self.base.grad.__get__, tensor)
        except _MovingError:
            found = living.gradients(self.torch, [tensor])
            self.skipped += found is None
            return found[0] if found else None

    def _still(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of C reads in autograd's graphs. Waits for a safe moment where needed; after one wait in
        vain it raises _MovingError at once."""
        while self._still_until != 0:
            found = _core.call_before(self._still_until, read, *arguments)
            if found is not NotImplemented:
                return found
            self._still_until = _hold_still(self.torch, self._interval)
        raise _MovingError

    def _own_storage(self, tensor: Any) -> None:
        try:
            storage = self.base.untyped_storage(tensor)
        except own(RuntimeError):  # no storage of its own: sparse, opaque, or a wrapper around others
            if living.is_plain(self.torch, tensor):
                self._compound.append(tensor)
            return
        self._storage(storage)
        if living.is_plain(self.torch, tensor) and (tensor.is_nested or tensor.is_quantized):
            self._compound.append(tensor)

    def _parts(self, tensor: Any) -> None:
        """The tensors inside a sparse, nested or quantized one."""
        torch = self.torch
        try:
            names = living.part_names(torch, tensor)
            if names is None and tensor.is_mkldnn:
                mkldnn = torch.ops.mkldnn
                self._block(_core.DEVICE_CPU, -1, mkldnn.data_ptr(tensor), mkldnn._nbytes(tensor))
                return
            if names is None:
                self.skipped += 1
                return
            for name in names:
                self._own_storage(getattr(self.base, name)(tensor))
        except own(RuntimeError, AttributeError):
            self.skipped += 1

    # --- storages -----------------------------------------------------------------------------------

    def _storage(self, storage: Any) -> None:
        try:
            cdata = storage._cdata
            if cdata in self._storages:
                return
            self._storages.add(cdata)
            device = storage.device
            if device.type == "cpu":
                self._cpu_storage(storage, cdata)
            elif device.type == "cuda" and storage.resizable():  # PyTorch's own, not another library's or process's
                self._on_cuda[storage.data_ptr()] = storage.nbytes(), device.index
        except own(RuntimeError):  # functional and fake storages have no memory
            return

    def _cpu_storage(self, storage: Any, cdata: int) -> None:
        origin, address, size, is_part = living.cpu_block(cdata)
        # torch.load(mmap=True) and safetensors keep only slices of the storage that they mapped.
        if origin == _core.STORAGE_ALLOCATOR or is_part:
            if origin == _core.STORAGE_ALLOCATOR or address % mmap.PAGESIZE == 0:
                self._block(_core.DEVICE_CPU, -1, address, size)
            return
        address, size = storage.data_ptr(), storage.nbytes()
        if storage.is_shared():
            header = _SHARED_HEADER if address % mmap.PAGESIZE == _SHARED_HEADER else 0
            self._block(_core.DEVICE_CPU, -1, address - header, size + header)
        elif living.is_pinned(self.torch, storage):
            self.skipped += 1  # its end would not be seen
        elif storage.resizable():  # PyTorch's own, by another way; numpy's and other foreign memory is not
            self._block(_core.DEVICE_CPU, -1, address, size)

    def _block(
        self, device: int, index: int, address: int, size: int, requested: int = -1, direct: bool = False
    ) -> None:
        if address != 0 and size > 0:
            self.blocks[device, index, address] = _Block(size, requested, direct)

    # --- the GPU --------------------------------------------------------------------------------------

    def _pool(self, pool: Any) -> None:
        """A program's memory pool may have its own allocator, which PyTorch does not report: the ends of its segments
        would not be recorded."""
        self._pools.add(tuple(self.torch._C._MemPool.id.__get__(pool)))

    def _cuda(self) -> None:
        """Every block and segment, from PyTorch's snapshot; where its back end refuses those, what storages hold."""
        cuda = sys.modules.get("torch.cuda")
        if cuda is None or not cuda.is_initialized():
            return
        if "CudaMallocAsync" in (_core.cuda_allocator() or ("",))[0]:
            for address, (size, index) in self._on_cuda.items():
                self._block(_core.DEVICE_CUDA, index, address, size)
            self._beyond_storages(cuda)
            return
        try:
            try:
                segments = cuda.memory_snapshot(include_traces=False)  # a recorded history may be gigabytes
            except own(TypeError):  # before torch 2.11 the argument does not exist, and there is no way around
                segments = cuda.memory_snapshot()
        except own(RuntimeError) as error:  # an allocator that reports nothing, either
            why = str(error).partition(". ")[0]
            self.problems.append(f"blocks on the GPU before start are unknown: {why}")
            return
        for segment in segments:
            self._segment(segment)
        # What lies outside of all segments was allocated without caching.
        known = _Ranges((segment["address"], _total(segment)) for segment in segments)
        outside = {address: found for address, found in self._on_cuda.items() if address not in known}
        for address, (size, index) in outside.items():
            self._block(_core.DEVICE_CUDA, index, address, size, direct=True)
        if any(size for size, _ in outside.values()):
            self.problems.append(
                "of the blocks on the GPU that were allocated without caching before start, "
                "only those that Python objects hold are known"
            )

    def _segment(self, segment: dict[str, Any]) -> None:
        address, index = segment["address"], segment["device"]
        in_pool = tuple(segment.get("segment_pool_id", ())) in self._pools
        if segment.get("is_expandable", False):
            self.mapped.append((address, _total(segment), index))
        elif not in_pool:
            self.segments[address] = _total(segment), index
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                requested = block.get("requested_size", -1)
                self._block(_core.DEVICE_CUDA, index, block.get("address", address), block["size"], requested)
            address += block["size"]

    def _beyond_storages(self, cuda: Any) -> None:
        """Reports bytes that no storage explains, unless they may be rounding: CUDA's pool counts in its own units."""
        for index in range(cuda.device_count()):
            held = [
                block.size for (kind, on, _), block in self.blocks.items() if (kind, on) == (_core.DEVICE_CUDA, index)
            ]
            missing = cuda.memory_allocated(index) - sum(held)
            if missing > _POOL_UNIT * len(held):
                self.problems.append(
                    f"cuda:{index}: about {missing} bytes from before start are held by no Python object "
                    "(workspaces of libraries) and are not in this recording"
                )

    # --- the graph ------------------------------------------------------------------------------------

    def _graph(self, root: Any) -> None:
        nodes = [root]
        while nodes:
            node = nodes.pop()
            if node is None or id(node) in self._nodes:
                continue
            self._nodes[id(node)] = node  # kept until the walk is over: an identity must not be reused
            try:
                nodes.extend(following for following, _ in self._still(getattr, node, "next_functions"))
                self._saved_by(node)
            except _MovingError:
                self.skipped += 1
                return

    def _saved_by(self, node: Any) -> None:
        names = self._saved_names.get(type(node))
        if names is None:
            names = tuple(n for n in dir(type(node)) if n.startswith("_raw_saved_") or n == "variable")
            self._saved_names[type(node)] = names
        for name in names:
            try:
                self._saved(self._still(getattr, node, name))
            except own(RuntimeError, AttributeError):  # released, or modified since it was saved
                continue

    def _saved(self, saved: Any) -> None:
        if isinstance(saved, tuple | list):
            for item in saved:
                self._saved(item)
        elif living.is_tensor(self.torch, saved):
            self._own_storage(saved)  # AccumulateGrad's own variable
        elif saved is None:
            return
        elif not hasattr(saved, "unpack_hook"):
            self.skipped += 1  # before torch 2.10 it is unknown whether it has hooks
        elif self._still(getattr, saved, "unpack_hook") is None:
            data = self._still(getattr, saved, "data")
            if data is not None:
                self._own_storage(data)
        # With hooks: what was packed is a Python object, and the walk over objects sees it.


def _total(segment: dict[str, Any]) -> int:
    """Blocks, free ones among them, cover all of it. (Keys come and go with PyTorch's versions.)"""
    return sum(block["size"] for block in segment["blocks"])


def _handle(size: int) -> int:
    """Of how many bytes those are that PyTorch mapped into a range: 2 MiB for small blocks. No key says it."""
    settings = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    said = re.search(r"large_segment_size_mb\s*:\s*(\d{1,6})", settings)
    large = (int(said[1]) << 20 if said else 0) or 20 << 20
    return large if size % large == 0 else 2 << 20


class _Ranges:
    """Which address lies in one of these (start, bytes)."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(ranges)
        self._starts = [start for start, _ in ordered]
        self._ends = [start + size for start, size in ordered]

    def __contains__(self, address: int) -> bool:
        at = bisect.bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._ends[at]


_prepared: list[str | None] = []


def prepare() -> str | None:
    """Calibrates, once, before recording starts: the storages made for it are not the program's."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage"):
        return None
    if not _prepared:
        _prepared.append(_calibrate(torch))
    return _prepared[0]


def _calibrate(torch: ModuleType) -> str | None:
    """Finds for the core where a storage keeps its deleter. The storages made for it are gone on return."""
    storages = [torch.UntypedStorage(size, device="cpu") for size in (4096, 8192 + 64, 12288 + 128)]
    samples = [(s._cdata, s.data_ptr(), s.nbytes()) for s in storages]
    part = storages[0][0:64]
    return _core.storage_calibrate(samples, part._cdata, storages[0]._cdata)
