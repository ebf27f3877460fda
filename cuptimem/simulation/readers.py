"""Who makes, reads and holds each block of the simulated device: a dispatch mode beside a run of the program.

Operators say what they read and make, hooks of autograd what it keeps and when it lets go of it, weak references when
Python lets go of a tensor, and the bytecode of the program's functions (last_use.py) which variables are read no more.
Moments are counted in allocations and frees of PyTorch's allocator, as positions of a recording are.
"""

import contextlib
import functools
import json
import sys
import threading
import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

from cuptimem.simulation import backward
from cuptimem.simulation.casts import Casts
from cuptimem.simulation.changes.change import patch
from cuptimem.simulation.dropped import drops
from cuptimem.simulation.last_use import let_go, unread
from cuptimem.simulation.makers import Line, Makers
from cuptimem.simulation.modules import Modules
from cuptimem.simulation.operands import in_place_of, is_idle
from cuptimem.simulation.places import is_programs, source, statement

_cuda: Any = torch.cuda

Place = tuple[Line, ...]
_Reads = dict[int, tuple[int, bool]]  # by block: the bytes of the largest tensor of it, whether one requires grad

_OURS = 2  # references to a value while they are counted: a variable's and an argument's
_MEMBERS = 1 << 9  # of a list or dictionary, and of plain ones in it, that are looked at
_LARGE = 1 << 20  # bytes of a block of which views are noted
_PLAIN = (list, tuple, dict, OrderedDict)


