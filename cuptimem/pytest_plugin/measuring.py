"""The capture that serves a whole test run, and windows of it: what one stretch of a test allocated, and what it left.

All windows of a run are read in their order, once (csrc/heap/engine.h). A capture that has become long ends between
two tests, and the next one begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.errors import Error
from cuptimem.output.text.words import plural
from cuptimem.pytest_plugin import baselines, own
from cuptimem.record import instruments, process_info, recorder
from cuptimem.report.load import analyze
from cuptimem.report.model import Report
from cuptimem.report.process import HOST

LONG = 256 << 20  # bytes of trace
ENDED_EARLY = "the recording was ended inside the test, or the test went on in another process"


class Capture:
    """Records from its first use on. Not thread-safe: pytest runs one test at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._options: recorder.Options | None = None
        self._whole: recorder.Window | None = None
        self._failed = False

    @classmethod
    def of(cls, config: pytest.Config) -> Capture:
        """The run's, which ends with the run."""
        capture = config.stash.get(_OF_RUN, None)
        if capture is None:
            capture = config.stash[_OF_RUN] = cls(config.rootpath)
            config.add_cleanup(capture.stop)
        return capture

    def start(self) -> None:
        """Recording is on behind this. Raises cuptimem.Error where it cannot be."""
        if self._whole is not None and self._whole.closed:  # by cuptimem.record.recorder.close_all
            self._whole = None
        if self._whole is None:
            # Conftests have completed sys.path. Holders are searched where a test fails (holders.py).
            if self._options is None:
                self._options = recorder.Options(code=own.packages(self._root), holders=False)
            self._whole = self._open()

    def _open(self) -> recorder.Window:
        assert self._options is not None
        return recorder.open_window(None, overwrite=False, options=self._options)

    def renew(self) -> None:
        """Between two tests: a long trace gives way to a new one. Where other windows are open, it would go on."""
        whole = self._whole
        if whole is None or len(whole.capture.windows) > 1:
            return
        if self._failed or _size(whole.file.path) > LONG:
            self.stop()

    def give_up(self) -> None:
        """The recording may have ended by itself: the next test has a new one."""
        self._failed = True

    def stop(self) -> None:
        whole, self._whole, self._failed = self._whole, None, False
        if whole is not None:
            recorder.close_window(whole)

    def open(self) -> recorder.Window:
        """A window that begins now."""
        self.start()
        return self._open()


_OF_RUN = pytest.StashKey[Capture]()


def behind_teardown(item: pytest.Item, leave: Callable[[], object]) -> None:
    """Calls `leave` once, when the test's own fixtures are torn down and before any wider one is."""
    own = vars(item).get("teardown")
    tear_down = item.teardown

    def teardown() -> None:
        if own is None:
            vars(item).pop("teardown", None)
        else:
            item.teardown = own  # type: ignore[method-assign]
        try:
            tear_down()
        finally:
            leave()

    item.teardown = teardown  # type: ignore[method-assign]


def uses_cuda() -> bool:
    """Whether this process has begun to use CUDA. PyTorch is not imported for it."""
    cuda: Any = sys.modules.get("torch.cuda")
    return hasattr(cuda, "is_initialized") and bool(cuda.is_initialized())


def missing_device(names: Iterable[str]) -> str:
    """The first of some CUDA devices that is not there, and why, as the end of a sentence; "" if all are."""
    wanted = sorted(name for name in names if name not in HOST)
    if not wanted:
        return ""
    try:
        import torch
    except ImportError as error:
        return f"{wanted[0]}, and PyTorch cannot be imported: {error}"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        return "a CUDA device, and there is none (--cuptimem-simulate simulates one)"
    for name in wanted:
        if int(name.partition(":")[2] or 0) >= count:
            there = f"is {plural(count, 'CUDA device')}" if count == 1 else f"are {plural(count, 'CUDA device')}"
            return f"{name}, and there {there}"
    return ""


def release_caches(empty_cache: bool = False) -> None:
    """Has PyTorch free what it keeps of CUDA's memory for later use, so that no test has what another one made:
    workspaces of cuBLAS, and with empty_cache the reserved memory that no tensor has."""
    if not uses_cuda():
        return
    torch: Any = sys.modules["torch"]
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()
    if empty_cache:
        used = [n for n in range(torch.cuda.device_count()) if torch.cuda.max_memory_reserved(n)]
        torch.cuda.empty_cache()
        # What is reserved is recorded with the next block. That one's own segment is no more than any test's first
        # block needs, and is gone before the test.
        for number in used:
            torch.empty(1, dtype=torch.uint8, device=number)
        torch.cuda.empty_cache()


def is_recorded(window: recorder.Window) -> bool:
    """Whether what this process allocates now is in the window: nothing has ended it."""
    return not (window.closing or window.closed or window.foreign) and bool(window.capture.core.capture_active())


def close(window: recorder.Window, collect: bool = True, look: bool = True) -> None:
    """As recorder.close_window. Raises Error where it was over before: then it lacks what came after its end."""
    whole = is_recorded(window)
    recorder.close_window(window, collect, look)
    if not whole:
        raise Error(ENDED_EARLY)


def ask_devices(window: recorder.Window) -> None:
    """Has it recorded what is used of each device now: a short window may be over before that is done by itself."""
    if uses_cuda():
        instruments.flush(window.capture.core)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def read(window: recorder.Window, tables: Iterable[str] = (), again: bool = False) -> Report:
    """The report of a window. again: the same will be read, or written, once more before another one is."""
    path, source, number = recorder.snapshot_source(window)
    return analyze(
        path, source=source, window=number, temporary=True, tables=tables, again=again, default_code=window.code
    )


def checked(report: Report) -> Report:
    """Raises Error where its figures may be wrong."""
    lost = report.lost
    if report.compacted is not None:
        raise Error("its recording went past its bound, so that its peak is not known")
    if not lost.heap_is_exact:
        raise Error(
            f"its recording has lost {plural(lost.events + lost.replaced, 'event')}: its figures would be wrong"
        )
    if not report.complete and report.reason:
        raise Error(report.reason)
    return report


def write(window: recorder.Window, target: Path, title: str) -> None:
    """The window as a trace of its own, for `cuptimem summary` and all else."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    recorder.write_window(window, str(target), title.encode("utf-8", "replace").decode())


def environment() -> dict[str, Any]:
    """What figures depend on. PyTorch is asked only if the tests have imported it."""
    facts = process_info.environment(recorder.forked_by)
    torch: Any = sys.modules.get("torch")
    devices = {"cpu": baselines.cpu_description()}
    if uses_cuda():
        for number in range(torch.cuda.device_count()):
            devices[f"cuda:{number}"] = torch.cuda.get_device_name(number)
    return {
        "python": facts["python"],
        "torch": None if torch is None else facts.get("torch"),
        "cuptimem": cuptimem.__version__,
        "devices": devices,
        "simulated": facts.get("simulated"),
    }
