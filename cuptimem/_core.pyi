"""The C core. Everything here is for the rest of cuptimem, not for users."""

import weakref
from array import array
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

class Error(RuntimeError): ...

# constants (csrc/python/py_constants.c; csrc/base/event.h explains them)
MARK_WINDOW_OPEN: int
MARK_WINDOW_CLOSE: int
MARK_SEEDED: int
MARK_FILLING: int
MARK_HELD: int
MARK_NAMED: int
MARK_EXIT: int
MARK_WALK: int
MARK_OOM_LEFT: int
TICK_STEP: int
OBJECT_MODULE: int
OBJECT_OPTIMIZER: int
LABEL_MODULE: int
LABEL_PARAMETER: int
LABEL_BUFFER: int
LABEL_GRADIENT: int
LABEL_OPTIMIZER_STATE: int
LABEL_TENSOR: int
DEVICE_CPU: int
DEVICE_CUDA: int
DEVICE_PINNED: int
STORAGE_ALLOCATOR: int
STORAGE_SLICE: int
STACK_NONE: int
STACK_LOST: int
PHASES: tuple[str, ...]  # names, by cm_phase

# frames (csrc/python/py_frames.c)
def frames_init() -> str | None: ...  # None: stacks work; else why not
def frames_offsets() -> dict[str, int]: ...  # field -> bytes from its struct's start
def frames_hide(prefix: str) -> None: ...  # files under this path never show in a stack
def frames_barrier(code: object) -> None: ...  # this code's frame and all outside it never show
def frames_module_call(code: object | None) -> None: ...  # Module._wrapped_call_impl.__code__

# capture (csrc/python/py_capture.c)
def capture_start(
    path: str,
    meta: dict[str, str],
    *,
    overwrite: bool = False,
    max_size: int = 0,
    ring_bytes: int = 0,
    ring_dir: str | None = None,
    private: bool = False,
) -> None: ...
def capture_sweep(path: str) -> None: ...  # brings home what killed processes left in rings
def capture_record(on: bool) -> None: ...
def capture_sync() -> None: ...
def capture_stop(notes: dict[str, str] = {}) -> str: ...  # a warning for the user, or ""
def capture_note(notes: dict[str, str]) -> None: ...  # joins the meta now; nothing happens without a capture
def capture_active() -> bool: ...
def capture_counts() -> dict[str, int]: ...
def of_program(exception: BaseException) -> bool: ...
def fork_is_spawn() -> bool: ...
def temporary_file(path: str) -> object: ...  # removed when nothing refers to that any more
def temporary_files_remove() -> None: ...
def capture_warning() -> str | None: ...  # why recording ended by itself, once

# events (csrc/python/py_events.c)
def tick(kind: int, obj: object) -> None: ...  # TICK_*
def mark(kind: int, argument: int = 0) -> None: ...  # MARK_*
def object_new(kind: int, obj: object, before_start: bool = False) -> None: ...  # OBJECT_*
def label(
    kind: int, address: int, owner: int, text: str, device_type: int = 0, device_index: int = -1
) -> None: ...  # LABEL_*
def holder(stack: int, of: int, device_type: int, device_index: int, paths: list[tuple[str, int, int]]) -> None: ...
def capture_emit(
    threads: int, pairs: int, first: int = 0, counter: Any = None, pause_us: int = 0
) -> int: ...  # for tests: events from threads without Python
def seed(
    address: int, size: int, device_type: int, device_index: int, requested: int = -1, direct: bool = False, /
) -> None: ...
def seed_segment(address: int, size: int, device_type: int, device_index: int, /) -> None: ...
def seed_mapped(address: int, size: int, handle: int, device_index: int, /) -> None: ...

# calls that leave no trace (csrc/python/py_hidden.c)
def hidden(
    before: Callable[..., Any], function: Callable[..., Any] = ..., after: Callable[..., Any] = ..., /
) -> Callable[..., Any]: ...
def shown(function: Callable[..., Any], /, *arguments: Any) -> Any: ...

# the process (csrc/python/py_process.c)
def fork_before() -> None: ...
def fork_parent() -> None: ...
def fork_child() -> None: ...
def process_watch(module: object, /) -> None: ...  # forks and execs through posix, _posixsubprocess
def process_children() -> int: ...  # that are Pythons
def process_is_privileged() -> bool: ...  # obeys no environment variable (AT_SECURE)
def process_trim() -> tuple[int, int, int, int] | None: ...
def process_at_exit(function: Callable[[], None], /) -> Callable[[], None]: ...  # for atexit

# garbage (csrc/python/py_garbage.c)
def garbage_callback(phase: str, info: dict[str, int], /) -> None: ...  # for gc.callbacks
def garbage_final(enable: bool, known: list[Any] | None, /) -> bool: ...  # between marks; False: within a collection
def garbage_forget() -> None: ...  # in a forked child

# numpy's arrays (csrc/python/py_arrays.c)
def array_type() -> type | None: ...
def array_owner(value: Any, /) -> Any: ...

