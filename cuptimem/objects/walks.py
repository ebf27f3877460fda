"""Names for what is alive: one walk over modules, their tensors and optimizers, at a few moments of a capture.

A walk emits a label for each module and for each block of memory that one of their tensors lies in (cm_label_kind in
csrc/base/event.h). It runs none of the program's code and keeps nothing alive; modules are remembered by weak
references, so that each keeps its name. csrc/python/py_walks.h decides after which steps a walk is made.

At its ends a capture is walked whole. In between a walk goes through what was found at the start and what was made
since (csrc/python/py_walks.c has weak references), a part after each step: it never looks at all objects.
"""

from __future__ import annotations

import collections
import gc
import itertools
import mmap
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from cuptimem import _core
from cuptimem.errors import own
from cuptimem.objects import living, near, slices
from cuptimem.objects.living import MODULE, OPTIMIZER, STEPPER, TENSOR

_MOST_MODULES = 100_000
_MOST_TENSORS = 1_000_000
_MOST_TEXTS = 32_768  # in a capture: half of the names that a trace has room for
_PART_LABELS = 256  # of one part of a walk while the program runs
_PART_MODULES = 512  # named in one part
_QUICK = 16  # so many that only one set is asked for take as long as one that is named
_BATCH = 32  # modules, parameters or states that are read at once
_NEAREST = 2048  # objects among which optimizers that are none of PyTorch's are looked for
_UPDATED = 3  # changes in place of a leaf, or of its gradient: it is trained, and no input
_DEPTH = 4  # of lists and dicts in an optimizer's state, and of tensors made of others
_LONGEST = 200  # characters of a name
_SHARED_HEADER = 64  # bytes before a storage that the file_system sharing strategy mapped

_class_name = type.__dict__["__name__"].__get__

_Found = list[tuple[int, Any]]  # as living.find has it
_Tensors = list[tuple[Any, str, int]]  # each with its name, and the address of the module that owns it


class _Name(NamedTuple):
    """A module's name, and the prefix of the names of its parts."""

    module: weakref.ref[Any]
    text: str
    prefix: str


_names: dict[int, _Name] = {}  # of modules, by address; an entry counts while its reference gives that module
_texts: set[str] = set()
_problems: list[str] = []
_walking: dict[str, object] = {}  # "walk": the walk that is being made


def start(due: Callable[[], None]) -> None:
    """Begins a capture's walks: `due` is called after the steps that py_walks.h chooses. Repeatable."""
    stop()
    _walking.clear()  # a forked child may have inherited one
    tick = _core.hidden(due)
    _core.walks_call(tick)
    _core.main_thread_call_after_pass(tick)


def stop() -> list[str]:
    """Ends the walks and forgets all names. Returns what went wrong, one line each."""
    _core.walks_call(None)
    _core.main_thread_call_after_pass(None)
    slices.start()
    _names.clear()
    _texts.clear()
    problems = list(_problems)
    _problems.clear()
    return problems


