"""Who refers to a tensor: the shortest way from a name of the program's to it.

Objects are read through the garbage collector's own traversal and descriptors of built-in types: no property,
`__getattr__`, `__eq__` or `__repr__` of the program runs. All objects are read once, for a graph
(csrc/python/py_object_graph.c) that the search climbs level by level.
"""

from __future__ import annotations

import collections
import gc
import heapq
import itertools
import sys
import time
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cuptimem import _core
from cuptimem.errors import own
from cuptimem.objects import carried, living, near
from cuptimem.objects.living import mro, with_frozen

_GRAPH = 1 << 22  # objects that are all read, for 80 to 100 bytes each while the search goes; of more ...
_NEAREST = 1 << 18  # ... only so many, the nearest to names of the program's own
_PAIRS = 1 << 20  # of referrer and object that one level may have
_VISITED = 1 << 19  # objects
_LEVELS = 40
_SECONDS = 1.5  # of this thread's own time, after which the search ends as it is
_PARTS = 1 << 12  # of one object that a search of the nearest visits
_INSIDE = 4  # attributes and keys that lead from a name to a module
_PARTS_INSIDE = 64  # of one object that are followed so
_OBJECTS_INSIDE = 1 << 12
_BETWEEN_LOOKS = 1 << 16  # parts of one container between two readings of the clock
_MOMENT = 4  # ... and a name that the next pass of the program's loop assigns again: it holds nothing for longer
_FUNCTION = 6  # ... and one that ends at a function which is not itself the value of a name
_LOCAL_FUNCTION = 24  # ... and one that a call has made: whoever holds it is the answer
_TEXT = 60  # characters of a key
NOT_SEARCHED = "more objects than were searched"
OF_CPP = "no Python object: C++ or numpy holds it"
_NAMESPACES = ("_parameters", "_buffers", "_modules")  # of a torch.nn.Module: their items are its attributes

_namespace = type.__dict__["__dict__"].__get__
_class_name = type.__dict__["__name__"].__get__
_qualified = type.__dict__["__qualname__"].__get__
_NO_DATA = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.FrameType)
_GENERATORS: dict[type, str] = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """One step of a path in words; index: of a container, which paths that differ in it alone share."""

    text: str
    index: int | None = None
    is_attribute: bool = False  # text: .name
    owner: str = ""  # of an attribute: the class of the object that has it
    is_item: bool = False  # of a dictionary, by a key that has no number
    key: str = ""  # the text with it, where text is without


