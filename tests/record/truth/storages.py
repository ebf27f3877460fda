"""The third witness: the storages that Python can reach, by a walk over live objects and autograd graphs."""

import gc
from typing import Any


def _add(found: dict[int, int], tensor: Any) -> None:
    import torch

    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return
    storage = tensor.untyped_storage()
    if storage.nbytes():
        found[storage.data_ptr()] = storage.nbytes()


def _graph(roots: list[Any], found: dict[int, int]) -> int:
    """Adds what the nodes behind roots have saved; returns how many values are behind hooks (never unpacked here)."""
    import torch

    seen: set[Any] = set()
    hidden = 0
    while roots:
        node = roots.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        roots += [n for n, _ in node.next_functions]
        values: list[Any] = []
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                try:
                    raw = getattr(node, name)
                except RuntimeError:  # freed by backward
                    continue
                values += list(raw) if isinstance(raw, (tuple, list)) else [raw]
        for raw in values:
            if isinstance(raw, torch.Tensor):
                _add(found, raw)
            elif getattr(raw, "unpack_hook", None) is not None:
                hidden += 1
                if isinstance(raw.data, torch.Tensor):
                    _add(found, raw.data)
            elif raw is not None and isinstance(getattr(raw, "data", None), torch.Tensor):
                _add(found, raw.data)
    return hidden


def reachable() -> dict[int, int]:
    """address -> bytes of every CPU storage that a live Python object or a live autograd graph holds."""
    import torch

    found: dict[int, int] = {}
    roots: list[Any] = []
    for item in gc.get_objects():
        kind = type(item)
        if issubclass(kind, torch.Tensor):
            _add(found, item)
            if item.grad_fn is not None:
                roots.append(item.grad_fn)
            elif item.is_leaf and item.grad is not None:
                _add(found, item.grad)
        elif issubclass(kind, torch.UntypedStorage) and item.device.type == "cpu" and item.nbytes():
            found[item.data_ptr()] = item.nbytes()
    _graph(roots, found)
    return found
