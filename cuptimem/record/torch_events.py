"""What is learned from PyTorch's Python side: step clocks, new modules and optimizers, when torch arrives.

Everything here runs inside the training process, imports nothing but the standard library, and is undone by `remove`.
Nothing of PyTorch is wrapped and no hook of it is registered: csrc/python/py_torch_calls.c watches what its functions
call. What runs here by itself (once a second, or when torch arrives) is hidden from profilers and tracers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from cuptimem import _core, environ
from cuptimem.errors import own
from cuptimem.objects import living, slices
from cuptimem.record import datasets, filling, live_nodes, role
from cuptimem.record.late_import import ImportWatch


class _Installed:
    """What has been put into torch, and how to take it out again."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.torch: ModuleType | None = None
        self.seconds = 0
        self.operators = False  # their names are asked for
        self.has_rank = bool(environ.get("RANK"))  # the trace has said it from its start on
        self.watch = ImportWatch(
            {
                "torch._C": self._binary_loaded,
                "torch": self._torch_loaded,
                "torch.nn.modules.module": self._part_loaded,
                "torch.optim.optimizer": self._part_loaded,
                "torch.utils.data.dataloader": self._part_loaded,
            },
            self.failed,
        )

    def failed(self, what: str, error: Exception) -> None:
        self.problems.append(f"{what}: {type(error).__name__}: {error}")

    # --- torch arrives ---------------------------------------------------------------------------

    def _binary_loaded(self, module: ModuleType) -> None:
        _core.sources_install()

    def _torch_loaded(self, torch: ModuleType) -> None:
        self.torch = torch
        _core.sources_install()
        why = calibrate(torch)
        if why is not None:
            self.problems.append(f"backward is not attributed to forward lines: {why}")
        problem = "the layout of autograd's nodes is not known" if why is not None else check_nodes(torch)
        self._note_nodes(live_nodes.claim(str(getattr(torch, "__version__", "unknown")), problem))
        self._watch_calls(torch)
        self.record_operators()
        for name in ("torch.nn.modules.module", "torch.optim.optimizer", "torch.utils.data.dataloader"):
            if name in sys.modules:
                self._part_loaded(sys.modules[name])

    def _watch_calls(self, torch: ModuleType) -> None:
        """Without these there are no steps but those of prof.step() and of calls of a module."""
        try:
            scopes = torch.ops.profiler
            _core.torch_watch("usage", torch._C._log_api_usage_once)
            _core.torch_watch("enter", scopes._record_function_enter_new._op)
            _core.torch_watch("exit", scopes._record_function_exit._RecordFunction._op)
        except own(AttributeError, RuntimeError, ValueError) as error:
            self.failed("steps are not seen", error)

    def record_operators(self) -> None:
        """Starts or stops recording names of operators."""
        if not self.operators:
            _core.operators_stop()
        elif self.torch is not None and (why := start_operators(self.torch)) is not None:
            _core.operators_stop()
            self.problems.append(f"names of operators are not recorded: {why}")

    def _note_nodes(self, claim: str) -> None:
        """Notes it in the trace at once, so that a killed process has it there, too."""
        try:
            _core.capture_note({"nodes": claim})
        except own(OSError) as error:
            self.failed("the trace does not say whether autograd's nodes are counted", error)

    def _part_loaded(self, module: ModuleType) -> None:
        if self.torch is None:  # torch itself is still on its way: _torch_loaded comes back to this
            return
        try:
            if module.__name__ == "torch.nn.modules.module":
                self._watch_modules(module.Module)
            elif module.__name__ == "torch.optim.optimizer":
                self._watch_optimizers(module.Optimizer)
            else:
                _core.torch_caller("iterator_next", _code_of(module._BaseDataLoaderIter.__next__))
                _core.torch_iterators(datasets.Notes().look)
        except own(AttributeError, StopIteration, ValueError) as error:  # torch lacks it; doctor reports it
            self.failed(module.__name__, error)

    def _watch_modules(self, module: Any) -> None:
        _core.torch_caller("module_init", _code_of(module.__init__))
        _core.torch_watch("module_setstate", module.__setstate__)
        _core.torch_watch("module_call", module._wrapped_call_impl)
        _core.frames_module_call(module._wrapped_call_impl.__code__)

    def _watch_optimizers(self, optimizer: Any) -> None:
        _core.torch_caller("optimizer_init", _code_of(optimizer.__init__))
        _core.torch_watch("optimizer_setstate", optimizer.__setstate__)
        # The function inside; from 3.14 on what evaluates its annotations is a constant, too.
        codes = (code for code in _code_of(optimizer.profile_hook_step).co_consts if isinstance(code, CodeType))
        _core.torch_caller("optimizer_step", next(code for code in codes if "self" in code.co_varnames))

    def look(self) -> None:
        """Runs once a second, in the main thread: late imports, and at doubling intervals filling containers."""
        self.watch.poke()
        self._note_rank()
        self.seconds += 1
        try:
            if self.seconds & (self.seconds - 1) == 0:
                slices.add("filling", filling.note_in_slices(_core))
            else:
                slices.go_on()  # here for programs without steps
        except own(Exception) as error:  # nothing of this may reach the program
            self.failed("containers that are filling are not known", error)

    def _note_rank(self) -> None:
        """Of a process that had none when its recording started, once its process group is there."""
        try:
            if not self.has_rank and (found := role.of_group()):
                _core.capture_note(found)
                self.has_rank = True
        except own(Exception) as error:  # nothing of this may reach the program
            self.failed("its rank is not known", error)

    def remove(self) -> None:
        _core.main_thread_call(None)
        self._note_rank()
        unseen = _core.autograd_unseen()
        if unseen is not None:
            self._note_nodes(f"nodes kept by {unseen} are not seen dying")
        self.watch.stop()
        slices.start()
        _core.operators_stop()
        _core.torch_unwatch()
        _core.frames_module_call(None)
        _core.sources_remove()


