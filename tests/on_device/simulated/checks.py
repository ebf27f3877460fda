"""At a checkpoint: is what cuptimem recorded what PyTorch says, what Python reaches, and what the device gave out?

Runs inside the program. Any difference is an AssertionError that names the checkpoint and the first thing that differs.
Checker.misses asks the same of recordings that lack one event each.
"""

import gc
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from cuptimem import _core
from tests.on_device.simulated import device_log, driver_checks, recorded, torch_memory
from tests.on_device.simulated.programs import Program

MIB = 1 << 20


def same(what: str, ours: object, theirs: object) -> None:
    assert ours == theirs, f"{what}: recorded {ours!r}, but it is {theirs!r}"


def same_map(what: str, ours: Mapping[int, Any], theirs: Mapping[int, Any]) -> None:
    if ours != theirs:
        address = min(a for a in {**ours, **theirs} if ours.get(a) != theirs.get(a))
        raise AssertionError(
            f"{what}: {len(ours)} recorded, {len(theirs)} there; at {address:#x} recorded {ours.get(address)}, "
            f"there {theirs.get(address)}"
        )


def same_list(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    if list(ours) != list(theirs):
        nothing = object()
        number, (mine, other) = next(
            (i, pair) for i, pair in enumerate(zip_longest(ours, theirs, fillvalue=nothing)) if pair[0] != pair[1]
        )
        shown = [("nothing" if x is nothing else repr(x)) for x in (mine, other)]
        raise AssertionError(
            f"{what}: {len(ours)} recorded, {len(theirs)} there; number {number}: recorded {shown[0]}, there {shown[1]}"
        )


class Checker:
    """Is the check of a program (programs.Check). counts says how much was compared, so that nothing passes unseen."""

    def __init__(self, program: Program, trace: Path, log: Path | None, report: Path | None) -> None:
        self.program, self.trace, self.log, self.report, self.spoiled = program, trace, log, report, ""
        self.counts: Counter[str] = Counter()
        self.divisions, self.slack = _settings(program.environment)

    def __call__(self, label: str, *, quiet: bool = False, held: int = 0) -> None:
        try:
            self._check(quiet, held)
        except AssertionError as error:
            raise AssertionError(f"{self.program.name}, {label}: {error}") from None
        self.counts["checkpoints"] += 1

    def misses(self, kinds: Sequence[str], noticed: dict[str, str], label: str, quiet: bool, held: int) -> None:
        """At a checkpoint: what each check says where one event of that kind is left out of what was recorded."""
        for self.spoiled in kinds:
            try:
                if self.spoiled not in noticed:
                    self(label, quiet=quiet, held=held)
            except AssertionError as error:
                noticed[self.spoiled] = str(error)

    def _events(self) -> list[tuple[Any, ...]]:
        events = _core.trace_dump(str(self.trace))
        if self.spoiled:
            of_kind = [i for i, event in enumerate(events) if event[0] == self.spoiled and event[7] == recorded.CUDA]
            if of_kind:
                del events[of_kind[len(of_kind) // 2]]
        return events

    def _look(self, events: Sequence[tuple[Any, ...]], log: Path, report: Path) -> driver_checks.Look:
        """Another thread may be inside a call of CUDA, as a loader's that pins memory: what is under way has come a
        moment later, what is wrong stays so."""
        for wait in (0.05, 1):
            try:
                return driver_checks.look(events, log, report)
            except AssertionError:
                time.sleep(wait)
                _core.capture_sync()
                events = self._events()
        return driver_checks.look(events, log, report)

    def _check(self, quiet: bool, held: int) -> None:
        if quiet:
            torch._C._cuda_clearCublasWorkspaces()
            gc.collect()
        _core.capture_sync()
        events = self._events()
        devices, end = recorded.replay(events)
        same("events lost", end[4], 0)
        assert devices, "no event of a CUDA device"
        if self.log is not None and self.report is not None:
            self.counts["driver events"] = len(self._look(events, self.log, self.report).driver.events)
        reached = torch_memory.storages() if quiet else {}
        for index in range(self.program.devices):
            ours = devices.get(index, recorded.Device())
            where = f"cuda:{index}, "
            same(f"{where}frees of unknown blocks", ours.unknown_frees, 0)
            same(f"{where}sums", ours.disagreed, [])
            if self.program.back_end in ("native", "expandable"):
                self._caching(where, ours, torch_memory.device(index))
            else:
                self._direct(where, index, ours)
            if quiet:
                self._storages(where, ours, reached.get(index, {}), held)
            if self.log is not None and self.report is not None:
                self._device(where, index, ours)

    def _caching(self, where: str, ours: recorded.Device, theirs: torch_memory.TorchMemory) -> None:
        expandable = self.program.back_end == "expandable"
        live = {address: (block.size, block.requested) for address, block in ours.live.items()}
        same_map(f"{where}live blocks", live, theirs.live)
        same(f"{where}allocated", ours.allocated, theirs.stat("allocated_bytes.all.current"))
        same(f"{where}peak", ours.peak, theirs.stat("allocated_bytes.all.peak"))
        asked = sum(block.requested for block in ours.live.values())
        same(f"{where}requested", asked + theirs.pending, theirs.stat("requested_bytes.all.current"))
        history = theirs.history
        if expandable:  # mapping goes past the runtime: only its sums are seen
            history = [entry for entry in history if not entry[0].startswith("segment")]
            same(f"{where}segments", ours.segments, {})
        else:
            same_map(f"{where}segments", ours.segments, theirs.segments)
            same(f"{where}reserved", ours.segment_bytes, theirs.stat("reserved_bytes.all.current"))
            same(f"{where}peak reserved", ours.segment_peak, theirs.stat("reserved_bytes.all.peak"))
        same_list(f"{where}events", ours.history, history)
        same_list(f"{where}reserved totals", [r for _, r in ours.reserved], [r for _, r in theirs.reserved])
        reserved = ours.reserved[-1][1] if ours.reserved else 0
        if theirs.history and theirs.history[-1][0] in ("alloc", "free"):  # nothing came or went since
            same(f"{where}reserved as reported", reserved, theirs.stat("reserved_bytes.all.current"))
        same(f"{where}times out of memory", len(ours.ooms), theirs.stat("num_ooms"))
        for address, block in ours.live.items():
            assert torch_memory.may_be(block.size, block.requested, divisions=self.divisions, slack=self.slack), (
                f"{where}block {address:#x} of {block.size} bytes is not what {block.requested} bytes are rounded to"
            )
        self.counts["blocks"] += len(live)
        self.counts["segments"] += len(theirs.segments)
        self.counts["events"] = max(self.counts["events"], len(history))
        self.counts["segment events"] = sum(1 for entry in theirs.history if entry[0].startswith("segment"))
        self.counts["ooms"] = max(self.counts["ooms"], theirs.stat("num_ooms"))

    def _direct(self, where: str, index: int, ours: recorded.Device) -> None:
        """Back ends that refuse snapshots: every block is as large as was asked for, and there are no segments."""
        same(f"{where}segments", ours.segments, {})
        for address, block in ours.live.items():
            same(f"{where}size of block {address:#x}", block.size, block.requested)
        if self.program.back_end == "async":
            same(f"{where}allocated", ours.allocated, torch.cuda.memory_allocated(index))
            same(f"{where}peak", ours.peak, torch.cuda.max_memory_allocated(index))
        self.counts["blocks"] += len(ours.live)
        self.counts["events"] = max(self.counts["events"], len(ours.history))

    def _storages(self, where: str, ours: recorded.Device, reached: dict[int, int], held: int) -> None:
        requested = {address: block.requested for address, block in ours.live.items()}
        beyond = [address for address in requested if address not in reached]
        if held:
            same(f"{where}blocks that no Python object reaches", len(beyond), held)
            for address in beyond:
                del requested[address]
        same_map(f"{where}storages that Python reaches", requested, reached)
        self.counts["storages"] += len(reached)

    def _device(self, where: str, index: int, ours: recorded.Device) -> None:
        assert self.log is not None and self.report is not None
        used = charged = mapped = 0
        segments: list[tuple[str, int, int]] = []
        for record in device_log.records(self.log):
            if record.device != index:
                continue
            used += record.change
            if not record.op.startswith("pool"):  # reported beside the device's own account
                same(f"{where}the device's own sum", used, record.used)
            if record.op in ("create", "destroy"):
                mapped += record.bytes if record.op == "create" else -record.bytes
                self.counts["device records"] += 1
            elif record.kind in ("device", "pool") and record.op in ("alloc", "free"):
                segments.append((record.op, record.address, record.bytes))
                charged += record.change
                self.counts["device records"] += 1
        state = device_log.report(self.report)[index]
        same(f"{where}device used, log against report", used, state.used)
        free, total = torch.cuda.mem_get_info(index)
        same(f"{where}device used, log against cudaMemGetInfo", used, total - free)
        if self.program.back_end == "native":
            mine = [(action.removeprefix("segment_"), a, n) for action, a, n in ours.history if "_" in action]
            same_list(f"{where}segments in the device's log", mine, segments)
            reserved = ours.segment_bytes
        elif self.program.back_end == "expandable":
            reserved = torch.cuda.memory_reserved(index)
            same(f"{where}reserved, in the device's log", reserved, mapped)
        else:
            if self.program.back_end == "uncached":  # a pool gives out again what it kept, without the device
                same_list(f"{where}blocks in the device's log", ours.history, segments)
            reserved = charged  # small blocks share what the device gives out in one piece (cudasim/csrc/core/memory.c)
            kept = torch.cuda.memory_reserved(index) if self.program.back_end == "async" else ours.allocated
            assert ours.allocated <= kept <= reserved, (
                f"{where}blocks of {ours.allocated} bytes, a pool of {kept}, took {reserved} of the device"
            )
        same(f"{where}reserved + context + libraries", reserved + state.context + state.library, state.used)


def _settings(environment: Mapping[str, str]) -> tuple[int, int]:
    """roundup_power2_divisions (0: none), and what may be left on a large block."""
    text = environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    settings = dict(part.split(":", 1) for part in text.split(",") if part)
    slack = torch_memory.SMALL
    if settings.get("expandable_segments") == "True":
        slack = 0
    elif "max_split_size_mb" in settings:
        slack = 20 * MIB  # kLargeBuffer: a block too large to split is given whole if no more than this is wasted
    return int(settings.get("roundup_power2_divisions", "0")), slack


def files() -> tuple[Path | None, Path | None]:
    """The device's log and report, where the launcher asked for them."""
    names = (os.environ.get("CUPTIMEM_SIM_LOG"), os.environ.get("CUPTIMEM_SIM_REPORT"))
    log, report = (Path(name) if name else None for name in names)
    return log, report
