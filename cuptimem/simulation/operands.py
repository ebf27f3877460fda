"""Which operand of an operator its variant in place could write into, without a change of what the program computes.

Only what no way of the program from there on can read: a read that this run did not come to counts, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

import torch

from cuptimem.simulation.branches import is_read_before
from cuptimem.simulation.last_use import forget, is_read_behind
from cuptimem.simulation.places import is_programs

_COMMUTATIVE = ("add", "mul")
_SLOPES = {"leaky_relu": "negative_slope", "elu": "alpha"}  # below 0 an output does not tell the sign of its input
_MEMBERS = 64  # of a list or dictionary that are looked at


@dataclass(frozen=True, slots=True)
class Operand:
    """name: of the variable in the program's own frame that holds it, "" for none. argument: self or other, and words
    for that."""

    tensor: Any
    name: str
    argument: str
    words: str


def in_place_of(
    function: Any, given: tuple[tuple[Any, ...], dict[str, Any]], made: Any, frame: FrameType | None
) -> list[Operand]:
    """function: an overload of an operator, that has made a tensor. frame: the innermost that led to the call."""
    if not _has_variant(function.overloadpacket):
        return []
    arguments, keywords = given
    named = dict(zip((one.name for one in function._schema.arguments), arguments, strict=False)) | keywords
    if named.get(_SLOPES.get(function.overloadpacket.__name__, ""), 0) < 0:
        return []
    tensors = {name: one for name, one in named.items() if isinstance(one, torch.Tensor)}
    is_commutative = function.overloadpacket.__name__ in _COMMUTATIVE and named.get("alpha", 1) == 1
    found = []
    for name, words in (("self", "the first operand"), ("other", "the second operand"))[: 1 + is_commutative]:
        tensor = tensors.get(name)
        if tensor is None or not _fits(tensor, made) or sum(_is_same(one, tensor) for one in tensors.values()) > 1:
            continue
        variable = _variable(tensor, frame)
        if variable is not None:
            found.append(Operand(tensor, variable, name, words if len(tensors) > 1 else "its input"))
    return found


@lru_cache(None)
def _has_variant(operator: Any) -> bool:
    return hasattr(torch.ops.aten, f"{operator.__name__}_")


def _fits(tensor: Any, made: Any) -> bool:
    """Whether the result could lie in its memory, and autograd lets it."""
    if type(tensor) is not torch.Tensor or (tensor.shape, tensor.dtype) != (made.shape, made.dtype):
        return False
    is_whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    if not is_whole or tensor.stride() != made.stride() or tensor.device != made.device:
        return False
    if torch.is_grad_enabled() and (tensor._is_view() or (tensor.is_leaf and tensor.requires_grad)):
        return False
    return not tensor.is_inference() or torch.is_inference_mode_enabled()


def _variable(tensor: Any, frame: FrameType | None) -> str | None:
    """The name in the innermost of the program's frames that holds it, "" for none; None: one of them holds it that may
    be read behind this call, or was on a branch that this run did not take."""
    own: str | None = None
    while frame is not None:
        if is_programs(frame.f_code.co_filename):
            variables = frame.f_locals
            names = [name for name, value in variables.items() if any(_is_same(one, tensor) for one in _within(value))]
            same = [name for name in names if variables[name] is tensor]
            forget(frame, variables)
            if any(is_read_behind(frame, name) or is_read_before(frame.f_code, frame.f_lineno, name) for name in names):
                return None
            if own is None:
                own = same[0] if same else ""
        frame = frame.f_back
    return own


def is_idle(tensor: Any, frame: FrameType | None, held: int) -> bool:
    """Whether all that holds a tensor are variables of the program's running functions that are not read behind the
    calls that these make. frame: the innermost. held: references of the program to it."""
    while frame is not None and held:
        if is_programs(frame.f_code.co_filename):
            variables = frame.f_locals
            names = [name for name, value in variables.items() if value is tensor]
            forget(frame, variables)
            if any(is_read_behind(frame, name) for name in names):
                return False
            held -= len(names)
        frame = frame.f_back
    return not held


def _is_same(value: Any, tensor: Any) -> bool:
    if value is tensor:
        return True
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device != tensor.device:
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(value):  # of vmap: what is in it is not known
        return True
    return bool(value.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr())


def _within(value: Any) -> Iterator[Any]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else (value,)
    yield from members if len(members) <= _MEMBERS else ()
