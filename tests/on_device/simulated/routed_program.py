"""Runs, forward and backward, each operator that PyTorch can route through a Python function of its own
(torch/_native/registry.py), on the CPU or on a device; prints one line of JSON. For test_routed.py.

Most of the routes are only there where a package for writing kernels is installed. Here all of them are, with a
condition that never holds, as it does not for most shapes: then PyTorch's own kernel is called, from that function.
"""

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

import cuptimem

try:
    from torch._native import ops, registry
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as Chunks
except ImportError:  # before 2.14
    print(json.dumps({}))
    sys.exit()

Tensors = tuple[torch.Tensor, ...]
DEVICE = sys.argv[1]


def leaf(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, device=DEVICE).requires_grad_()


def bmm() -> Tensors:
    return (torch.bmm(leaf(4, 64, 32), leaf(4, 32, 64)),)


def foreach_mm() -> Tensors:
    return tuple(torch._foreach_mm([leaf(64, 32), leaf(32, 64)], [leaf(32, 64), leaf(64, 32)]))


def polar() -> Tensors:
    return tuple(torch.ops.aten.linalg_polar(leaf(32, 24)))


def rms_norm() -> Tensors:
    return (F.rms_norm(leaf(64, 32), (32,), leaf(32)),)


def topk() -> Tensors:
    return (torch.topk(leaf(64, 32), 4).values,)


def scatter_add() -> Tensors:
    index = torch.zeros(64, 32, dtype=torch.long, device=DEVICE)
    return (leaf(64, 32).scatter_add(0, index, leaf(64, 32)),)


def gather() -> Tensors:  # its backward adds in place
    index = torch.zeros(64, 32, dtype=torch.long, device=DEVICE)
    return (leaf(64, 32).gather(0, index),)


def sum_along() -> Tensors:
    return (leaf(64, 32, 8).sum(1),)


def broadcast() -> Tensors:  # its backward sums
    return (leaf(64, 32) * leaf(32),)


def prod() -> Tensors:
    return (leaf(64, 32).prod(1),)


def chunked() -> Tensors:  # computes its gradients in the forward
    target, options = torch.zeros(64, dtype=torch.long, device=DEVICE), Chunks(batch_chunk_size=16)
    return (F.linear_cross_entropy(leaf(64, 32), leaf(96, 32), target, options=options),)


def chunked_apart() -> Tensors:
    target, options = torch.zeros(64, dtype=torch.long, device=DEVICE), Chunks(batch_chunk_size=16)
    return (F.linear_cross_entropy(leaf(64, 32), leaf(96, 32), target, reduction="none", options=options),)


# Operators that write into what they are given have no backward of their own, and take no memory.
EXAMPLES: dict[str, tuple[Callable[[], Tensors], ...]] = {
    "bmm": (bmm,),
    "_foreach_mm": (foreach_mm,),
    "linalg_polar": (polar,),
    "linalg_polar.out": (),
    "_fused_rms_norm": (rms_norm,),
    "_fused_rms_norm_backward": (rms_norm,),
    "topk": (topk,),
    "topk.values": (),
    "scatter_add": (scatter_add,),
    "scatter_add.out": (),
    "scatter_add_": (gather,),
    "sum.dim_IntList": (sum_along, broadcast),
    "sum.IntList_out": (),
    "prod.dim_int": (prod,),
    "prod.int_out": (),
    "_linear_cross_entropy_batch_chunked": (chunked,),
    "_linear_cross_entropy_batch_chunked_no_reduction": (chunked_apart,),
}


def declared() -> set[tuple[str, str]]:
    """Namespace and name of everything that this PyTorch would route if all packages for it were installed."""
    found: set[tuple[str, str]] = set()

    def collect(*arguments: Any, **keywords: Any) -> None:
        names = [argument for argument in arguments if isinstance(argument, str)]
        namespace = next(i for i, name in enumerate(names) if name in ("aten", "torch_nn"))
        found.add((names[namespace], names[namespace + 1]))

    helpers = [registry]
    helpers += [importlib.import_module(f"torch._native.{name}_utils") for name in ("cutedsl", "triton")]
    with suppress(ImportError):
        helpers.append(importlib.import_module("torch._native.flydsl_utils"))
    yes = {"runtime_available": True, "_version_is_ok": True, "check_native_jit_disabled": False}
    patches = [mock.patch.object(helper, "register_op_override", collect) for helper in helpers]
    patches += [
        mock.patch.object(helper, name, lambda answer=answer: answer)
        for helper in helpers
        for name, answer in yes.items()
        if hasattr(helper, name)
    ]
    for patch in patches:
        patch.start()
    for module in [module for name, module in sys.modules.items() if name.startswith(ops.__name__ + ".")]:
        for name, function in list(vars(module).items()):
            if name.endswith("_ENABLED"):  # by a variable of the environment
                setattr(module, name, True)
            elif name.startswith("register_") and not inspect.signature(function).parameters:
                function()
    for patch in patches:
        patch.stop()
    return found | {(key[-3] if len(key) == 3 else "aten", key[-2]) for key in registry._graphs}


def route(namespace: str, name: str) -> bool:
    """Whether it is routed on this device from now on; False where PyTorch has no kernel of its own for it there."""
    key = DEVICE.upper()
    own = (key, "CompositeExplicitAutograd")
    if not any(torch._C._dispatch_has_kernel_for_dispatch_key(f"{namespace}::{name}", each) for each in own):
        return False
    at = graph_key(namespace, name, key)
    if at not in registry._graphs:
        registry.register_op_override("native", namespace, name, key, cond=lambda *a, **k: False, impl=lambda *a: None)
        registry._register_overrides_from_graph(*at, registry._graphs[at])
    return True


def graph_key(namespace: str, name: str, key: str) -> tuple[str, ...]:
    three = all(len(known) == 3 for known in registry._graphs)  # 2.15 and later
    return (namespace, name, key) if three else (name, key)


def run(path: str, example: Callable[[], Tensors]) -> None:
    with cuptimem.profile(path, walks=False, holders=False):
        results = example()
        loss = torch.stack([result.sum() for result in results]).sum()
        loss.backward()
        held = torch.empty(1 << 22, device=DEVICE)  # the peak: all of the above is alive
    del held


def main() -> None:
    found: dict[str, Any] = {"runs": {}, "unknown": [], "unrouted": []}
    names = declared()
    for namespace, name in sorted(names):
        if name not in EXAMPLES:
            found["unknown"].append(f"{namespace}::{name}")
        elif not route(namespace, name):
            found["unrouted"].append(name)
    for _, name in sorted(names):
        for example in EXAMPLES.get(name, ()):
            path = f"{name}.{example.__name__}.cmem"
            example()  # what PyTorch sets up once
            run(path, example)
            lines, first = inspect.getsourcelines(example)
            found["runs"][path] = [first, first + len(lines) - 1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