_installed: _Installed | None = None


def install(operators: bool = False) -> None:
    """Patches what is loaded of torch and watches for the rest. Idempotent; main thread. operators: their names, too.

    Call it before recording starts: hooks go on first, `seed.seed_alive` follows.
    """
    global _installed
    if _installed is not None:
        _installed.operators = operators  # a forked child has its parent's hooks, and its own wishes
        _installed.record_operators()
        return
    _installed = _Installed()
    _installed.operators = operators
    _core.sources_install()  # also without torch: the collector's scan takes over from here
    _installed.watch.start()
    _core.main_thread_call(_installed.look)


def remove() -> None:
    """Takes out everything that `install` put in, unless other code has put its own over it. Repeatable."""
    global _installed
    if _installed is not None:
        _installed.remove()  # may be interrupted, and is then done again
        _installed = None


def problems() -> list[str]:
    """What could not be installed, one line each; for the trace's environment and `cuptimem doctor`."""
    return [] if _installed is None else [*_installed.problems, *_cuda_problems()]


def cpp_name(mangled: str) -> str:
    """The last part of a C++ name: "N3c104cuda...22NativeCachingAllocatorE" is NativeCachingAllocator."""
    rest, last = mangled.removeprefix("N"), mangled
    while (digits := len(rest) - len(rest.lstrip("0123456789"))) > 0:
        length, rest = int(rest[:digits]), rest[digits:]
        last, rest = rest[:length], rest[length:]
    return last


def _cuda_problems() -> list[str]:
    """What PyTorch's CUDA allocator did without an event."""
    found = _core.cuda_allocator()
    if found is None:
        return []
    (mangled, sizes_seen, unseen, untraced), said = found, []
    kind = cpp_name(mangled)
    if unseen:
        said.append(f"{unseen} blocks on the GPU came from an allocator that reports nothing ({kind}): missing here")
    if untraced:
        said.append(f"PyTorch took memory from CUDA {untraced} times without a report: it is missing here")
    if not sizes_seen:
        said.append(f"how much of the GPU's blocks was asked for is not known: {kind} could not be hooked")
    return said


@contextlib.contextmanager
def _own_nodes() -> Iterator[list[tuple[int, int]]]:
    """The nodes that this thread makes inside are not the program's. Gives a list that holds, afterwards, how many
    creations and how many ends the hooks have seen."""
    seen: list[tuple[int, int]] = []
    with living.no_collection():  # one would end nodes of the program unrecorded
        try:
            _core.autograd_own_nodes(True)
            yield seen
        finally:
            seen.append(_core.autograd_own_nodes(False))


def calibrate(torch: ModuleType) -> str | None:
    """Finds where autograd's nodes keep their number. None, or why it cannot be found.

    The nodes made for it hold no tensors and are gone when this returns; no random number is drawn.
    """
    nodes: list[Any] = []
    with _own_nodes():  # recording may be on, and the program's first node begins its first step
        try:
            with contextlib.suppress(AttributeError, TypeError):  # then the exported getter alone decides
                nodes = [torch._C._functions.DelayedError("cuptimem", 0) for _ in range(8)]
            numbers = [(id(node), node._sequence_nr()) for node in nodes]
            return _core.autograd_calibrate([(node, number) for node, number in numbers if number > 0])
        finally:
            nodes.clear()


@contextlib.contextmanager
def _plain_torch(torch: ModuleType) -> Iterator[None]:
    """Outside of whatever the program has put around operators: modes, subclasses, inference."""
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


def start_operators(torch: ModuleType) -> str | None:
    """Registers for the names of running operators and runs one as a test. None, or why they are not known."""
    why = _core.operators_start()
    if why is not None:
        return why
    _core.operators_test(True)
    try:
        with _plain_torch(torch):
            torch.empty(0, device="cpu")  # allocates nothing
    except own(AttributeError, RuntimeError, TypeError) as error:
        return f"an operator could not be run to test it ({type(error).__name__}: {error})"
    finally:
        seen = _core.operators_test(False)
    return None if seen else "an operator that ran as a test was not seen"


def check_nodes(torch: ModuleType) -> str | None:
    """Makes a few nodes as an operator does, drops them, and asks the hooks. None, or what they have not seen.

    No memory is allocated for them: they are views of an empty tensor. Call it after `calibrate`.
    """
    count = 4
    try:
        with _own_nodes() as seen, _plain_torch(torch):
            leaf = torch.empty(0, device="cpu", requires_grad=True)
            views = [leaf.view(0) for _ in range(count)]
            del views, leaf
    except own(AttributeError, RuntimeError, TypeError) as error:
        return f"a node could not be made to test it ({type(error).__name__}: {error})"
    made, ended = seen[0]
    if made != count or ended != count:
        return f"of {count} nodes made as a test, {made} were seen coming and {ended} going"
    return None


def _code_of(function: Any) -> CodeType:
    """The code of PyTorch's function, below wrappers that other libraries have put on it (functools.wraps)."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code: CodeType = function.__code__
    return code