class Readers:
    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._at: dict[int, int] = {}  # the newest block of an address
        self._begins: list[int] = []  # of the operators
        self._ended = 0  # the last of them
        self._between = 0, 0  # the last two of them between which something was allocated or freed
        self._places: dict[tuple[Place, Place], int] = {}  # outside and inside of modules
        self._here: Place = ()
        self._files: set[str] = set()  # of the program, in which it called operators
        self._since = 0  # the operator with which the program came to this place
        self._objects: dict[int, tuple[Any, dict[str, Any], int]] = {}  # by id of a tensor; the last: its block
        self._of_block: dict[int, set[int]] = defaultdict(set)  # ids of its tensors
        self._modules = Modules()
        self._casts = Casts()
        self._pending: list[dict[str, Any]] = []  # operands of the operator before
        # Variables that were let go of, of which more may follow.
        self._releasing: list[tuple[dict[str, Any], int]] = []
        self._optimizers: dict[int, weakref.ref[Any]] = {}  # by id: a class of the program's may have no hash
        self._steppers: list[dict[str, Line | None]] = []  # where each stepped first, and where it was made
        self._retained: dict[Line, int] = {}  # lines of backward passes that keep their graph
        self._retaining: int | None = None  # of the one that runs
        self._needed: set[int] = set()  # those of which another one runs the graph again
        self._makers = Makers()
        self._main = threading.main_thread().ident
        self._mode: Any = _Mode(self)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._busy = False  # this module's own operators are not the program's

    def start(self) -> None:
        """Before the program's first line."""
        _of_one_view()
        self._hooks.__enter__()
        self._mode.__enter__()
        self._casts.start(self._cast)
        self._makers.start()
        register_optimizer_step_post_hook(self._stepped)
        patch(torch.autograd.graph, "disable_saved_tensors_hooks", self._allowing)
        for name in backward.PASSES:
            patch(torch.autograd, name, functools.partial(self._asking, name))

    def _asking(self, name: str, original: Any) -> Any:
        """A backward pass, of which the line is noted if it keeps its graph."""

        @functools.wraps(original)
        def called(*arguments: Any, **keywords: Any) -> Any:
            around = self._retaining
            keeps = backward.keeps_graph(name, arguments, keywords)
            line = next(iter(_leading(sys._getframe(1))), None) if keeps else None
            self._retaining = None if line is None else self._retained.setdefault(line, len(self._retained))
            try:
                return original(*arguments, **keywords)
            finally:
                self._retaining = around

        return called

    def _allowing(self, original: Any) -> Any:
        """torch.func has no such hooks where it works: ours are off there, and what autograd keeps is not known."""

        @contextlib.contextmanager
        def disable(message: str) -> Iterator[None]:
            top = torch._C._autograd._top_saved_tensors_default_hooks(True)
            is_ours = top is not None and top[0] == self._pack
            if is_ours:
                self._hooks.__exit__()
            try:
                with original(message):
                    yield
            finally:
                if is_ours:
                    self._hooks.__enter__()

        return disable

    def finish(self, path: str) -> None:
        """Behind the program's last line, or in the place of what follows a try's last step."""
        self._busy = True
        self._let_go()
        self._casts.close(None, len(self._begins))
        self._modules.finish()
        with open(path, "w", encoding="utf-8") as file:
            places = [
                {"lines": out or within, "within": within if out else (), "drops": drops(out or within)}
                for out, within in self._places
            ]
            made: dict[str, Any] = {"optimizers": self._steppers, "loaders": self._makers.loaders}
            made |= {"models": self._makers.models, "zeroing": self._makers.zeroing}
            made["retained"] = [None if number in self._needed else line for line, number in self._retained.items()]
            made |= {"trainers": self._makers.trainers, "sources": {one: source(one) for one in self._files}}
            made |= {"begins": self._begins, "blocks": self._blocks, "places": places, "threads": _threads()}
            file.write(json.dumps(made))  # dump() has no C encoder: half a second of a GPT's

    def _stepped(self, optimizer: Any, *_: object) -> None:
        seen = self._optimizers.get(id(optimizer))
        if seen is None or seen() is not optimizer:
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            for steps in _leading(sys._getframe(1))[:1]:
                self._steppers.append({"steps": steps, "made": self._makers.line_of(optimizer)})

    def _let_go(self) -> None:
        """Of what variables hold unread: as the next iteration would bind them again."""
        found = unread(sys._current_frames().get(self._main)) if self._main is not None else []
        while found:
            name, _, frame, _ = found.pop()
            let_go(frame, name)
        variables = sys.modules["__main__"].__dict__
        for reference, record, _ in list(self._objects.values()):
            name = record["dead"]["name"] if record["dead"] is not None else ""
            if name in variables and variables[name] is reference():
                del variables[name]

    def begin(self, given: Any) -> tuple[int, _Reads] | None:
        """Before an operator: the moment, and what it reads. None: it is this module's own."""
        if self._busy:
            return None
        self._busy = True
        try:
            now = _count()
            if now > self._ended:
                self._between = self._ended, now
            self._releasing.clear()
            self._look(now)
            self._see_idle()
            self._modules.look()
            self._casts.close(sys._current_frames().get(self._main or 0), len(self._begins))
            here = _leading(sys._current_frames().get(self._main)) if self._main is not None else ()
            if here != self._here:
                self._here, self._since = here, len(self._begins)
                self._files |= {line[0] for line in here}
            self._begins.append(now)
            read: _Reads = {}
            for tensor in _tensors(given):
                index = self._at.get(tensor.untyped_storage().data_ptr())
                if index is not None:
                    size, grad = read.get(index, (0, False))
                    read[index] = max(size, tensor.nbytes), grad or tensor.requires_grad
            for index in read:
                if "parts" in self._blocks[index]:
                    self._see_whole(index, now)
            return now, read
        finally:
            self._busy = False

    def end(self, function: Any, began: tuple[int, _Reads], given: Any, made: Any) -> None:
        self._busy = True
        try:
            begin, read = began
            now = _count()
            name, number = str(function), len(self._begins) - 1
            node = _node()
            for index, (size, _) in read.items():
                block = self._blocks[index]
                part = (size,) if size < block["bytes"] else ()
                block["reads"].append((now, name, node, number, *part))
            inputs = {one.untyped_storage().data_ptr() for one in _tensors(given)}
            for tensor in _tensors(made):
                address = tensor.untyped_storage().data_ptr()
                if name.startswith("aten.set_") and not self._is_known(address):
                    self._add(tensor, address, *self._between, name, node, read, number)
                elif address not in inputs and now > begin:
                    self._add(tensor, address, begin, now, name, node, read, number)
                    if tensor is made and not node and (index := self._at[address]) == len(self._blocks) - 1:
                        self._blocks[index]["into"] = self._pending = self._into(function, given, tensor)
                        self._modules.made(self._blocks[index], sys._getframe(1))
                if address in self._at:
                    self._extend(self._at[address], read)
                    self._follow(tensor, self._at[address], now)
                    if address in inputs and not node and _is_part(tensor):
                        self._take(tensor.nbytes, self._at[address], number, sys._getframe(1))
            self._ended = now
        finally:
            self._busy = False

    def _see_whole(self, index: int, now: int) -> None:
        """Which tensors of the block anything but a view of it still holds."""
        found = [self._objects[key] for key in self._of_block[index]]
        bases = Counter(id(one._base) for reference, *_ in found if (one := reference()) is not None)
        for reference, record, _ in found:
            tensor = reference()
            if tensor is None or "bytes" in record:
                continue
            views, (references, counted) = bases[id(tensor)], _of_one_view()
            if sys.getrefcount(tensor) != references or tensor._use_count() != counted + views - 1:
                record["seen"] = now

    def _take(self, size: int, index: int, number: int, frame: FrameType | None) -> None:
        """A view of a part: where it is made, how often, and by which operator first."""
        outside, within = _around_modules(frame)
        parts = self._blocks[index].setdefault("parts", [])
        for line in (within or outside)[:1]:
            known = next((one for one in parts if one[:2] == [size, line]), None)
            if known is None:
                parts.append([size, line, 1, number])
            else:
                known[2] += 1

    def _extend(self, index: int, read: _Reads) -> None:
        """What is written into a block joins their graphs to its own, as of a sum of losses."""
        graph = self._blocks[index]["graph"]
        graph += [one for one, (_, grad) in read.items() if grad and one != index and one not in graph]

    def _is_known(self, address: int) -> bool:
        """Whether the block there is one that was seen: torch.load makes storages outside of operators."""
        index = self._at.get(address)
        if index is None:
            return False
        return bool(self._of_block[index]) or self._blocks[index]["begin"] == self._between[0]

    def _into(self, function: Any, given: Any, made: Any) -> list[dict[str, Any]]:
        """The operands that its in-place variant could write into, by their blocks."""
        found = in_place_of(function, given, made, sys._getframe(2))
        at = ((self._at.get(one.tensor.untyped_storage().data_ptr()), one) for one in found)
        return [
            {
                "block": index,
                "name": one.name,
                "argument": one.argument,
                "operand": one.words,
                "grad": one.tensor.requires_grad,
                "idle": False,
            }
            for index, one in at
            if index is not None
        ]

    def _see_idle(self) -> None:
        """Which operands of the operator before are held by nothing but variables that are not read again, also those
        that have no place for a `del`."""
        for row in self._pending:
            every = [self._objects[key][0]() for key in self._of_block[row["block"]]]
            row["idle"] = True
            while every:
                tensor = every.pop()
                held = sys.getrefcount(tensor) - _OURS
                # No variable of this function has its own frame: a cycle would hold the tensor.
                row["idle"] = row["idle"] and is_idle(tensor, sys._current_frames().get(self._main or 0), held)
        self._pending = []

    def _add(
        self, tensor: Any, address: int, begin: int, now: int, name: str, node: str, read: _Reads, number: int
    ) -> None:
        index = self._at.get(address)
        if index is not None and self._blocks[index]["number"] == number:  # another output of the same storage
            return
        self._at[address] = len(self._blocks)
        self._blocks.append(
            {
                "begin": begin,
                "end": now,
                "bytes": tensor.untyped_storage().nbytes(),
                "operator": name,
                "number": number,
                "node": node,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": list(tensor.shape),
                "grad": torch.is_grad_enabled(),
                "inputs": list(read),
                "graph": [index for index, (_, grad) in read.items() if grad],
                "into": [],
                "casts": [],
                "narrowed": None,
                "reads": [],
                "objects": [],
                "saved": [],
            }
        )

    def _follow(self, tensor: Any, index: int, now: int) -> None:
        """Until Python lets go of this tensor, which may be one of several of its block."""
        key = id(tensor)
        known = self._objects.get(key)
        if known is not None and known[0]() is tensor:
            if known[2] == index:
                return
            known[1]["gone"] = now  # it got another storage, as copy.deepcopy() gives its copies
            self._of_block[known[2]].discard(key)
        record: dict[str, Any] = {"made": now, "gone": None, "dead": None}
        if _is_part(tensor):
            record["bytes"] = tensor.nbytes
        self._blocks[index]["objects"].append(record)

        def gone(_: Any) -> None:
            now = _count()
            record["gone"] = now
            self._objects.pop(key, None)
            self._of_block[index].discard(key)
            if self._releasing and self._releasing[-1][1] == index and record["dead"] is None:
                record["dead"] = self._releasing[-1][0]["dead"]  # of a view, its base
                return
            self._releasing.clear()  # what ends from here on is not held by the variable before
            if record["dead"] is not None:
                self._releasing.append((record, index))

        self._objects[key] = weakref.ref(tensor, gone), record, index
        self._of_block[index].add(key)

    def _cast(self, tensor: Any) -> dict[str, Any] | None:
        """Of a tensor that has 32 bits already and is asked to have them: its block."""
        index = self._at.get(tensor.untyped_storage().data_ptr()) if _is_followed(tensor) and not self._busy else None
        return None if index is None else self._blocks[index]

    # What autograd keeps.

    def _pack(self, tensor: Any) -> Any:
        if self._busy or not _is_followed(tensor):
            return tensor
        self._busy = True
        try:
            index = self._at.get(tensor.untyped_storage().data_ptr())
            alias = tensor.detach().requires_grad_(tensor.requires_grad)
            view: dict[str, Any] = {}
            if tensor.nbytes != tensor.untyped_storage().nbytes():
                view["bytes"] = tensor.nbytes
            if not tensor.is_contiguous():
                view["is_contiguous"] = False
        finally:
            self._busy = False
        record: dict[str, Any] = {"number": len(self._begins), "used": None, "gone": None, "by": None, "there": False}
        record |= view
        # A backward pass of which a graph is made has its own thread: the program waits for it.
        frame = sys._getframe().f_back or sys._current_frames().get(self._main or 0)
        record["lines"] = self._places.setdefault(_around_modules(frame), len(self._places))
        if index is not None:
            self._blocks[index]["saved"].append(record)
        return _Saved(self, tensor, alias, record)

    def _unpack(self, packed: Any) -> Any:
        if not isinstance(packed, _Saved):
            return packed
        run = torch._C._current_graph_task_id()
        if packed.record["used"] is None:
            packed.record["used"], packed.run = _count(), run
            if self._retaining is not None:
                packed.record["retained"] = self._retaining
        elif packed.run != run and "retained" in packed.record:
            self._needed.add(packed.record["retained"])  # another backward pass runs the graph again
        original = packed.original()
        return packed.alias if original is None else original

    def let_go(self, record: dict[str, Any]) -> None:
        """Autograd has: because a node ran, or because nothing holds the graph."""
        record["gone"] = _count()
        if torch._C._current_graph_task_id() != -1:
            record["by"] = "backward"
            return
        if self._releasing:
            record["by"] = self._releasing[-1][0]["dead"]["number"]
        record["there"] = record["number"] >= self._since

    # What the program's variables hold.

    def _look(self, now: int) -> None:
        found = unread(sys._current_frames().get(self._main)) if self._main is not None else []
        while found:
            name, line, holder, value = found.pop()
            held = sys.getrefcount(value) - _OURS
            if isinstance(value, torch.Tensor):
                self._dead(value, held, name, line, holder, now)
            elif held == 1 and _is_record(value):
                members, left = _members(value), _MEMBERS
                while members and left > 0:
                    value, own = members.pop()
                    held, left = sys.getrefcount(value) - _OURS - own + 1, left - 1
                    if isinstance(value, torch.Tensor):
                        self._dead(value, held, name, line, holder, now)
                    elif type(value) in _PLAIN and held == 1 and len(value) <= left:
                        members += _members(value)

    def _dead(self, value: Any, held: int, name: str, line: int, frame: Any, now: int) -> None:
        """held: references of the program to it."""
        if held > 1 or not _is_followed(value):
            return
        index = self._at.get(value.untyped_storage().data_ptr())
        if index is None:
            return
        self._follow(value, index, now)  # a view that autograd made of the operator's has not been seen yet
        known = self._objects[id(value)]
        if known[1]["dead"] is not None:
            return
        code = frame.f_code
        number = len(self._begins)
        record = {"name": name, "file": code.co_filename, "function": code.co_qualname, "line": line}
        record["statement"] = statement(code.co_filename, line)
        known[1]["dead"] = {**record, "from": now, "number": f"{number}:{name}"}


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types for it
    def __init__(self, readers: Readers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._readers = readers

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        began = self._readers.begin((args, keywords)) if _cuda.is_initialized() else None
        made = func(*args, **keywords)
        if began is not None:
            self._readers.end(func, began, (args, keywords), made)
        return made


class _Saved:
    """A tensor that autograd keeps, by a tensor of its own: Python lets go of the original when the program does."""

    __slots__ = ("alias", "original", "readers", "record", "run")

    def __init__(self, readers: Readers, tensor: Any, alias: Any, record: dict[str, Any]) -> None:
        self.readers, self.alias, self.record = readers, alias, record
        self.original = weakref.ref(tensor)
        self.run = -1  # the backward pass that has used it first

    def __del__(self) -> None:
        self.readers.let_go(self.record)


def _is_record(value: Any) -> bool:
    """Whether what it refers to goes with it: a list, tuple or dictionary that is not too long, or a dataclass."""
    if isinstance(value, list | tuple | dict):
        return len(value) <= _MEMBERS
    return is_dataclass(value) and not isinstance(value, type | torch.nn.Module) and not hasattr(value, "__del__")


def _members(value: Any) -> list[tuple[Any, int]]:
    """And how often it refers to each: outputs of transformers have a key and an attribute for one tensor."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    found = [*items, *getattr(value, "__dict__", {}).values()]
    counts = Counter(map(id, found))
    return [(one, counts.pop(id(one))) for one in found if id(one) in counts]


def _leading(frame: FrameType | None) -> Place:
    """The program's lines that lead here, the innermost first: those outside of calls of modules, if there are."""
    outside, inside = _around_modules(frame)
    return outside or inside


def _around_modules(frame: FrameType | None) -> tuple[Place, Place]:
    """The program's lines that lead here, the innermost first: outside of calls of modules, and in them."""
    outside: list[tuple[str, str, int]] = []
    inside: list[tuple[str, str, int]] = []
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_call_impl":
            inside += outside
            outside.clear()
        elif is_programs(code.co_filename):
            outside.append((code.co_filename, code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return tuple(outside), tuple(inside)


def _count() -> int:
    """Allocations and frees so far on the first device."""
    found = _cuda.memory_stats_as_nested_dict(0)["allocation"]["all"]
    return int(found["allocated"] + found["freed"])


def _threads() -> int:
    """That the first device runs at once."""
    if not _cuda.is_initialized():
        return 0
    found = _cuda.get_device_properties(0)
    return int(found.multi_processor_count * found.max_threads_per_multi_processor)


def _tensors(values: Any) -> list[Any]:
    """Of an operator's arguments or results."""
    if isinstance(values, torch.Tensor):
        return [values] if _is_followed(values) else []
    if isinstance(values, list | tuple | dict):
        return [one for value in (values.values() if isinstance(values, dict) else values) for one in _tensors(value)]
    return []


@functools.cache
def _of_one_view() -> tuple[int, int]:
    """The references to a tensor that one view holds and nothing else, which the variable here has, too: Python's, and
    PyTorch's. Releases of PyTorch differ in these."""
    made = torch.empty(2)
    view, known = made[:1], weakref.ref(made)
    del made
    tensor: Any = known()
    found = sys.getrefcount(tensor), tensor._use_count()
    del view
    return found


def _is_part(tensor: Any) -> bool:
    """A view of half of a large block at most."""
    size = int(tensor.untyped_storage().nbytes())
    return size >= _LARGE and 2 * int(tensor.nbytes) <= size


def _is_followed(tensor: Any) -> bool:
    is_first = bool(tensor.is_cuda) and tensor.layout == torch.strided and tensor.device.index == 0
    return is_first and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # of vmap: it has no storage


def _node() -> str:
    """The node of autograd that runs, "" in forward."""
    if torch._C._current_graph_task_id() == -1:
        return ""
    node = torch._C._current_autograd_node()
    return node.name() if node is not None else "backward"
