"""What is learned from PyTorch's Python side: step clocks, new modules and optimizers, when torch arrives.

Everything here runs inside the training process, imports nothing but the standard library, and is undone by `remove`.
No function of the program is wrapped in a way that torch.compile could stumble over: what we add asks
`torch.compiler.is_compiling()` first, which the compiler answers itself, and then does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any

from cuptimem import _core, live_nodes
from cuptimem.late_import import ImportWatch

TICK_OPTIMIZER, TICK_DATA, TICK_MODULE = 2, 3, 4  # cm_tick_kind
OBJECT_MODULE, OBJECT_OPTIMIZER, OBJECT_ITERATOR = 1, 2, 3  # cm_object_kind

_QUIET_SECONDS = 3  # a module clock that did not tick for so long is looked for anew


def _not_compiling() -> bool:
    return False


_is_compiling: Callable[[], bool] = _not_compiling
_ticked = False  # since the last look; only ever set by clocks better than a module's calls


class _Installed:
    """What has been put into torch, and how to take it out again."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.problems: list[str] = []
        self.torch: ModuleType | None = None
        self.wrapped_call: CodeType | None = None
        self.clock: _ModuleClock | None = None
        self.looked_up = 0
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
        global _is_compiling
        self.torch = torch
        _is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or _not_compiling
        _core.sources_install()
        why = calibrate(torch)
        if why is not None:
            self.problems.append(f"backward is not attributed to forward lines: {why}")
        problem = "the layout of autograd's nodes is not known" if why is not None else check_nodes(torch)
        self._note_nodes(live_nodes.claim(str(getattr(torch, "__version__", "unknown")), problem))
        for name in ("torch.nn.modules.module", "torch.optim.optimizer", "torch.utils.data.dataloader"):
            if name in sys.modules:
                self._part_loaded(sys.modules[name])

    def _note_nodes(self, claim: str) -> None:
        """Into the trace at once, so that a process that is killed has said it."""
        try:
            _core.capture_note({"nodes": claim})
        except OSError as error:
            self.failed("the trace does not say whether autograd's nodes are counted", error)

    def _part_loaded(self, module: ModuleType) -> None:
        if self.torch is None:  # torch itself is still on its way: _torch_loaded comes back to this
            return
        try:
            if module.__name__ == "torch.nn.modules.module":
                self._hook_modules(module)
            elif module.__name__ == "torch.optim.optimizer":
                self._hook_optimizers(module)
            else:
                self._hook_iterators(module)
        except AttributeError as error:  # a version of torch that lacks this; doctor tells
            self.failed(module.__name__, error)

    # --- hooks -------------------------------------------------------------------------------------

    def _wrap(
        self, owner: type, name: str, make: Callable[[Callable[..., Any], list[bool]], Callable[..., Any]]
    ) -> None:
        original = owner.__dict__[name]
        if getattr(original, "_cuptimem", None) is self:  # the module was reloaded, this class was not
            return
        enabled = [True]
        wrapper = functools.wraps(original)(make(original, enabled))
        wrapper._cuptimem = self  # type: ignore[attr-defined]

        def undo() -> None:
            enabled.clear()  # should somebody have wrapped ours, it stays and does nothing
            if owner.__dict__.get(name) is wrapper:
                setattr(owner, name, original)

        setattr(owner, name, wrapper)
        self.undo.append(undo)

    def _hook_modules(self, module: ModuleType) -> None:
        self._wrap(module.Module, "__init__", _stamping(OBJECT_MODULE))
        self._wrap(module.Module, "__setstate__", _stamping(OBJECT_MODULE))
        self.wrapped_call = module.Module._wrapped_call_impl.__code__
        _core.frames_module_call(self.wrapped_call)

    def _hook_optimizers(self, module: ModuleType) -> None:
        self._wrap(module.Optimizer, "__init__", _stamping(OBJECT_OPTIMIZER))
        self._wrap(module.Optimizer, "__setstate__", _stamping(OBJECT_OPTIMIZER))
        if _after_step not in module._global_optimizer_post_hooks.values():
            handle = module.register_optimizer_step_post_hook(_after_step)
            self.undo.append(handle.remove)

    def _hook_iterators(self, module: ModuleType) -> None:
        # An epoch's iterator often gets the address of the last one, and persistent workers keep the object itself:
        # without these stamps its first batch would look like one more of the epoch before.
        self._wrap(module._BaseDataLoaderIter, "__init__", _stamping(OBJECT_ITERATOR))
        self._wrap(module._BaseDataLoaderIter, "_reset", _stamping(OBJECT_ITERATOR))
        self._wrap(module._BaseDataLoaderIter, "__next__", _ticking_next)

    # --- the last resort among the clocks ------------------------------------------------------------

    def look(self) -> None:
        """Once a second, in the main thread: if nothing else ticks, makes the outermost module's calls tick."""
        global _ticked
        self.watch.poke()
        if _ticked or self.wrapped_call is None:
            _ticked = False
            return
        if self.clock is not None and self.clock.seconds_quiet() <= _QUIET_SECONDS:
            return
        module = _outermost_module(sys._getframe(1), self.wrapped_call) or self._last_outermost()
        if self.clock is not None:
            self.clock.remove()
            self.clock = None
        if module is not None and self.torch is not None:
            self.clock = _ModuleClock(self.torch, module)

    def _last_outermost(self) -> Any:
        """The module that was called last, where none is being called just now.

        A program that mostly waits (for requests, in sleep) is always met outside of its model. The walk remembers the
        address; whether it still is that module only the collector's list of objects can say. That costs milliseconds:
        an address is looked up once. With the compiler loaded it is left alone, for the call may be one of its own.
        """
        address = _core.outermost_module()
        if not address or address == self.looked_up or "torch._dynamo" in sys.modules or self.torch is None:
            return None
        self.looked_up = address
        base = self.torch.nn.Module
        found = (one for one in gc.get_objects() if id(one) == address and base in type(one).__mro__)
        module = next(found, None)
        return module if _may_tick(module) else None

    def remove(self) -> None:
        _core.main_thread_call(None)
        unseen = _core.autograd_unseen()
        if unseen is not None:
            self._note_nodes(f"nodes kept by {unseen} are not seen dying")
        self.watch.stop()
        if self.clock is not None:
            self.clock.remove()
        for undo in reversed(self.undo):
            undo()
        _core.frames_module_call(None)
        _core.sources_remove()