def record(found: _Found | None = None) -> None:
    """Makes one walk, unless another thread is making one. found: what living.find has found among all that is alive;
    all of it is walked at once, other tensors, too. None: what is known so far, in slices. Only a signal's handler
    raises."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "UntypedStorage"):
        return
    if found is not None:
        collections.deque(_parts(torch, found), 0)
    else:
        slices.add("walk", _parts(torch, None))


def _parts(torch: Any, found: _Found | None) -> Iterator[None]:
    parts: Iterator[None] | None = None
    goes_on = True
    while goes_on:
        me = object()
        try:
            if _walking.setdefault("walk", me) is not me:
                return
            with living.undisturbed(torch):
                if parts is None:
                    parts = _Walk(torch).run(found)
                goes_on = next(parts, parts) is None
        except own(Exception) as error:  # nothing of this may reach the program, but what its signal handlers raise
            problem = f"names of modules and tensors are not known: {type(error).__name__}: {error}"
            if problem not in _problems:
                _problems.append(problem)
            return
        finally:  # without a call, after which a handler could raise: the next walk would wait for ever
            if "walk" in _walking and _walking["walk"] is me:
                del _walking["walk"]
        yield


class _Walk:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.base = torch._C.TensorBase
        self.module = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
        self._layouts: dict[Any, str] = {}  # dtypes as text
        self._alive: dict[int, weakref.ref[Any]] = {}  # modules by address
        self._labelled: set[int] = set()  # addresses of blocks: the first label of one is its label
        self._owners: dict[int, tuple[str, int]] = {}  # of parameters, by id: name, address of the module
        self._left = _MOST_TENSORS
        self._are_modules: dict[type, bool] = {}
        self._named_now = 0  # in this part
        self._looked = 0  # in labels: how long modules and groups were read for what may have no label

    def run(self, found: _Found | None) -> Iterator[None]:
        """The labels. Unless all was found, after each part of them it yields, and then has no reference to the
        program's objects."""
        full = found is not None
        made, others, optimizers, tensors = self._begin(found)
        names: list[_Name] = []
        for _ in self._named(made, others, full, names):
            self._are_modules.clear()  # it may be a class that nothing else has any more
            if not full:
                yield
        self._are_modules.clear()
        done = self._named_now
        for kind, batches in (
            (_core.LABEL_PARAMETER, self._parameters(names, optimizers)),
            (_core.LABEL_BUFFER, self._held(names, "_buffers")),
            (_core.LABEL_GRADIENT, map(self._gradients, self._parameters(names, optimizers))),
            (_core.LABEL_OPTIMIZER_STATE, self._states(optimizers)),
        ):
            for batch in batches:
                self._label_all(kind, batch)
                done += len(batch) + self._looked
                self._looked = 0
                batch.clear()
                if not full and done >= _PART_LABELS:
                    done = 0
                    yield
        self._label_all(_core.LABEL_PARAMETER, [(tensor, "", 0) for tensor in tensors if self._is_updated(tensor)])
        self._label_all(_core.LABEL_GRADIENT, self._gradients([(tensor, "", 0) for tensor in tensors]))
        # A view's shape is not that of its block.
        self._label_all(_core.LABEL_TENSOR, [(tensor, "", 0) for tensor in sorted(tensors, key=self.base._is_view)])

    def _begin(
        self, found: _Found | None
    ) -> tuple[list[weakref.ref[Any]], list[weakref.ref[Any]], list[Callable[[], Any]], list[Any]]:
        """Modules in the order of their making, others whose making nothing showed, optimizers, and, of all that was
        found, tensors."""
        _core.mark(_core.MARK_WALK)
        if found is not None:
            return (
                [weakref.ref(item) for kind, item in found if kind == MODULE],
                [],
                [_reference(item, True) for kind, item in found if kind in (OPTIMIZER, STEPPER)],
                [item for kind, item in found if kind == TENSOR],
            )
        near_by = living.find(self.torch, near.objects(_NEAREST))
        return (
            _core.walks_made(_core.OBJECT_MODULE),
            # Before Python 3.12 no call shows those that copy.deepcopy makes.
            [weakref.ref(item) for kind, item in near_by if kind == MODULE],
            [
                *_core.walks_made(_core.OBJECT_OPTIMIZER),
                *(_reference(item, False) for kind, item in near_by if kind == STEPPER),
            ],
            [],
        )

    # --- modules --------------------------------------------------------------------------------------

    def _children(self, module: Any) -> list[tuple[Any, Any]]:
        """Those of a module, each with its key."""
        return [
            (key, child)
            for key, child in _items(self._namespace(module).get("_modules"))
            if self._is_module(type(child))
        ]

    def _is_module(self, cls: type) -> bool:
        found = self._are_modules.get(cls)
        if found is None:
            found = self._are_modules[cls] = any(base is self.module for base in living.mro(cls))
        return found

    def _original(self, module: Any) -> Any | None:
        """The module that torch.compile has wrapped in this one."""
        if _class_name(type(module)) != "OptimizedModule":
            return None
        return next((child for key, child in self._children(module) if key == "_orig_mod"), None)

    def _named(
        self, made: list[weakref.ref[Any]], others: list[weakref.ref[Any]], full: bool, names: list[_Name]
    ) -> Iterator[None]:
        """Labels every module and appends its name; roots in the order of their making, the rest as named_modules()
        goes. full: they are as the collector lists them. others: come last, some of them for the second time. Where it
        yields it has weak references only, and addresses, which count while the object of one of `made` has them."""
        for key in list(_names):
            if _names[key].module() is None:
                del _names[key]
        if self._is_enough(len(_names) // _QUICK):
            yield
        first: set[int] = set()
        inner = {0}  # what has died
        for start in range(0, min(len(made), _MOST_MODULES), _BATCH):
            part = made[start : start + _BATCH]
            first.update(map(_address, part))
            inner.update(id(child) for one in part for _, child in self._children(one()))
            if self._is_enough(_BATCH // 2):
                yield
        others = [one for one in others if _address(one) not in first]
        inner.update(id(child) for one in others for _, child in self._children(one()))
        every = [*made[:_MOST_MODULES], *others]
        roots = [one for one in every if _address(one) not in inner]
        holders: list[weakref.ref[Any]] = []  # that there is one is all that matters of them
        taken: set[str] = set()
        for one in roots:
            if len(holders) < 2 and _address(one) in first and self._holds(one()):
                holders.append(one)
            if (name := self._known(one())) is not None:
                taken.add(name.text)
            if self._is_enough(1):
                yield
        numbers: dict[str, int] = {}  # of each class, the next one to try
        done: set[int] = set()
        pending: list[_Name] = []
        if full and len(holders) > 1:
            roots.sort(key=_generations())
        if self._is_enough(len(every) // _QUICK):
            yield
        for root in roots:
            pending.append(self._root(root, taken, numbers, is_only=len(holders) == 1 and root is holders[0]))
            while pending:
                if self._name_last(pending, names, done) and self._is_enough(1):
                    yield
        if self._is_enough(len(every) // _QUICK):
            yield
        for one in [one for one in every if _address(one) not in done]:  # that only each other have as children
            pending.append(_Name(one, _class_name(type(one()))[:_LONGEST], ""))
            while pending:
                if self._name_last(pending, names, done) and self._is_enough(1):
                    yield

    def _is_enough(self, modules: int) -> bool:
        """Whether one part has named so many, these included, that the next one begins."""
        self._named_now += modules
        if self._named_now < _PART_MODULES:
            return False
        self._named_now = 0
        return True

    def _root(self, one: weakref.ref[Any], taken: set[str], numbers: dict[str, int], *, is_only: bool) -> _Name:
        """A name for a module that no other one has. is_only: there is no other model."""
        root = one()
        original = self._original(root)
        name = self._known(root) or self._known(original)
        if name is None:
            of = _class_name(type(root if original is None else original))[:_LONGEST]
            number = numbers.get(of, 1)
            while (text := of if number == 1 else f"{of}#{number}") in taken:
                number += 1
            numbers[of] = number + 1
            name = _Name(one, text, "" if is_only else f"{text}.")
        taken.add(name.text)
        return _Name(one, name.text, name.prefix)

    def _name_last(self, pending: list[_Name], names: list[_Name], done: set[int]) -> bool:
        """Names the last that is pending, and puts its children there. Whether there was something to do."""
        name = pending.pop()
        module = name.module()
        if module is None or id(module) in done or len(done) >= _MOST_MODULES:
            return False
        done.add(id(module))
        known = self._known(module)
        if known is None:
            known = _names[id(module)] = name
        names.append(known)
        self._alive[id(module)] = known.module
        _core.label(_core.LABEL_MODULE, id(module), 0, self._text(known.text))
        original = self._original(module)
        for key, child in reversed(self._children(module)):
            if child is original:
                pending.append(_Name(weakref.ref(child), known.text, known.prefix))
            else:
                text = (known.prefix + _key(key))[:_LONGEST]
                pending.append(_Name(weakref.ref(child), text, f"{text}."))
        return True

    def _holds(self, root: Any) -> bool:
        """Whether there are tensors in it: a loss function is no model. What is large is one."""
        pending, seen = [root], {id(root)}
        while pending and len(seen) < _PART_MODULES:
            module = pending.pop()
            for place in ("_parameters", "_buffers"):
                if any(living.is_tensor(self.torch, item) for _, item in _items(self._namespace(module).get(place))):
                    return True
            for _, child in self._children(module):
                if id(child) not in seen:
                    seen.add(id(child))
                    pending.append(child)
        return bool(pending)

    def _known(self, module: Any) -> _Name | None:
        name = _names.get(id(module))
        return name if name is not None and name.module() is module else None

    def _namespace(self, module: Any) -> dict[str, Any]:
        """The namespace of a module, through the base class's descriptor; of None an empty one."""
        found: Any = {} if module is None else self.module.__dict__["__dict__"].__get__(module)
        return found if type(found) is dict else {}

    # --- tensors --------------------------------------------------------------------------------------

    def _held(self, names: list[_Name], place: str) -> Iterator[_Tensors]:
        """Parameters or buffers of modules, in batches."""
        for start in range(0, len(names), _BATCH):
            part = [
                (tensor, name.prefix + _key(key), id(module))
                for module, name in ((name.module(), name) for name in names[start : start + _BATCH])
                if module is not None
                for key, tensor in _items(self._namespace(module).get(place))
                if living.is_tensor(self.torch, tensor)
            ]
            self._looked += (_BATCH + 2 * len(part)) // 8
            yield part

    def _parameters(self, names: list[_Name], optimizers: list[Callable[[], Any]]) -> Iterator[_Tensors]:
        """Those of modules, then what else optimizers update."""
        known: set[int] = set()
        for batch in self._held(names, "_parameters"):
            self._own(batch, known)
            yield batch
        for optimizer in optimizers:
            for number in itertools.count():
                start = 0
                while (part := self._group(optimizer(), number, start, known)) is not None:
                    self._own(part, known)
                    yield part
                    start += _QUICK * _BATCH
                if not _groups(optimizer(), number):
                    break

    def _group(self, optimizer: Any, number: int, start: int, known: set[int]) -> _Tensors | None:
        """Of a part of an optimizer's group what is not known; None: there is no such part."""
        for group in _groups(optimizer, number):
            part = _sequence(group.get("params"), start, start + _QUICK * _BATCH)
            if part:
                self._looked += 3 + len(part) // _QUICK  # a group takes as long as three labels
                return [
                    (tensor, f"param_group {number}[{i}]", 0)
                    for i, tensor in enumerate(part, start)
                    if id(tensor) not in known and living.is_tensor(self.torch, tensor)
                ]
        return None

    def _own(self, batch: _Tensors, known: set[int]) -> None:
        for tensor, text, owner in batch:
            known.add(id(tensor))
            self._owners.setdefault(id(tensor), (text, owner))

    def _owner_of(self, key: Any) -> tuple[str, int]:
        """A parameter's name and the address of its module; "", 0: unknown. The id of a dead module's parameter may be
        another object's by now."""
        text, owner = self._owners.get(id(key), ("", 0))
        return (text, owner) if owner == 0 or self._alive[owner]() is not None else ("", 0)

    def _gradients(self, of: _Tensors) -> _Tensors:
        """The gradients of these leaves, which go from the list. While a backward pass may exchange gradients, they are
        left to the next walk."""
        leaves = [one for one in of if self._is_leaf(one[0])]
        of.clear()
        gradients = living.gradients(self.torch, [tensor for tensor, _, _ in leaves])
        if gradients is None:
            return []
        return [
            (grad, text, owner) for grad, (_, text, owner) in zip(gradients, leaves, strict=True) if grad is not None
        ]

    def _is_leaf(self, tensor: Any) -> bool:
        try:
            return bool(self.base.is_leaf.__get__(tensor) and self.base.requires_grad.__get__(tensor))
        except own(RuntimeError):  # inside torch.func
            return False

    def _is_updated(self, tensor: Any) -> bool:
        """Whether the program trains this leaf by hand: it, or its gradient, was often changed in place."""
        if id(tensor) in self._owners or not living.is_plain(self.torch, tensor) or not self._is_leaf(tensor):
            return False
        gradients = living.gradients(self.torch, [tensor]) or []
        return any(
            self.base._version.__get__(one) >= _UPDATED
            for one in (tensor, *gradients)
            if one is not None and living.is_plain(self.torch, one)
        )

    def _states(self, optimizers: list[Callable[[], Any]]) -> Iterator[_Tensors]:
        for optimizer in optimizers:
            for part in (self._states_from, self._settings_from):
                start = 0
                while (batch := part(optimizer(), start)) is not None:
                    yield batch
                    start += 2 * _BATCH

    def _states_from(self, optimizer: Any, start: int) -> _Tensors | None:
        """A batch of an optimizer's states; None: there are no more."""
        items = _items(living.attributes(optimizer).get("state"), start, start + 2 * _BATCH)
        found: _Tensors = []
        for key, state in items:
            of, owner = self._owner_of(key)
            of = of or _class_name(type(optimizer))
            path = "" if living.is_tensor(self.torch, key) else _key(key)
            found += [
                (tensor, f"{path or 'state'} of {of}", owner) for path, tensor in self._inside(state, path, _DEPTH)
            ]
        return found if items else None

    def _settings_from(self, optimizer: Any, start: int) -> _Tensors | None:
        """The same of its groups."""
        groups = _groups(optimizer, start, start + 2 * _BATCH)
        self._looked += 3 * len(groups)
        return (
            [
                (tensor, f"{path} of param_group {number}", 0)
                for number, group in enumerate(groups, start)
                for key, value in group.items()
                if key != "params"
                for path, tensor in self._inside(value, _key(key), _DEPTH)
            ]
            if groups
            else None
        )

    def _inside(self, item: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        """The tensors in nested dicts, lists and tuples, each with where it is."""
        if living.is_tensor(self.torch, item):
            yield path, item
        elif depth > 0:
            for key, part in _items(item):
                yield from self._inside(part, f"{path}.{_key(key)}" if path else _key(key), depth - 1)
            for i, part in enumerate(_sequence(item)):
                yield from self._inside(part, f"{path}[{i}]", depth - 1)

    def _label_all(self, kind: int, tensors: Iterable[tuple[Any, str, int]]) -> None:
        for tensor, name, owner in tensors:
            self._label(kind, tensor, name[:_LONGEST], owner, _DEPTH)

    def _label(self, kind: int, tensor: Any, name: str, owner: int, depth: int) -> None:
        if self._left == 0:
            return
        self._left -= 1
        try:
            address = self.torch._C._data_address(tensor)
        except own(RuntimeError):  # no storage of its own, or a fake one
            address = 0
        plain = living.is_plain(self.torch, tensor)
        try:
            if address == 0:
                if depth > 0 and kind != _core.LABEL_TENSOR:
                    for part in self._parts(tensor, plain):
                        self._label(kind, part, name, owner, depth - 1)
                return
            device, index = self._device(tensor, plain)
            if device == _core.DEVICE_CPU:
                address = self._cpu_address(tensor, address)
            if device >= 0 and address not in self._labelled:
                self._labelled.add(address)
                text = f"{name}\t{self._layout(tensor)}" if plain else name
                _core.label(kind, address, owner, self._text(text), device, index)
        except own(RuntimeError):  # it shows neither its parts nor its layout
            return

    def _parts(self, tensor: Any, plain: bool) -> Iterable[Any]:
        """Of a sparse tensor, and of a wrapper that has its tensors in attributes or slots (a DTensor)."""
        if not plain:
            inside = (*living.attributes(tensor).values(), *living.slots(tensor))
            return [item for item in inside if living.is_tensor(self.torch, item)]
        if self.base.device.__get__(tensor).type == "meta" or tensor.layout == self.torch.strided:
            return []
        names = living.part_names(self.torch, tensor) or ()
        return [getattr(self.base, name)(tensor) for name in names]

    def _device(self, tensor: Any, plain: bool) -> tuple[int, int]:
        """Type, as c10::DeviceType, and index; type -1: only the program's code knows it."""
        if plain:
            device = self.base.device.__get__(tensor)
            return {"cpu": (_core.DEVICE_CPU, -1), "cuda": (_core.DEVICE_CUDA, device.index)}.get(device.type, (-1, -1))
        cuda = sys.modules.get("torch.cuda")
        return (_core.DEVICE_CPU, -1) if cuda is None or not cuda.is_initialized() else (-1, -1)

    def _cpu_address(self, tensor: Any, address: int) -> int:
        origin, block, _, is_part = living.cpu_block(self.torch._C._storage_address(tensor))
        if origin == _core.STORAGE_ALLOCATOR or is_part:
            return block
        return address - _SHARED_HEADER if address % mmap.PAGESIZE == _SHARED_HEADER and block else address

    def _layout(self, tensor: Any) -> str:
        dtype = self.base.dtype.__get__(tensor)
        text = self._layouts.get(dtype)
        if text is None:
            text = self._layouts[dtype] = str(dtype).removeprefix("torch.")
        return " ".join((text, *map(str, self.base.shape.__get__(tensor))))

    def _text(self, text: str) -> str:
        text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        if text not in _texts:
            if len(_texts) >= _MOST_TEXTS:
                return ""
            _texts.add(text)
        return text


def _reference(item: Any, strong: bool) -> Callable[[], Any]:
    if strong:
        return lambda: item
    try:
        return weakref.ref(item)
    except own(TypeError):  # an object without room for one
        return lambda: None


def _generations() -> Callable[[Any], int]:
    """A sort key: the collector lists young objects first, and those of one generation in the order of their making."""
    ages = {id(item): age for age in (1, 0) for item in _core.tracked(gc.get_objects, age)}
    return lambda one: -ages.get(_address(one), 2)


def _address(one: weakref.ref[Any]) -> int:
    """Of what a reference refers to; 0: it has died."""
    item = one()
    return 0 if item is None else id(item)


def _key(key: Any) -> str:
    return str(key).replace("\t", " ") if type(key) in (str, int) else _class_name(type(key))


def _items(item: Any, start: int = 0, stop: int | None = None) -> list[tuple[Any, Any]]:
    """Items of a dict, else nothing. Calls no methods of the program's classes, and nothing can change it meanwhile."""
    cls = type(item)
    if cls is not OrderedDict and cls is not dict and not any(base is dict for base in living.mro(cls)):
        return []
    return list(itertools.islice((OrderedDict if cls is OrderedDict else dict).items(item), start, stop))


def _sequence(item: Any, start: int = 0, stop: int | None = None) -> list[Any]:
    for base in living.mro(type(item)):
        if base is list or base is tuple:
            return list(base.__getitem__(item, slice(start, stop)))
    return []


def _groups(optimizer: Any, start: int, stop: int | None = None) -> list[dict[Any, Any]]:
    """Parameter groups, by default one, of what has them, and a state, as PyTorch's optimizers do; else none."""
    namespace = living.attributes(optimizer)
    groups = namespace.get("param_groups") if _is_dict(namespace.get("state")) else None
    return [dict(_items(one)) for one in _sequence(groups, start, start + 1 if stop is None else stop) if _is_dict(one)]


def _is_dict(item: Any) -> bool:
    return any(base is dict for base in living.mro(type(item)))
