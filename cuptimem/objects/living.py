"""Finds living objects of PyTorch and reads them, without running the program's code.

Classes are recognized by their real method resolution order: `isinstance` may run a `__class__` property.
Attributes are read from namespaces and through the descriptors of PyTorch's base class, with tensor subclasses and
modes bypassed.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import functools
import gc
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from cuptimem import _core
from cuptimem.errors import own

TENSOR, STORAGE, MODULE, OPTIMIZER, POOL, STEPPER, CONTAINER = 1, 2, 3, 4, 5, 6, 7
"""STEPPER: of a class that steps and clears gradients as optimizers do, and is none of PyTorch's. CONTAINER: a plain
list or deque, or an lru_cache."""

Cache = functools._lru_cache_wrapper

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that a program has made

# The real ones, whatever a metaclass shows.
mro = type.__dict__["__mro__"].__get__
_flags = type.__dict__["__flags__"].__get__
_namespace = type.__dict__["__dict__"].__get__


@contextlib.contextmanager
def undisturbed(torch: Any) -> Iterator[None]:
    """Inside, PyTorch's calls of this thread reach no code of the program: no warnings, no modes, no subclasses, no
    graph, no collection (which runs finalizers)."""
    with (
        no_collection(),
        _no_warnings(),
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),
        _no_grad(torch),
    ):
        yield


_pausing: list[object] = []  # one entry for each caller, in any thread, that needs collection off
_resume = False  # whether the last of them turns it on again
_lock = _thread.RLock()  # a signal's handler may come in here, too


@contextlib.contextmanager
def no_collection() -> Iterator[object]:
    global _resume
    user = object()
    try:  # a signal's handler may raise anywhere in here
        with _lock:
            _pausing.append(user)
            _resume = _resume or gc.isenabled()
            gc.disable()
        yield user
    finally:
        with _lock:
            if user in _pausing:
                try:
                    _pausing.remove(user)
                finally:
                    if _resume and not _pausing:
                        _resume = False
                        gc.enable()


def collect_instead(user: object, collect: Callable[[bool], bool]) -> None:
    """Ends a no_collection from within by this: it gets whether automatic collection is to be on as it begins, and
    returns whether it has run. Finalizers that it runs, and other threads, come to no_collection as if outside."""
    global _resume
    resumes = has_run = False
    try:  # as above
        with _lock:
            resumes = _resume and _pausing == [user]
            if resumes:
                _resume = False
            if user in _pausing:  # not in a child forked inside
                _pausing.remove(user)
        has_run = collect(resumes)
    finally:
        if resumes and not has_run:
            gc.enable()


# A pattern that no filter of the program has: a comparison of the two ends before any class is compared.
_IGNORE = ("ignore", re.compile("(?#cuptimem)"), Warning, None, 0)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """No warnings inside. warnings.catch_warnings would make Python forget which ones it has shown, and repeat them."""
    filters: Any = warnings.filters
    try:
        filters.insert(0, _IGNORE)
        yield
    finally:
        if _IGNORE in filters:
            filters.remove(_IGNORE)


def forget() -> None:
    """In a forked child: undoes what a thread of the parent had turned off."""
    global _lock, _resume
    _lock = _thread.RLock()
    _pausing.clear()
    if _resume:
        gc.enable()
    _resume = False
    filters: Any = warnings.filters
    while _IGNORE in filters:
        filters.remove(_IGNORE)


@contextlib.contextmanager
def _no_grad(torch: Any) -> Iterator[None]:
    """No graph inside. torch.no_grad would stay on if a signal's handler raised as it begins."""
    enabled = torch._C.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)
        yield
    finally:
        torch._C._set_grad_enabled(enabled)


def find(torch: Any, among: list[Any], containers: bool = False) -> list[tuple[int, Any]]:
    """Everything of interest among these objects, with its kind, chosen by class alone. containers: these, too."""
    bases = {torch.Tensor: TENSOR, torch._C.TensorBase: TENSOR, torch._C.StorageBase: STORAGE}
    for module, name, kind in (
        ("torch.nn.modules.module", "Module", MODULE),
        ("torch.optim.optimizer", "Optimizer", OPTIMIZER),
    ):
        base = getattr(sys.modules.get(module), name, None)
        if base is not None:
            bases[base] = kind
    pool = getattr(torch._C, "_MemPool", None)
    if pool is not None:
        bases[pool] = POOL
    by_base = {id(base): kind for base, kind in bases.items()}

    def kind_of(cls: type) -> int:
        if containers and (cls is list or cls is collections.deque or cls is Cache):
            return CONTAINER
        for base in mro(cls):
            kind = by_base.get(id(base))
            if kind is not None:
                return kind
        return STEPPER if _has_method(cls, "step") and _has_method(cls, "zero_grad") else 0

    return _core.select(among, kind_of)