_installed: _Installed | None = None


def install() -> None:
    """Patches what is loaded of torch and watches for the rest. Idempotent; main thread.

    Call it before recording starts: hooks go on first, `seed.seed_alive` follows.
    """
    global _installed, _ticked
    if _installed is not None:
        return
    _installed = _Installed()
    _ticked = False
    _core.sources_install()  # also without torch: the collector's scan takes over from here
    _installed.watch.start()
    _core.main_thread_call(_installed.look)


def remove() -> None:
    """Takes out everything that `install` put in, unless somebody has put theirs over it. Repeatable."""
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
    """What PyTorch's CUDA allocator did without telling anybody."""
    found = _core.cuda_allocator()
    if found is None:
        return []
    (mangled, sizes_seen, unseen, untraced), said = found, []
    kind = cpp_name(mangled)
    if unseen:
        said.append(f"{unseen} blocks on the GPU came from an allocator that tells nobody ({kind}): missing here")
    if untraced:
        said.append(f"PyTorch took memory from CUDA {untraced} times without a report: it is missing here")
    if not sizes_seen:
        said.append(f"how much of the GPU's blocks was asked for is not known: {kind} could not be hooked")
    return said


def note_step() -> None:
    """`prof.step()` ticked: module calls need not be tried as a clock."""
    global _ticked
    _ticked = True


