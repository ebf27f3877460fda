"""The loss over a large vocabulary, in parts, together with the layer before it."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch

_LEAST = 1 << 20  # elements: parts of smaller logits save nothing that is seen
_WIDER = 4  # times its input's width: no hidden layer is a head
_PLAIN = frozenset({"dim", "size", "numel", "__len__", "is_floating_point"})
_ATTRIBUTES = frozenset({"shape", "dtype", "device", "requires_grad", "ndim", "is_cuda", "layout"})
_SAME = frozenset({"contiguous", "float"})  # of a float32


class ChunkedLoss(Change):
    """Cross-entropy over parts of the rows, each computed again in backward, with the linear layer that made its
    logits where nothing else reads these: neither they nor their log-softmax is ever whole."""

    why_not = f"no cross_entropy of logits of two dimensions and at least {_LEAST:,} elements is computed"

    def install(self) -> None:
        self._cross_entropy, self._linear = F.cross_entropy, F.linear
        patch(F, "cross_entropy", functools.wraps(F.cross_entropy)(lambda _: self._in_parts))
        patch(F, "linear", lambda _: self._later)

    def _later(self, input: Any, weight: Any, bias: Any = None) -> Any:
        """F.linear; of what may be a head, when something else than cross-entropy reads it."""
        is_head = input.dim() > 1 and weight.shape[0] > _WIDER * weight.shape[1]
        count = input.numel() // max(1, input.shape[-1]) * weight.shape[0]
        if not is_head or count < _LEAST or not self._learns(input, weight):
            return self._linear(input, weight, bias)
        return _Logits(self, input, weight, bias)

    def _learns(self, input: Any, weight: Any) -> bool:
        is_plain = input.dtype is torch.float32 and not torch.is_autocast_enabled(self.device)
        has_graph = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
        return is_plain and has_graph and not calls.in_backward()

    def whole(self, logits: "_Logits") -> Any:
        return self._linear(logits.states, logits.weight, logits.bias)

    def _in_parts(self, input: Any, target: Any, *arguments: Any, **keywords: Any) -> Any:
        reduction = keywords.get("reduction", "mean")
        extra = {name: keywords[name] for name in ("ignore_index", "label_smoothing") if name in keywords}
        others = {name for name, value in keywords.items() if value is not None} - {"reduction", *extra}
        plain = not arguments and reduction in ("mean", "sum") and not others and input.dim() == 2
        if not plain or input.numel() < _LEAST or not input.requires_grad:
            return self._cross_entropy(_computed(input), target, *arguments, **keywords)
        self.applied += 1

        def part(rows: Any, targets: Any) -> Any:
            if isinstance(input, _Logits):
                rows = self._linear(rows, input.weight, input.bias)
            return self._cross_entropy(rows, targets, reduction="sum", **extra)

        rows = (input.states if isinstance(input, _Logits) else input).chunk(int(self.value))
        pairs = zip(rows, target.chunk(int(self.value)), strict=True)
        total = sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs)
        return total / target.numel() if reduction == "mean" else total


class _Logits(torch.Tensor):
    """Of a linear layer that has not run. What keeps its rows is done to its input; all else computes it."""

    def __new__(cls, change: ChunkedLoss, states: Any, weight: Any, bias: Any) -> "_Logits":
        make: Any = torch.Tensor._make_wrapper_subclass
        shape, options = (*states.shape[:-1], weight.shape[0]), {"dtype": states.dtype, "device": states.device}
        made: _Logits = make(cls, shape, requires_grad=True, **options)
        return made

    def __init__(self, change: ChunkedLoss, states: Any, weight: Any, bias: Any) -> None:
        self.change, self.states, self.weight, self.bias = change, states, weight, bias

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, keywords = getattr(func, "__name__", ""), kwargs or {}
        if name in _PLAIN or (name == "__get__" and getattr(func.__self__, "__name__", "") in _ATTRIBUTES):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **keywords)
        logits = args[0] if args else None
        if name == "cross_entropy" and isinstance(logits, _Logits):  # a library's name for it
            return logits.change._in_parts(*args, **keywords)
        if isinstance(logits, _Logits) and not keywords and (states := logits._rows(name, args[1:])) is not None:
            return _Logits(logits.change, states, logits.weight, logits.bias)
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
    return value.change.whole(value) if isinstance(value, _Logits) else value
