"""The loss over a large vocabulary, in parts, together with the layer before it."""

import functools
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from cuptimem.simulation.changes import calls, parameters
from cuptimem.simulation.changes.change import Change, patch

_LEAST = 1 << 20  # elements: parts of smaller logits save nothing that is seen
_PLAIN = frozenset({"dim", "size", "numel", "__len__", "is_floating_point"})
_ATTRIBUTES = frozenset({"shape", "dtype", "device", "requires_grad", "ndim", "is_cuda", "layout"})
_SAME = frozenset({"contiguous", "float"})  # of a float32
_ROWS = ("View", "UnsafeView", "ReshapeAlias", "Slice", "Select", "Index", "Clone")  # nodes that may keep rows whole
_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_MARK = "number of the weight of linear"
_RUNS = 3  # the first finds out what leads to a loss, the second what else reads that, the third is without these


class ChunkedLoss(Change):
    """Cross-entropy over parts of the rows, each computed again in backward, with the linear layer that made its
    logits where nothing else reads these: neither they nor their log-softmax is ever whole.

    A first run finds out which weights' products lead to a loss. The next one has their numbers, and is followed by
    another without those whose logits anything else reads, or the program keeps.
    """

    why_not = f"no cross_entropy of logits of two dimensions and at least {_LEAST:,} elements is computed"

    def __init__(self, *given: str) -> None:
        super().__init__(*given)
        parts, _, known = self.value.partition(":")
        runs, _, heads = known.partition(":")
        self._parts, self._run = int(parts), int(runs or 1)
        self._heads = {int(one) for one in heads.split(",") if one}
        self._read: set[int] = set()  # those whose logits anything else reads
        self._living: list[weakref.ref[_Logits]] = []

    def install(self) -> None:
        parameters.count()
        self._cross_entropy, self._linear = F.cross_entropy, F.linear
        patch(F, "cross_entropy", functools.wraps(F.cross_entropy)(lambda _: self._in_parts))

        @functools.wraps(F.linear)
        def later(input: Any, weight: Any, bias: Any = None) -> Any:
            return self._later(input, weight, bias)

        torch.jit._builtins._register_builtin(later, "aten::linear")
        patch(F, "linear", lambda _: later)

    def finish(self) -> None:
        alive = [one.number for each in self._living if (one := each()) is not None]
        self._read |= {number for number in alive if alive.count(number) > 1}  # a variable has one of them
        if (self._run == 1 and self._heads) or (1 < self._run < _RUNS and self._read):
            self.again = f"{self._parts}:{self._run + 1}:{','.join(map(str, sorted(self._heads - self._read)))}"

    def _later(self, input: Any, weight: Any, bias: Any = None) -> Any:
        """F.linear; of what leads to a loss alone, with that."""
        if torch.compiler.is_compiling() or calls.in_backward():
            return self._linear(input, weight, bias)
        number = parameters.number(weight)
        if self._run > 1 and number in self._heads and self._is_plain(input, weight):
            logits = _Logits(self, number, input, weight, bias)
            self._living.append(weakref.ref(logits))
            return logits
        made = self._linear(input, weight, bias)
        if self._run == 1 and number is not None and made.grad_fn is not None and self._is_plain(input, weight):
            node: Any = made.grad_fn
            node.metadata[_MARK] = number
        return made

    def _is_plain(self, input: Any, weight: Any) -> bool:
        is_single = input.dtype is torch.float32 and not torch.is_autocast_enabled(self.device)
        has_graph = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        return is_single and has_graph and input.dim() > 1

    def read(self, logits: "_Logits") -> Any:
        """By something else than the loss: then the layer runs."""
        self._read.add(logits.number)
        return self._linear(logits.states, logits.weight, logits.bias)

    def _in_parts(self, input: Any, target: Any, *arguments: Any, **keywords: Any) -> Any:
        reduction = keywords.get("reduction", "mean")
        extra = {name: keywords[name] for name in ("ignore_index", "label_smoothing") if name in keywords}
        others = {name for name, value in keywords.items() if value is not None} - {"reduction", *extra}
        plain = not arguments and reduction in ("mean", "sum") and not others and input.dim() == 2
        if not plain or input.numel() < _LEAST or not input.requires_grad:
            return self._cross_entropy(_computed(input), target, *arguments, **keywords)
        self.applied += 1
        if not isinstance(input, _Logits):
            self.write = (
                f"cross_entropy alone for {self._parts} parts of the rows, each in {_CHECKPOINT}: the logits stay whole"
            )
            self.saw(input.numel())
        if self._run == 1:
            self._heads.update(_leading_to(input))

        def part(rows: Any, targets: Any) -> Any:
            if isinstance(input, _Logits):
                rows = self._linear(rows, input.weight, input.bias)
            return self._cross_entropy(rows, targets, reduction="sum", **extra)

        rows = (input.states if isinstance(input, _Logits) else input).chunk(self._parts)
        pairs = zip(rows, target.chunk(self._parts), strict=True)
        total = sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs)
        return total / target.numel() if reduction == "mean" else total


class _Logits(torch.Tensor):
    """Of a linear layer that has not run. What keeps its rows is done to its input; all else needs it."""

    def __new__(cls, change: ChunkedLoss, number: int, states: Any, weight: Any, bias: Any) -> "_Logits":
        make: Any = torch.Tensor._make_wrapper_subclass
        shape, options = (*states.shape[:-1], weight.shape[0]), {"dtype": states.dtype, "device": states.device}
        made: _Logits = make(cls, shape, requires_grad=True, **options)
        return made

    def __init__(self, change: ChunkedLoss, number: int, states: Any, weight: Any, bias: Any) -> None:
        self.change, self.number, self.states, self.weight, self.bias = change, number, states, weight, bias

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, keywords = getattr(func, "__name__", ""), kwargs or {}
        if name in _PLAIN or (name == "__get__" and getattr(func.__self__, "__name__", "") in _ATTRIBUTES):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **keywords)
        logits = args[0] if args else None
        if isinstance(logits, _Logits) and not keywords and (states := logits._rows(name, args[1:])) is not None:
            return _Logits(logits.change, logits.number, states, logits.weight, logits.bias)
        computed: Any = tree_map
        return func(*computed(_computed, args), **computed(_computed, keywords))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]  # torch declares no class method
        computed: Any = tree_map
        return func(*computed(_computed, args), **computed(_computed, kwargs or {}))

    def _rows(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """The layer's input as an operator leaves its rows; None: it does something else."""
        if name in _SAME and not arguments:
            return self.states
        if name not in ("view", "reshape", "flatten", "__getitem__"):
            return None
        shape = getattr(torch.empty(self.shape, device="meta"), name)(*arguments).shape
        if shape[-1:] != self.shape[-1:] or not shape[:-1].numel():
            return None
        return self.states[arguments[0]] if name == "__getitem__" else self.states.reshape(*shape[:-1], -1)


def _computed(value: Any) -> Any:
    return value.change.read(value) if isinstance(value, _Logits) else value


def _leading_to(logits: Any) -> set[int]:
    """The number of the call of linear whose rows these are, if they are of one."""
    node = logits.grad_fn
    while node is not None and _MARK not in node.metadata:
        node = node.next_functions[0][0] if node.name().removesuffix("Backward0") in _ROWS else None
    return set() if node is None else {node.metadata[_MARK]}