@contextlib.contextmanager
def _own_nodes() -> Iterator[list[tuple[int, int]]]:
    """The nodes that this thread makes inside are not the program's. Gives a list that holds, afterwards, how many
    creations and how many ends the hooks have seen."""
    seen: list[tuple[int, int]] = []
    collecting = gc.isenabled()
    gc.disable()  # a collection here would end nodes of the program that nobody records
    _core.autograd_own_nodes(True)
    try:
        yield seen
    finally:
        seen.append(_core.autograd_own_nodes(False))
        if collecting:
            gc.enable()


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


def check_nodes(torch: ModuleType) -> str | None:
    """Makes a few nodes as an operator does, drops them, and asks the hooks. None, or what they have not seen.

    No memory is allocated for them: they are views of an empty tensor. Call it after `calibrate`.
    """
    count = 4
    try:
        with (
            _own_nodes() as seen,
            torch._C.DisableTorchFunction(),
            torch._C._DisableTorchDispatch(),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            leaf = torch.empty(0, device="cpu", requires_grad=True)
            views = [leaf.view(0) for _ in range(count)]
            del views, leaf
    except (AttributeError, RuntimeError, TypeError) as error:
        return f"a node could not be made to test it ({type(error).__name__}: {error})"
    made, ended = seen[0]
    if made != count or ended != count:
        return f"of {count} nodes made as a test, {made} were seen coming and {ended} going"
    return None


# --- what runs in the program's own calls ---------------------------------------------------------------


def _after_step(optimizer: object, args: object, kwargs: object) -> None:
    global _ticked
    if not _is_compiling():
        _core.tick(TICK_OPTIMIZER, optimizer)
        _ticked = True


def _ticking_next(original: Callable[..., Any], enabled: list[bool]) -> Callable[..., Any]:
    def __next__(self: object) -> Any:
        global _ticked
        if enabled and not _is_compiling():
            _core.tick(TICK_DATA, self)
            _ticked = True
        return original(self)

    return __next__


def _stamping(kind: int) -> Callable[[Callable[..., Any], list[bool]], Callable[..., Any]]:
    def make(original: Callable[..., Any], enabled: list[bool]) -> Callable[..., Any]:
        def stamped(self: object, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if not _is_compiling() and enabled:
                _core.object_new(kind, self)

        return stamped

    return make


class _ModuleClock:
    """A forward pre-hook on one module instance, which it does not keep alive."""

    def __init__(self, torch: ModuleType, module: Any) -> None:
        self._module = weakref.ref(module)
        self._ticks = self._seen = self._quiet = 0
        self._handle = torch.nn.Module.register_forward_pre_hook(module, self)

    def __call__(self, module: object, args: object) -> None:
        if not _is_compiling() and module is self._module():  # not a copy of it
            _core.tick(TICK_MODULE, module)
            self._ticks += 1

    def __reduce__(self) -> tuple[Any, ...]:
        # A model saved while we watch it is loaded where we are not: as a call that does nothing.
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo: object) -> Any:
        return contextlib.nullcontext().__exit__

    def seconds_quiet(self) -> int:
        """How many looks in a row have seen no tick."""
        self._quiet = self._quiet + 1 if self._ticks == self._seen else 0
        self._seen = self._ticks
        return self._quiet if self._module() is not None else _QUIET_SECONDS + 1

    def remove(self) -> None:
        self._handle.remove()


def _outermost_module(frame: FrameType | None, wrapped_call: CodeType) -> Any:
    """The module whose call is the outermost on this stack, or None if it is none that may be hooked."""
    outermost = None
    while frame is not None:
        if frame.f_code is wrapped_call:
            outermost = frame
        elif "/torch/_dynamo/" in frame.f_code.co_filename or "torch_dynamo_resume_in" in frame.f_code.co_name:
            return None
        frame = frame.f_back
    if outermost is None or _is_compiling():
        return None
    module = outermost.f_locals.get("self")
    return module if _may_tick(module) else None


def _may_tick(module: Any) -> bool:
    """Whether a hook on this module changes nothing but its calls' speed: a compiled one would be compiled again."""
    if module is None or getattr(module, "_compiled_call_impl", None) is not None:
        return False
    return not {cls.__name__ for cls in type(module).__mro__} & {"OptimizedModule", "ScriptModule"}