# who refers to what (csrc/python/py_object_graph.c)
def object_graph(objects: list[Any] | Callable[[], list[Any]], parts: int = 0, most: int = 0, /) -> object | None: ...
def graph_objects(graph: object, /) -> list[Any]: ...
def graph_restore(graph: object, tuples: list[Any], /) -> None: ...
def graph_referrers(graph: object, wanted: list[Any], most: int, /) -> list[Any]: ...
def graph_garbage(graph: object, /) -> list[Any] | None: ...  # what a collection frees

# what objects lead to (csrc/python/py_referrers.c)
def reachable(roots: list[Any], without: list[Any], most: int, /) -> list[Any]: ...
def with_reached(objects: list[Any], others: list[Any]) -> list[Any]: ...
def tracked(get_objects: Callable[..., list[Any]], *arguments: int) -> list[Any]: ...
def frame_locals(frame: FrameType, /) -> dict[str, Any]: ...

# sources (csrc/python/py_sources.c)
def sources_install() -> int: ...
def sources_remove() -> None: ...
def sources_driver(on: bool, /) -> None: ...  # the driver level from slots, as while CUPTI does not tell
def sources_rows() -> list[tuple[str, str, str, str, int]]: ...  # source, symbol, meaning, library, slots
def sources_rescan() -> None: ...  # what the collector does when idle
def sources_lookup(name: str) -> int: ...  # address of a symbol in a patched library, 0: not there
def autograd_calibrate(nodes: list[tuple[int, int]]) -> str | None: ...  # (PyObject address, _sequence_nr())
def autograd_own_nodes(own: bool) -> tuple[int, int]: ...  # this thread's are not recorded but counted: made, ended
def autograd_unseen() -> str | None: ...  # a type of nodes whose end is not seen, mangled
def operators_start() -> str | None: ...  # why the names of running operators cannot be recorded
def operators_stop() -> None: ...
def operators_test(begin: bool, /) -> bool: ...  # at its end: whether aten::empty was seen between the two calls
def sources_offsets() -> dict[str, int]: ...  # what calibration found: field -> bytes
def cuda_allocator() -> tuple[str, bool, int, int] | None: ...  # cm_sources_cuda
def storage_calibrate(samples: list[tuple[int, int, int]], slice: int, parent: int) -> str | None: ...
def storage_origin(cdata: int) -> tuple[int, int, int]: ...  # STORAGE_* or 0, address, bytes
def main_thread_call(call: Callable[[], None] | None) -> None: ...  # about once a second while a capture runs
def main_thread_call_when_warned(call: Callable[[], None] | None) -> None: ...  # while capture_warning has one
def main_thread_call_when_asked(call: Callable[[], None] | None) -> None: ...  # while source_asked has something to ask
def main_thread_call_after_pass(call: Callable[[], None] | None) -> None: ...  # where a walk is due
def main_thread_call_soon(call: Callable[[], None] | None) -> None: ...  # once
def main_thread_call_when_grown(call: Callable[[], None] | None, bytes: int) -> None: ...  # tensors of a device; once
def call_before(deadline: int, function: Callable[..., Any], *arguments: Any) -> Any: ...  # see py_sources.c

# PyTorch's own calls (csrc/python/py_torch_calls.c)
def torch_watch(name: str, function: object, /) -> None: ...
def torch_caller(role: str, code: object, /) -> None: ...
def torch_iterators(callable: Callable[[], None] | None, /) -> None: ...
def torch_iterator() -> Any: ...
def torch_unwatch() -> None: ...

# the walk over living objects (csrc/python/py_walks.c)
def walks_call(call: Callable[[], None] | None, /) -> None: ...  # after steps of optimizers, where anything is due
def walks_due() -> int: ...  # 1: a walk, 2: an early look for holders, 4: a sooner one, 8: more was asked for
def walks_more() -> None: ...  # the next tick calls, too
def walks_made(kind: int) -> list[weakref.ref[Any]]: ...  # OBJECT_*, in the order of their making
def select(objects: list[Any], kind_of: Callable[[type], int]) -> list[tuple[int, Any]]: ...  # unless 0
def followed_kernel(kernel: object, tensor: object, after: object, tensors: int) -> object: ...  # see py_values.c
def call_unrecorded(function: Callable[..., Any], *arguments: Any) -> Any: ...  # nothing in it is recorded
def gradients_exchanged() -> bool: ...
def call_unless_running(code: object, function: Callable[..., Any], *arguments: Any) -> Any: ...  # else NotImplemented

# the driver level (csrc/python/py_cupti.c)
def cupti_start(
    kernels: bool, activity: bool, period_ms: int, wait_ms: int, changed: Callable[[], None] | None, /
) -> None: ...
def cupti_flush(last: bool, /) -> None: ...  # what is known of now is published when this returns
def cupti_stop() -> None: ...
def cupti_forget() -> None: ...  # in a forked child
def cupti_state() -> dict[str, Any]: ...  # cm_cupti_state, mode by its name

# lines of which only Python knows the text (csrc/python/py_sourcetext.c)
def source_asked() -> list[tuple[tuple[int, ...], str, int, bytes | None, str]]: ...  # see there
def source_answer(asked: tuple[int, ...], text: str, /) -> None: ...
def source_answered() -> bool: ...  # and not yet in the trace