@dataclass(frozen=True, slots=True)
class Route:
    """From a name to an object."""

    head: str  # losses, Trainer.history
    tail: str  # in train(), in module train, (class), ""
    segments: tuple[Segment, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for routes that differ in positions alone."""
        return (self.head, self.tail, *(one.text for one in self.segments))

    def without_keys(self) -> Route:
        """The route without the keys of dictionaries."""
        segments = (
            replace(one, text=one.text.partition("[")[0], key=one.text) if one.is_item else one for one in self.segments
        )
        return Route(self.head, self.tail, tuple(segments))

    def to_owner(self) -> Route:
        """The route to the object inside of which the attributes at its end lead: to a module, not to its weights."""
        end = len(self.segments)
        while end > 0 and self.segments[end - 1].is_attribute:
            end -= 1
        inside = self.segments[end:]
        return self if len(inside) < 2 else replace(self, segments=(*self.segments[:end], Segment(inside[0].owner)))


@dataclass(slots=True)
class _Roots:
    """Names: of modules by the id of their namespaces, of running functions' locals by the id of the value."""

    modules: dict[int, tuple[str, int, bool]] = field(default_factory=dict)  # name, cost, whether it is a notebook
    locals: dict[int, tuple[str, str, int]] = field(default_factory=dict)  # variable, function, cost
    of_one_pass: dict[int, set[str]] = field(default_factory=dict)  # of modules whose code runs
    tuples: dict[int, Any] = field(default_factory=dict)  # that locals are, by id
    values: list[Any] = field(default_factory=list)  # of locals, those of the program's own functions first
    own_values: int = 0  # how many of them are
    spaces: list[dict[str, Any]] = field(default_factory=list)  # of modules, those of the program's own first
    own: int = 0  # how many of them are the program's own


class Search:
    """Finds routes to objects. It holds every object of the process, or the nearest to names of the program's own: drop
    it at once."""

    def __init__(self, error: BaseException | None = None, nearest: int = 0) -> None:
        """error: the functions that it has left count as running. nearest: so many objects, not all."""
        self._began = time.thread_time()
        self._is_whole = False  # nothing more refers to what was seen
        # Listed before this search makes objects that refer to them. The search itself is among them: see close.
        self._graph = None if nearest else _core.object_graph(gc.get_objects, 0, _GRAPH)
        if self._graph is None:
            nearest = nearest or _NEAREST
            self._roots = _names(error, is_near=True)
            self._graph = _core.object_graph(_near(self._roots, nearest), _PARTS)
        else:
            self._roots = _names(error)
            _core.graph_restore(self._graph, list(self._roots.tuples.values()))
            if gc.get_freeze_count():
                objects = with_frozen(_core.graph_objects(self._graph))
                self._graph = None
                self._graph = _core.object_graph(objects)
        self.objects = _core.graph_objects(self._graph)
        self._nearest = nearest
        self._parents: dict[int, list[Any]] = {}
        self._children: dict[int, list[Any]] = {}
        self._ends: dict[int, list[tuple[int, str, str]]] = {}  # by id of a value: cost, name, where
        self._added: dict[int, tuple[Any, tuple[Segment, ...]]] = {}  # what only C leads to: from where, how
        self._sources: list[Any] = []  # of what was added, not yet climbed from
        self._seen: dict[int, Any] = {}
        self._best: dict[int, tuple[int, Any]] = {}  # cost, the object before
        self._slots: dict[int, tuple[int, dict[int, tuple[str, Any]]]] = {}  # at which round, of what was seen by then
        self._of_arrays: set[tuple[int, int]] = set()  # ids of an object and of a tensor whose numpy array it has
        self._array = _core.array_type()
        self._round = 0  # each sees more
        self._owners: dict[int, tuple[str, str, str]] | None = None

    # -- the search ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets all objects go. Without it the search would be a cycle, and keep them until a collection."""
        vars(self).clear()

    def lead(self, item: Any, source: Any, segments: tuple[Segment, ...]) -> None:
        """Adds a reference from source to item that Python's collector does not see."""
        self._added[id(item)] = source, segments
        self._parents.setdefault(id(item), []).append(source)
        self._children.setdefault(id(source), []).append(item)
        if id(source) not in self._seen:
            self._see(source)
            self._sources.append(source)

    def run(self, wanted: list[Any]) -> None:
        """Searches for names that lead to these objects, until each has one or nothing more refers to them."""
        self._round += 1
        level, frontier = 0, [one for one in wanted if id(one) not in self._seen]
        for one in frontier:
            self._see(one)
        frontier += self._sources
        self._sources = []
        self._is_finished(wanted, level)
        while frontier and level < _LEVELS and len(self._seen) < _VISITED:
            level += 1
            frontier = self._climb(frontier)
            finished = self._is_finished(wanted, level)
            # Beyond what has a name lead only longer ways.
            frontier = [one for one in frontier if id(one) not in self._best or self._best[id(one)][0] >= level]
            if finished or self._is_late():
                return
        self._is_whole = not frontier and not self._nearest

    def _see(self, item: Any) -> None:
        self._seen[id(item)] = item
        name = self._roots.locals.get(id(item))
        if name is not None:
            variable, function, cost = name
            self._ends.setdefault(id(item), []).append((cost, variable, f"in {function}()"))

    def _climb(self, frontier: list[Any]) -> list[Any]:
        following: list[Any] = []
        self._round += 1
        edges = iter(_core.graph_referrers(self._graph, frontier, _PAIRS))
        for referrer, item in zip(edges, edges, strict=True):
            if self._is_end(referrer, item):
                continue
            self._parents.setdefault(id(item), []).append(referrer)
            self._children.setdefault(id(referrer), []).append(item)
            if id(referrer) in self._seen:
                continue
            self._see(referrer)
            if isinstance_of(referrer, type):
                self._ends.setdefault(id(referrer), []).append((0, _qualified(referrer), "(class)"))
                continue
            if type(referrer) is types.FunctionType:
                # Of its code: functools.wraps gives a function that a call has made the name of another one.
                cost = _LOCAL_FUNCTION if "<locals>" in referrer.__code__.co_qualname else _FUNCTION
                self._ends.setdefault(id(referrer), []).append((cost, f"{referrer.__qualname__}()", ""))
            following.append(referrer)
        return following

    def _is_end(self, referrer: Any, item: Any) -> bool:
        """Whether that is a name, or leads everywhere."""
        module = self._roots.modules.get(id(referrer))
        if module is None:
            return isinstance_of(referrer, types.ModuleType) or type(referrer) is types.CodeType
        kind, name = self._slot(referrer, item)
        if type(name) is not str or kind != "item":
            return True
        where, cost, is_notebook = module
        cost += _MOMENT * (name in self._roots.of_one_pass.get(id(referrer), ()))
        if where == "sys":
            end = (cost, f"sys.{name}", "")
        elif is_notebook and (name in ("Out", "_oh") or name.strip("_0123456789") == ""):
            end = (cost + 1, name, "")
        else:
            end = (cost, name, "in the notebook" if is_notebook else f"in module {where}")
        self._ends.setdefault(id(item), []).append(end)
        return True

    def _is_finished(self, wanted: list[Any], level: int) -> bool:
        """Whether each has a path that no later level can make shorter."""
        self._best.clear()
        heap: list[tuple[int, int, int]] = []
        for number, (item, ends) in enumerate(self._ends.items()):
            heap.append((min(ends)[0], number, item))
            self._best[item] = min(ends)[0], None
        heapq.heapify(heap)
        number = len(heap)
        while heap:
            cost, _, item = heapq.heappop(heap)
            if self._best[item][0] < cost:
                continue
            for child in self._children.get(item, ()):
                known = self._best.get(id(child))
                if known is None or known[0] > cost + 1:
                    self._best[id(child)] = cost + 1, self._seen[item]
                    number += 1
                    heapq.heappush(heap, (cost + 1, number, id(child)))
        return all(id(one) in self._best and self._best[id(one)][0] < level for one in wanted)

    # -- what was found ------------------------------------------------------------------------------------------------

    @property
    def is_of_some(self) -> bool:
        """Whether not all objects are searched: what was not come to may have any name."""
        return self._nearest > 0

    def garbage(self) -> list[Any] | None:
        """What a collection frees; None where not all objects were read."""
        return _core.graph_garbage(self._graph)

    def has_name(self, item: Any) -> bool:
        return id(item) in self._best

    def is_kept(self, item: Any) -> bool:
        """Whether a name that outlives the pass of the loop leads to it."""
        way = item
        while id(way) in self._best and self._best[id(way)][1] is not None:
            way = self._best[id(way)][1]
        return id(way) in self._best and self._best[id(way)][0] < 1 + _MOMENT

    def is_referred_to(self, item: Any) -> bool:
        return id(item) in self._parents

    def route(self, item: Any) -> Route | None:
        """The best route to an object; None: no name leads to it."""
        if id(item) not in self._best:
            return None
        way = [item]
        while (before := self._best[id(way[-1])][1]) is not None:
            way.append(before)
        way.reverse()
        cost, head, tail = min(self._ends[id(way[0])])
        if cost == _LOCAL_FUNCTION and self._is_in_cycle(way[0]):  # a function that calls itself, and has no other name
            return None
        return _joined(head, tail, list(self._segments(way)))

    def owned(self, item: Any, module: type, optimizer: type) -> Route | None:
        """The route of a module that has a name, where the best one leads through an optimizer to a parameter of it."""
        way = [item]
        while (before := self._best.get(id(way[-1]), (0, None))[1]) is not None:
            way.append(before)
        if not any(isinstance_of(one, optimizer) for one in way):
            return None
        if self._owners is None:
            self._owners = self._named_modules(module)
        at = next((place for place, one in enumerate(way) if id(one) in self._owners), None)
        if at is None:
            return None
        name, where, owner = self._owners[id(way[at])]
        segments = list(self._segments(way[at::-1]))
        return Route(f"{name} ({owner})", where, tuple(segments))

    def _named_modules(self, module: type) -> dict[int, tuple[str, str, str]]:
        """By the id of a parameter or buffer: name, place and class of the module with most of them that has a name,
        else of one that attributes of a named object lead to."""
        named = [
            (value, name, f"in {function}()")
            for value in self._roots.values
            for name, function, _ in [self._roots.locals[id(value)]]
        ]
        own = named[: self._roots.own_values]
        for space in self._roots.spaces[: self._roots.own]:
            where = self._roots.modules[id(space)][0]
            if not near.is_part(where, space):
                own += [(value, name, f"in module {where}") for name, value in list(space.items()) if type(name) is str]
        found = [(0, *row) for row in (*named, *own) if isinstance_of(row[0], module)]
        found += _modules_inside(own, module)
        rows = [(depth == 0, _tensors_of(one), -depth, name, where, one) for depth, one, name, where in found]
        rows.sort(key=lambda row: (row[0], len(row[1]), row[2]))  # the best comes last, and stays
        return {key: (name, where, _class_name(type(one))) for _, keys, _, name, where, one in rows for key in keys}

    def is_of_variable(self, item: Any, state: type) -> bool:
        """Whether the best route begins at a variable of a function or module and leads through no object that is
        `state`."""
        way = item
        while id(way) in self._best:
            if isinstance_of(way, state):
                return False
            before = self._best[id(way)][1]
            if before is None:
                return min(self._ends[id(way)])[2].startswith("in ")
            way = before
        return False

    def _is_in_cycle(self, item: Any) -> bool:
        climbed, frontier = {id(item)}, [item]
        while frontier and len(climbed) < _LEVELS:
            parents = self._parents.get(id(frontier.pop()), ())
            if any(one is item for one in parents):
                return True
            frontier += [one for one in parents if id(one) not in climbed]
            climbed.update(map(id, parents))
        return False

    def unnamed(self, item: Any) -> Route:
        """The route of an object that no name leads to: the cycle that holds it, or the outermost object."""
        way, seen = [item], {id(item): 0}
        while True:
            parents = self._parents.get(id(way[-1]), ())
            fresh = next((one for one in parents if id(one) not in seen), None)
            again = next((one for one in parents if id(one) in seen), None)
            if fresh is None or len(way) == _LEVELS:
                break
            seen[id(fresh)] = len(way)
            way.append(fresh)
        if again is not None:
            cycle = _begun_at_own(way[seen[id(again)] :])
            ring = [*cycle[::-1], cycle[-1]]
            names = [one for one in self._segments(ring) if one.is_attribute] or list(self._segments(ring))
            said = (f"{one.owner}{one.text}" if one.is_attribute else one.text for one in names[:3])
            return Route("only a reference cycle: " + " → ".join(said), "", ())
        if not self._is_whole:
            return Route(NOT_SEARCHED, "", ())
        if len(way) == 1:
            return Route(OF_CPP, "", ())
        outermost = _class_name(type(way[-1]))
        return Route(f"{outermost} that no Python object refers to", "", tuple(self._segments(way[::-1])))

    def _segments(self, way: list[Any]) -> Iterator[Segment]:
        """The steps in words. A mere part (an object's dictionary, a closure's cells) joins its object."""
        at = 0
        while at + 1 < len(way):
            parent, child = way[at], way[at + 1]
            at += 1
            if id(child) in self._added and self._added[id(child)][0] is parent:
                yield from self._added[id(child)][1]
                continue
            kind, name = self._slot(parent, child)
            owner = _class_name(type(parent))
            if kind == "dict" and at + 1 < len(way):
                name = self._slot(child, way[at + 1])[1]
                at += 1
                kind = "attribute" if type(name) is str else ""
                owner = "" if isinstance_of(parent, type) else owner
            if kind == "attribute" and name in _NAMESPACES and at + 1 < len(way) and type(way[at]) is dict:
                name = self._slot(way[at], way[at + 1])[1]
                at += 1
            if kind in ("closure", "default") and at + 1 < len(way):
                index = self._slot(child, way[at + 1])[1]
                at += 1
                yield Segment(f"{kind} {_variable(parent, kind, index)} of {parent.__qualname__}()")
                if type(way[at]) is types.CellType and at + 1 < len(way):
                    at += 1
                continue
            yield from _segment(kind, name, parent, owner)
            if (id(way[at - 1]), id(way[at])) in self._of_arrays:
                yield Segment(_class_name(self._array))

    def _slot(self, parent: Any, child: Any) -> tuple[str, Any]:
        made, slots = self._slots.get(id(parent), (0, {}))
        if id(child) not in slots and made != self._round:
            slots = {}
            for count, (kind, name, part) in enumerate(_slots_of(parent), 1):
                value = part if type(part) is not self._array else _core.array_owner(part)
                if id(value) in self._seen:
                    if value is not part:
                        self._of_arrays.add((id(parent), id(value)))
                    known = slots.get(id(value))
                    if known is None or (type(known[1]) is str and known[1].startswith("_")):
                        slots[id(value)] = kind, name
                if count % _BETWEEN_LOOKS == 0 and self._is_late():
                    break
            self._slots[id(parent)] = self._round, slots
        return slots.get(id(child), ("", None))

    def _is_late(self) -> bool:
        return time.thread_time() > self._began + _SECONDS


def _tensors_of(module: Any) -> list[int]:
    """Ids of a torch.nn.Module's parameters and buffers."""
    found: list[int] = []
    pending, seen = [module], set()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for _, name, value in _attributes(one, mro(type(one))):
            if name in _NAMESPACES and isinstance_of(value, dict):
                parts = [part for part in dict.values(value) if part is not None]
                (pending.extend if name == "_modules" else found.extend)(
                    parts if name == "_modules" else map(id, parts)
                )
    return found


def _modules_inside(named: list[tuple[Any, str, str]], module: type) -> Iterator[tuple[int, Any, str, str]]:
    """Modules that named objects have in attributes, lists and dictionaries, with how deep: trainer.nets['actor']."""
    seen = {id(value) for value, _, _ in named}
    level = [row for row in named if not any(isinstance_of(row[0], one) for one in (module, *_NO_DATA))]
    for depth in range(1, _INSIDE + 1):
        following: list[tuple[Any, str, str]] = []
        for value, name, where in level:
            for kind, key, part in itertools.islice(_slots_of(value), _PARTS_INSIDE):
                is_new = id(part) not in seen and len(seen) < _OBJECTS_INSIDE
                if not is_new or kind not in ("attribute", "index", "item") or type(key) not in (str, int):
                    continue
                seen.add(id(part))
                row = part, f"{name}.{key}" if kind == "attribute" else f"{name}[{key!r}]", where
                if isinstance_of(part, module):
                    yield (depth, *row)
                elif type(part) in (dict, list, tuple) or _is_of_own_class(part):
                    following.append(row)
        level = following


def _begun_at_own(cycle: list[Any]) -> list[Any]:
    """The cycle so that an object of a class of the program's own is its last one, which is named first."""
    at = next((at for at in reversed(range(len(cycle))) if _is_of_own_class(cycle[at])), len(cycle) - 1)
    return cycle[at + 1 :] + cycle[: at + 1]


def _is_of_own_class(item: Any) -> bool:
    name = _namespace(type(item)).get("__module__")
    module = sys.modules.get(name) if type(name) is str else None
    file = near.module_dict(module).get("__file__") if type(module) is types.ModuleType else None
    # That of __main__ goes with its script.
    return name == "__main__" or (type(file) is str and not near.is_library(file))


def isinstance_of(item: Any, base: type) -> bool:
    """isinstance by the class alone: isinstance itself may run a `__class__` of the program's."""
    return any(one is base for one in mro(type(item)))


def _segment(kind: str, name: Any, parent: Any, owner: str) -> Iterator[Segment]:
    cls = type(parent)
    if kind == "attribute" and cls is not types.TracebackType:
        yield Segment(f".{name}", is_attribute=True, owner=owner)
    elif kind == "index":
        if isinstance_of(parent, collections.deque):
            bound = collections.deque.__dict__["maxlen"].__get__(parent)
            owner = f"deque(maxlen={bound})" if bound is not None else "deque"
        yield Segment(owner, name)
    elif kind == "item":
        if type(name) is int:
            yield Segment(owner, name)
        elif type(name) is str:
            yield Segment(f"{owner}[{name[:_TEXT]!r}]", is_item=True)
        else:
            yield Segment(owner, -1)
    elif kind == "local":
        code = parent.f_code if cls is types.FrameType else getattr(parent, _GENERATORS[cls]).f_code
        what = "" if cls is types.FrameType else f" (a {owner})"
        yield Segment(f"{name} in {code.co_name}(){what}")
    elif cls is types.TracebackType or kind == "traceback":
        yield Segment("traceback")
    elif cls is living.Cache:
        yield Segment(f"lru_cache(maxsize={living.cache_bound(parent)[0]})")
    elif kind != "part":
        yield Segment(owner)


def _joined(head: str, tail: str, segments: list[Segment]) -> Route:
    """Attributes behind a name are written as in Python: trainer.history (Trainer)."""
    if head in ("Out", "_oh") and segments and segments[0].index is not None:
        head = f"Out[{segments.pop(0).index}]"
    elif head.endswith("()") and not tail and segments and segments[0].text.endswith(f" of {head}"):
        head = segments.pop(0).text
    owner = ""
    while segments and segments[0].is_attribute:
        first = segments.pop(0)
        head, owner = head + first.text, first.owner
    if owner:
        head += f" ({owner})"
    kept: list[Segment] = []
    for one in segments:
        if not kept or one.text != "traceback" or kept[-1].text != "traceback":
            kept.append(one)
    return Route(head, tail, tuple(kept))


# -- names ---------------------------------------------------------------------------------------------------------


def _names(error: BaseException | None = None, is_near: bool = False) -> _Roots:
    """is_near: without the names of libraries."""
    roots = _Roots()
    for space, shown in near.own_modules() if is_near else near.modules():
        if id(space) not in roots.modules:
            roots.modules[id(space)] = shown
            is_own = shown[1] == 1
            roots.spaces.insert(0 if is_own else len(roots.spaces), space)
            roots.own += is_own
    of_own: list[Any] = []
    array = _core.array_type()
    for frame, of_one_pass in _running(error):
        usual = 1 + (near.WEAK if near.is_library(frame.f_code.co_filename) else 0)
        if frame.f_code.co_name == "<module>":  # its names are those of the namespace
            roots.of_one_pass[id(frame.f_globals)] = set(of_one_pass) - _read_elsewhere(frame.f_globals)
        variables = _core.frame_locals(frame)
        for name, part in variables.items():  # of several functions the outermost keeps it longest
            value = part if type(part) is not array else _core.array_owner(part)
            (roots.values if usual > 1 else of_own).append(value)
            if type(value) is tuple:
                roots.tuples[id(value)] = value
            cost = usual + _MOMENT * (name in of_one_pass)
            if id(value) not in roots.locals or cost <= roots.locals[id(value)][2]:
                roots.locals[id(value)] = name, frame.f_code.co_name, cost
    roots.values[:0] = of_own
    roots.own_values = len(of_own)
    return roots


def prepare() -> None:
    """What a search of the nearest reads of code and modules, and keeps for the next one."""
    near.own_modules()
    collections.deque(_running(None), 0)


def _near(roots: _Roots, most: int) -> list[Any]:
    """The objects to which names of the program's own lead, the nearest first, and its namespaces and classes."""
    own = roots.spaces[: roots.own]
    names = {space.get("__name__") for space in own}
    values = [*roots.values, *(value for space in own for value in list(space.values()))]
    kinds = {id(type(one)): type(one) for one in values}  # a class may have a hash of the program's
    makes_classes = {key: any(one is type for one in mro(cls)) for key, cls in kinds.items()}
    classes = {
        id(one): one for one in values if makes_classes[id(type(one))] and _namespace(one).get("__module__") in names
    }
    spaces = [part for one in classes.values() for part in gc.get_referents(one) if type(part) is dict]
    most -= len(own) + len(classes)
    # Variables of functions that run first: a namespace may have thousands of names.
    found = _core.reachable(roots.values[: roots.own_values], roots.spaces, max(0, most // 2))
    known = {id(one) for one in found}
    more = _core.reachable([*values, *spaces], roots.spaces, max(0, most - len(found)))
    return [*own, *classes.values(), *found, *(one for one in more if id(one) not in known)]


def _read_elsewhere(space: dict[str, Any]) -> set[str]:
    """Names that functions of a module read."""
    return {name for one in list(space.values()) if type(one) is types.FunctionType for name in one.__code__.co_names}


def _running(error: BaseException | None) -> Iterator[tuple[types.FrameType, Collection[str]]]:
    """Frames, and their names that live for one pass of the program's innermost running loop: all of what it calls.
    error: the frames that it has left, too."""
    current = sys._current_frames()
    left = _left_by(error)
    while left or current:
        # Not a variable of its own: this frame is among them, and would be a cycle with what they refer to.
        frames = left or list(near.outwards(current.popitem()[1]))
        left = []
        loops = (
            (place, carried.of_one_pass(one))
            for place, one in enumerate(frames)
            if not near.is_library(one.f_code.co_filename)
        )
        place, of_loop = next(((place, found) for place, found in loops if found is not None), (-1, frozenset()))
        for number, one in enumerate(frames):
            yield one, _core.frame_locals(one).keys() if number < place else of_loop if number == place else ()


def _left_by(error: BaseException | None) -> list[types.FrameType]:
    """The frames of an exception's traceback, the innermost first."""
    frames: list[types.FrameType] = []
    traceback = None if error is None else BaseException.__dict__["__traceback__"].__get__(error)
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(near.OWN):
            frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames[::-1]


# -- what an object is made of -------------------------------------------------------------------------------------


def _slots_of(item: Any) -> Iterator[tuple[str, Any, Any]]:
    cls = type(item)
    bases = mro(cls)
    if any(one is dict for one in bases):
        yield from (("item", key, value) for key, value in list(dict.items(item)))
        yield from (("key", None, key) for key in list(dict.keys(item)))
        return
    for base in (list, tuple, collections.deque):
        if any(one is base for one in bases):
            parts: Iterator[Any] = base.__iter__(item)
            # A deque that another thread changes meanwhile would raise.
            yield from (
                ("index", at, one) for at, one in enumerate(list(parts) if base is collections.deque else parts)
            )
            return
    if cls is _core.array_type():  # of objects, else it is no part of the graph
        yield from (("index", at, one) for at, one in enumerate(item.ravel("K").tolist()))
    elif cls is types.CellType:
        yield from (("part", None, one) for one in gc.get_referents(item))
    elif cls is types.FunctionType:
        yield from (("closure", None, item.__closure__), ("default", None, item.__defaults__))
        yield "dict", None, item.__dict__
    elif cls is types.FrameType or cls in _GENERATORS:
        frame = item if cls is types.FrameType else getattr(item, _GENERATORS[cls])
        if frame is not None:
            yield from (("local", name, value) for name, value in _core.frame_locals(frame).items())
    elif any(one is type for one in bases):
        yield from (("dict", None, one) for one in gc.get_referents(item) if type(one) is dict)
    else:
        if any(one is BaseException for one in bases):
            yield "part", None, BaseException.__dict__["__traceback__"].__get__(item)
        yield from _attributes(item, bases)


def _attributes(item: Any, bases: tuple[type, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Attributes of an object, by descriptors of C alone."""
    for cls in bases:
        for name, slot in list(_namespace(cls).items()):
            if type(slot) is types.MemberDescriptorType and type(name) is str:
                try:
                    value = slot.__get__(item)
                except own(AttributeError):  # not set
                    continue
                yield "attribute", name, value
            elif name == "__dict__" and type(slot) is types.GetSetDescriptorType:
                space = slot.__get__(item)
                if type(space) is dict:
                    yield from (("attribute", key, value) for key, value in list(space.items()))
                    yield "dict", None, space


def _variable(function: Any, kind: str, index: Any) -> str:
    code = function.__code__
    if kind == "closure":
        names = code.co_freevars
    else:
        names = code.co_varnames[code.co_argcount - len(function.__defaults__ or ()) : code.co_argcount]
    return names[index] if type(index) is int and index < len(names) else "?"