def _has_method(cls: type, name: str) -> bool:
    return any(_flags(base) & _HEAP_TYPE and name in _namespace(base) for base in mro(cls))


def all_objects() -> list[Any]:
    """Every object that the collector tracks, but for plain tuples: a frame may still be filling them
    (`tuple(generator)`), and a second reference would make that fail."""
    return with_frozen(_core.tracked(gc.get_objects))


def with_frozen(found: list[Any]) -> list[Any]:
    """Adds what `gc.freeze` hid from the collector, which is reached from the others."""
    return found if gc.get_freeze_count() == 0 else _core.with_reached(found, list(sys.modules.values()))


def attributes(item: Any) -> dict[str, Any]:
    """The namespace of an object, or an empty one where the program's code stands for it."""
    for cls in mro(type(item)):
        slot = _namespace(cls).get("__dict__")
        if slot is not None:
            found = slot.__get__(item) if type(slot) is GetSetDescriptorType else {}
            return found if type(found) is dict else {}
    return {}


def slots(item: Any) -> Iterator[Any]:
    """What its `__slots__` hold, where descriptors of C stand for them."""
    for cls in mro(type(item)):
        names = _namespace(cls).get("__slots__", ())
        for name in (names,) if type(names) is str else tuple(names) if type(names) in (list, tuple) else ():
            slot = _namespace(cls).get(name)
            if type(slot) is MemberDescriptorType:
                try:
                    yield slot.__get__(item)
                except own(AttributeError):  # not set
                    continue


def cache_bound(cache: Any) -> tuple[int | None, int]:
    """The maxsize of an lru_cache, and how many results it has; with a class of the program's to say so, none."""
    if not any(one is functools._CacheInfo for one in gc.get_referents(cache)):
        return None, 0
    found: tuple[int | None, int] = Cache.cache_info(cache)[2:]
    return found


def is_tensor(torch: Any, item: Any) -> bool:
    return any(cls is torch._C.TensorBase for cls in mro(type(item)))


def gradients(torch: Any, leaves: list[Any]) -> list[Any] | None:
    """The `.grad` of each. None: another thread, in a backward pass or in `tensor.grad = None`, may exchange them
    meanwhile, and what is read then may be freed memory."""
    backward = getattr(getattr(torch.autograd, "graph", None), "_engine_run_backward", None)
    code = getattr(backward, "__code__", None)
    if code is None:
        return None
    found = _core.call_unless_running(code, list, map(torch._C.TensorBase.grad.__get__, leaves))
    return None if found is NotImplemented else found


def is_plain(torch: Any, tensor: Any) -> bool:
    """Whether asking it for its layout cannot run the program's code."""
    plain = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
    return getattr(type(tensor), "__torch_dispatch__", None) is plain


def cpu_block(cdata: int) -> tuple[int, int, int, bool]:
    """Origin, address and bytes of the block that a storage lies in, and whether the storage is only a part of it."""
    origin, address, size = _core.storage_origin(cdata)
    is_part = origin == _core.STORAGE_SLICE
    while origin == _core.STORAGE_SLICE:
        origin, address, size = _core.storage_origin(address)
    return origin, address, size, is_part


def part_names(torch: ModuleType, tensor: Any) -> tuple[str, ...] | None:
    """Methods that give the tensors inside a plain one that has parts; None: its layout is not known."""
    if tensor.layout == torch.sparse_coo:
        return ("_indices", "_values")
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return ("crow_indices", "col_indices", "values")
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return ("ccol_indices", "row_indices", "values")
    if tensor.is_nested:
        return ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")
    if tensor.is_quantized:
        per_channel = tensor.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        return ("q_per_channel_scales", "q_per_channel_zero_points") if per_channel else ()
    return None


def is_pinned(torch: Any, storage: Any) -> bool:
    """Whether a storage lies in pinned host memory. Without CUDA there is none, and asking would begin to use it."""
    return bool(torch.cuda.is_initialized() and storage.is_pinned())