# trace (csrc/python/py_trace.c)
def trace_meta(path: str) -> dict[str, str]: ...
def trace_rewrite(
    source: str, target: str | None, replace: Callable[[str, str, str], str | None], lines: bool = True
) -> None: ...
def trace_dump(path: str, limit: int = 0) -> list[tuple[Any, ...]]: ...

# samples of the process tree (csrc/python/py_tree.c)
_Process = tuple[int, int, int, int, str, tuple[int, ...] | None, tuple[int, ...] | None, int]
_File = tuple[int, int, str, int, bool]
_Tree = tuple[int, int, int, int, int, list[_Process], list[_File] | None, list[_File], int]

def tree_samples(path: str, /) -> list[_Tree]: ...
def tree_now(pid: int, /) -> _Tree | None: ...

# PyTorch's memory snapshots (csrc/python/py_snapshot.c)
def snapshot_convert(
    read: Callable[[], bytes], describe: Callable[[dict[str, Any]], dict[str, str]], target: str, private: bool = False
) -> None: ...

# analysis (csrc/python/py_analysis.c)
def trace(path: str, /) -> object: ...  # for analyze and extract
def trace_decoded(trace: object, /) -> int: ...  # records, those read twice counted twice
def analyze(
    path: str | object,
    *,
    window: int = 0,
    step: int | None = None,
    points: int = 0,
    ledger_at_ns: int = -1,
    min_rate: float = -1.0,
    progress: Callable[[float], bool] | None = None,
    code: str | None = None,
    tables: Sequence[str] = (),
    again: bool = False,
    charts: Sequence[tuple[int, int, int, int, int]] = (),  # cm_chart_span of each
    lives: bool = False,  # with single blocks around the peaks
) -> dict[str, Any]: ...
def fields() -> dict[str, list[tuple[str, str, str]]]: ...  # of what analyze() returns: name, type, doc
def edit_base(births: array[int], ends: array[int], sizes: array[int], /) -> object: ...  # lives, for edit_peak
def edit_peak(base: object, removed: array[int], added: array[int], /) -> tuple[int, int]: ...  # bytes, position
def extract(source: str | object, target: str, window: int, code: str = "") -> None: ...
def is_library(file: str, code: str = "", script: str = "") -> bool: ...

# what happened, in batches (csrc/python/py_reader.c has the tuples)
class Follower:
    def __new__(cls, path: str, code: str | None = None) -> Follower: ...
    def read(self, most: int, /) -> tuple[str, int]: ...  # "more", "end", "again"; records
    # name, live, blocks, peak, reserved, used, total, own, others
    def devices(self) -> list[tuple[Any, ...]]: ...
    def live(self) -> list[tuple[int, int, int]]: ...  # origin, bytes, blocks
    def origin(self, number: int, /) -> tuple[Any, ...]: ...
    def stack(self, id: int, /) -> list[tuple[Any, ...]]: ...
    def steps(self) -> list[tuple[int, str, str, int, int, int, int]]: ...  # number, device, loop, begin, end, ...
    def totals(self) -> dict[str, Any]: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def meta(self) -> dict[str, str]: ...

class Reader:
    def __new__(
        cls,
        path: str,
        window: int = 0,
        code: str | None = None,
        progress: Callable[[float], bool] | None = None,
    ) -> Reader: ...
    def __iter__(self) -> Reader: ...
    def __next__(self) -> list[tuple[Any, ...]]: ...
    def stack(self, id: int, /) -> list[tuple[Any, ...]]: ...  # frames, innermost first
    def arrow_stream(
        self, names: Callable[..., tuple[str | int | None, ...]], device: str | None = None, /
    ) -> object: ...
    def close(self) -> None: ...
    @property
    def meta(self) -> dict[str, str]: ...
    @property
    def code(self) -> str: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def steps(self) -> list[tuple[int, str, int, int]]: ...  # index, loop, begin, end
    @property
    def clock(self) -> str | None: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def start_realtime_ns(self) -> int: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def lost(self) -> dict[str, int]: ...
    @property
    def progress(self) -> float: ...

# a Reader's events as bytes of a file (csrc/python/py_export.c has what is between the texts)
class Rows:
    def __new__(
        cls,
        reader: Reader,
        names: Callable[..., tuple[bytes, bytes, bytes]],
        gaps: tuple[bytes, ...],
        none: bytes,
        ends: tuple[bytes, ...],
        device: str | None = None,
    ) -> Rows: ...
    def read(self) -> bytes | None: ...
    @property
    def count(self) -> int: ...

class MemoryViz:
    def __new__(
        cls,
        reader: Reader,
        names: Callable[..., tuple[bytes, bytes | None, bytes]],
        start_us: int,
        newest: int = 0,
        device: str | None = None,
    ) -> MemoryViz: ...
    def read(self) -> list[bytes] | None: ...
    def segments(self, device: int, number: int, /) -> bytes | None: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def entries(self) -> int: ...
    @property
    def overlapping(self) -> int: ...
