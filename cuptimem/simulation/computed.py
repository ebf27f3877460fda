"""Small values are computed: masks, lengths, indices, counters, flags.

Behind each of PyTorch's CUDA kernels that is listed below the operator is carried out on the CPU, if its inputs are
known, and the result is put into the memory of the tensor that the kernel was to write. What is known is known element
by element (elements.py); what depends on something unknown is unknown, except where the known operand alone decides, as
in `mask & False`. The kernel itself runs first and makes what it makes: no allocation, stream or event changes.

Computed are integers and booleans of up to 32 MiB a tensor, and floats of up to 64 KiB. All other tensors that a kernel
writes become unknown. Unknown floats are taken to be finite. Random numbers are drawn by a CPU generator, seeded by the
state of the program's own. Kernels that are not PyTorch's own (Triton, extensions) are not seen: what they write over
known values stays known.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from cuptimem.errors import own
from cuptimem.simulation.elements import Elements, OneThread
from cuptimem.simulation.host_reads import HostReads
from cuptimem.simulation.operators import (
    BATCH_NORMS,
    BESIDE,
    DRAWN,
    MOVES,
    NEVER_CLEAR,
    NOT_TWICE,
    NUMBERS_ON_DEVICE,
    PASSED,
    WHOLE,
)

LARGEST_INTEGER = 32 << 20  # bytes of a tensor of integers or booleans that is computed
LARGEST_FLOAT = 64 << 10
_FROM_HOST = 1 << 20  # largest copy from the host, in bytes, of which the device keeps the contents
ROUTED = 512  # topk over at most so many is taken for a choice of experts

Rule = Callable[["Call"], Any]
Routing = Callable[[int, int, int], Callable[[int, int], int] | None]  # Assumed.routing


class Call:
    """One call of an operator, after its kernel has run."""

    __slots__ = ("arguments", "keywords", "operator", "result", "writes")

    def __init__(
        self, operator: Any, writes: bool, result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self.operator = operator
        self.writes = writes  # over arguments, which may have been known
        self.result = result
        self.arguments = arguments
        self.keywords = keywords


class _Unreadable(Exception):
    """An input is too large to be read, or lies elsewhere."""


class Computed:
    """Installed once, in a process in which torch was imported."""

    def __init__(
        self,
        torch: ModuleType,
        core: Any,
        reads: HostReads,
        routing: Routing,
    ) -> None:
        """core: cuptimem._core. Its calls leave no frame and no event in the recording."""
        self.elements = Elements(torch)
        self._failed: set[str] = set()
        self._torch = torch
        self._core = core
        self._aten = torch.ops.aten
        self._cpu = torch.device("cpu")
        self._tensor = torch.Tensor
        self._one_thread = OneThread()
        self._unseen = torch._C.DisableTorchFunction  # modes of the program's own see none of this
        self._reads = reads
        self._routing = routing
        self._generator = torch.Generator()
        self._generator.manual_seed(torch.initial_seed() % 2**63)
        self._infinite = False  # whether the program itself has put infinities anywhere
        self._numbers: dict[tuple[Any, ...], Any] = {}

    def problems(self) -> list[str]:
        """For the note of the process."""
        some = ", ".join(sorted(self._failed)[:5])
        more = f" and {len(self._failed) - 5} more" if len(self._failed) > 5 else ""
        return [f"could not be computed on the CPU, so its results are unknown: {some}{more}"] if some else []

    # --- installing -----------------------------------------------------------------------------------

    def install(self, library: Any) -> None:
        """Registers with a torch.library.Library of aten. Raises what torch raises."""
        get_kernel = self._torch.library.get_kernel
        direct = self._torch._C._dispatch_has_kernel_for_dispatch_key
        for name in self._torch._C._dispatch_get_all_op_names():
            if (
                name in NUMBERS_ON_DEVICE
                or not name.startswith("aten::")
                or not (direct(name, "CUDA") or name in BESIDE)
            ):
                continue
            operator = self._overload(name)
            rule = None if operator is None else self._rule(operator)
            if rule is None:
                continue
            kernel = get_kernel(name, "CUDA").call_boxed
            arguments = operator._schema.arguments
            tensors = sum(
                1 << place
                for place, argument in enumerate(arguments)
                if str(argument.type) in ("Tensor", "Optional[Tensor]") and not argument.kwarg_only
            )
            followed = self._core.followed_kernel(kernel, self._number, self._follower(operator, rule), tensors)
            library.impl(name.removeprefix("aten::"), followed, "CUDA", with_keyset=True)

        library.impl("equal", self._equal, "CUDA")
        library.impl("searchsorted.Scalar", self._search_number, "CUDA")
        library.impl("bucketize.Scalar", lambda one, bounds, **kw: self._search_number(bounds, one, **kw), "CUDA")

    def _overload(self, name: str) -> Any:
        base, _, overload = name.removeprefix("aten::").partition(".")
        packet = getattr(self._aten, base, None)
        return None if packet is None else getattr(packet, overload or "default", None)

    def _rule(self, operator: Any) -> Rule | None:
        base = operator._schema.name.removeprefix("aten::")
        special = {
            "_local_scalar_dense": self._scalar_is_read,
            "copy_": self._copy,
            "topk": self._topk,
            "fill_": self._fill,
            "zero_": self._fill,
            "any": self._any,
            "all": self._all,
            "histc": self._histogram,
            "_amp_foreach_non_finite_check_and_unscale_": self._all_finite,
            "_amp_update_scale_": self._update_scale,
        }.get(base)
        if special is not None:
            return special
        if base in BATCH_NORMS:
            return self._batch_norm
        if base in NOT_TWICE:
            return self._unknown
        if base.startswith("scatter") and "reduce" in operator._overloadname:
            return self._whole
        if base in PASSED or (base.startswith(NEVER_CLEAR) and not _written(operator)):
            return None
        if base in MOVES:
            return self._move
        if base in WHOLE:
            return self._whole
        if base in DRAWN:
            return self._draw
        if self._torch.Tag.pointwise in operator.tags:
            return self._pointwise
        if base.startswith(("_foreach_", "_fused_")):
            return self._unknown_of_many if _written(operator) else None
        if any(str(one.type) in ("Tensor", "List[Tensor]") for one in operator._schema.returns) or _written(operator):
            return self._unknown
        return None

    def _follower(self, operator: Any, rule: Rule) -> Callable[..., Any]:
        unseen, one_thread, give_up, writes = self._unseen, self._one_thread, self._give_up, _written(operator)

        def follow(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            with unseen(), one_thread:
                call = Call(operator, writes, result, arguments, keywords)
                try:
                    return rule(call)
                except own(Exception) as error:  # an operator on the CPU may raise anything: its result is unknown
                    return give_up(call, error)

        return follow

    def _give_up(self, call: Call, error: Exception) -> None:
        if not isinstance(error, _Unreadable):
            self._failed.add(f"{call.operator} ({type(error).__name__})")
        self._unknown(call)

    def _number(self, number: Any, arguments: tuple[Any, ...]) -> Any:
        """The tensor for which a number stands, such that types are promoted as with the number."""
        with self._unseen():
            other = next((one for one in arguments if isinstance(one, self._tensor)), None)
            dtype = self._torch.result_type(other, number) if other is not None else None
            key = (dtype, type(number), repr(number))  # 0.0 equals -0.0
            found = self._numbers.get(key)
            if found is None:
                found = self._number_of(number, dtype)
                if len(self._numbers) < 4096 and number == number:
                    self._numbers[key] = found
            return found

    def _number_of(self, number: Any, dtype: Any) -> Any:
        """A number that the type cannot hold is cut off, as kernels do it."""
        if isinstance(number, int) and not isinstance(number, bool):
            number = (number + 2**63) % 2**64 - 2**63
        widest = self._torch.tensor(number, device=self._cpu).dtype
        wide = self._torch.float64 if widest.is_floating_point else widest
        found = self._aten.scalar_tensor.default(number, dtype=wide, device=self._cpu)
        return found if dtype is None or dtype == wide else self._aten._to_copy.default(found, dtype=dtype)

    # --- parts of a call ------------------------------------------------------------------------------

    def outputs(self, call: Call) -> list[Any]:
        """What its kernel has written on the device."""
        found = [one for one in _flat(call.result) if isinstance(one, self._tensor)]
        found += [one for one in _flat(_written_of(call)) if not any(one is other for other in found)]
        return [one for one in found if one.is_cuda]

    def _fits(self, tensor: Any) -> bool:
        """Whether a tensor of its size and type is computed."""
        dtype = tensor.dtype
        if dtype.is_complex or tensor.layout is not self._torch.strided or tensor.is_neg():
            return False
        return int(tensor.nbytes) <= (LARGEST_FLOAT if dtype.is_floating_point else LARGEST_INTEGER)

    def _unknown_of_many(self, call: Call) -> None:
        """Marks outputs of an optimizer's step. Floats with contents that the device never keeps need no call each."""
        for tensor in _flat(_written_of(call)):
            if not isinstance(tensor, self._tensor) or not tensor.is_cuda or not tensor.numel():
                continue
            if not tensor.is_floating_point() or tensor.nbytes <= _FROM_HOST:
                self.elements.forget(tensor)

    def _batch_norm(self, call: Call) -> None:
        self._unknown(call)
        named = zip(call.operator._schema.arguments, call.arguments, strict=False)
        running = [value for argument, value in named if argument.name.startswith("running_")]
        running += [value for name, value in call.keywords.items() if name.startswith("running_")]
        for tensor in running:
            if isinstance(tensor, self._tensor) and tensor.is_cuda:
                self.elements.forget(tensor)

    def _unknown(self, call: Call) -> None:
        for tensor in self.outputs(call):
            if tensor.layout is self._torch.strided and tensor.numel():
                self.elements.forget(tensor)

    def read(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor on the CPU, and its mask of unknown elements or None. Raises _Unreadable."""
        if not tensor.is_cuda:
            return tensor, None
        if not self._fits(tensor):
            raise _Unreadable
        found = self.elements.read(tensor)
        if found is None:
            raise _Unreadable
        return found

    def _read_all(self, value: Any, masks: list[Any], whole: bool) -> Any:
        """An argument with tensors of the CPU in it; masks of what is unknown are appended to `masks`."""
        if isinstance(value, self._tensor):
            found, unknown = self.read(value)
            if unknown is not None:
                if whole:
                    raise _Unreadable
                masks.append(unknown)
            return found
        if isinstance(value, (list, tuple)):
            return [self._read_all(one, masks, whole) for one in value]
        if isinstance(value, self._torch.device):
            return self._cpu
        return value

    def _inputs(self, call: Call, whole: bool) -> tuple[list[Any], dict[str, Any], list[Any]]:
        masks: list[Any] = []
        written = {one.name for one in call.operator._schema.arguments if one.kwarg_only and _writes(one)}
        arguments = [self._read_all(one, masks, whole) for one in call.arguments]
        keywords = {
            name: self.elements.empty(value.shape, value.dtype)
            if name in written
            else self._read_all(value, masks, whole)
            for name, value in call.keywords.items()
        }
        return arguments, keywords, masks

    def _wanted(self, call: Call) -> list[Any] | None:
        """Its outputs, if one of them is computed; else they become unknown."""
        outputs = self.outputs(call)
        if outputs and all(self._fits(one) for one in outputs):
            return outputs
        self._unknown(call)
        return None

    def _put(self, outputs: list[Any], values: Any, unknown: Any = None) -> None:
        found = [one for one in _flat(values) if isinstance(one, self._tensor)]
        masks = [None] * len(found) if unknown is None else list(_flat(unknown))
        for tensor, value, mask in zip(outputs, found, masks, strict=False):
            if tensor.shape != value.shape:
                raise _Unreadable
            if tensor.numel():
                self.elements.write(tensor, value, mask)

    # --- rules ----------------------------------------------------------------------------------------

    def _whole(self, call: Call) -> None:
        outputs = self._wanted(call)
        if outputs is not None:
            arguments, keywords, _ = self._inputs(call, True)
            self._put(outputs, call.operator(*arguments, **keywords))

    def _histogram(self, call: Call) -> None:
        """On the CPU there is one of floats only."""
        outputs = self._wanted(call)
        if outputs is not None:
            arguments, keywords, _ = self._inputs(call, True)
            keywords.pop("out", None)
            arguments[0] = self._aten._to_copy.default(arguments[0], dtype=self._torch.float64)
            self._put(outputs, self._aten.histc.default(*arguments, **keywords))

    def _draw(self, call: Call) -> None:
        outputs = self._wanted(call)
        if outputs is not None:
            written = _written_of(call)
            for tensor in (one for one in call.arguments if isinstance(one, self._tensor)):
                if not any(tensor is one for one in written) and self.read(tensor)[1] is not None:
                    raise _Unreadable  # the probabilities are unknown
            arguments, keywords, _ = self._inputs(call, False)
            keywords["generator"] = self._seeded(call.keywords.get("generator"), outputs[0].device.index)
            self._put(outputs, call.operator(*arguments, **keywords))

    def _seeded(self, generator: Any, device: int) -> Any:
        """A generator of ours in the state of the program's, which draws the same numbers."""
        of_program = self._torch.cuda.default_generators[device] if generator is None else generator
        seed = of_program.initial_seed() * 1_000_003 + of_program.get_offset()
        self._generator.manual_seed(seed % 2**63)
        return self._generator

    def _pointwise(self, call: Call) -> None:
        if not call.writes and not all(map(self._fits, self.outputs(call))):
            return  # new memory, and such a kernel does not clear it before: it is unknown as it is
        outputs = self._wanted(call)
        if outputs is None:
            return
        constant = self._of_the_finite(call)
        try:
            arguments, keywords, masks = self._inputs(call, False)
        except _Unreadable:
            if constant is None:
                raise
            full = self._aten.full.default(outputs[0].shape, constant, dtype=self._torch.bool, device=self._cpu)
            self._put(outputs, full)
            return
        values = call.operator(*arguments, **keywords)
        if not masks:
            self._put(outputs, values)
            return
        if constant is not None:
            self._put(outputs, self._aten.masked_fill.Scalar(values, masks[0], constant))
            return
        unknown = self._aten.zeros.default(outputs[0].shape, dtype=self._torch.bool, device=self._cpu)
        for mask in masks:
            self._aten.bitwise_or_.Tensor(unknown, mask)
        decided = self._decided(call, outputs[0].shape)
        if decided is not None:
            self._aten.bitwise_and_.Tensor(unknown, self._aten.logical_not.default(decided))
        self._put(outputs, values, [unknown] * len(outputs))

    def _of_the_finite(self, call: Call) -> bool | None:
        """Unknown floats are taken to be finite: what `isnan`, `isinf` and `isfinite` compare is decided by that."""
        name = call.operator._schema.name.removeprefix("aten::")
        if name == "isnan" or (name in ("isinf", "isposinf", "isneginf") and not self._infinite):
            return False
        if name not in ("eq", "ne") or not call.arguments[0].is_floating_point():
            return None
        one, other = call.arguments[:2]
        if isinstance(other, self._tensor) and other.is_cuda:
            same = one.is_cuda and other.data_ptr() == one.data_ptr() and other.stride() == one.stride()
            return name == "eq" if same and other.shape == one.shape else None
        number = other.item() if isinstance(other, self._tensor) and other.dim() == 0 else other
        return name == "ne" if isinstance(number, float) and math.isinf(number) and not self._infinite else None

    def _decided(self, call: Call, shape: Any) -> Any:
        """The result where a known operand alone decides it."""
        name = call.operator._schema.name.removeprefix("aten::").rstrip("_")
        aten = self._aten
        if name == "where":
            (condition, undecided), (_, first), (_, second) = (self._pair(part) for part in call.arguments[:3])
            missing = aten.bitwise_or.Tensor(aten.where.self(condition, first, second), undecided)
            return aten.logical_not.default(missing)
        if name not in ("bitwise_and", "logical_and", "bitwise_or", "logical_or", "mul"):
            return None
        decided = aten.zeros.default(shape, dtype=self._torch.bool, device=self._cpu)
        for part in call.arguments[:2]:
            value, unknown = self._pair(part)
            if name == "mul" and value.is_floating_point():
                continue  # 0 * inf is no zero
            if name == "bitwise_or" and value.dtype is not self._torch.bool:
                continue
            zero = aten.logical_not.default(value)
            alone = aten.logical_not.default(zero) if name in ("bitwise_or", "logical_or") else zero
            known = aten.logical_not.default(unknown)
            aten.bitwise_or_.Tensor(decided, aten.bitwise_and.Tensor(alone, known))
        return decided

    def _pair(self, part: Any) -> tuple[Any, Any]:
        """An operand and its mask, both tensors."""
        if not isinstance(part, self._tensor):
            part = self._aten.scalar_tensor.default(part, device=self._cpu)
        value, unknown = self.read(part)
        if unknown is None:
            unknown = self._aten.zeros.default(value.shape, dtype=self._torch.bool, device=self._cpu)
        return value, unknown

    def _move(self, call: Call) -> None:
        self._infinite = self._infinite or any(isinstance(one, float) and math.isinf(one) for one in call.arguments)
        outputs = self._wanted(call)
        if outputs is None:
            return
        arguments, keywords, masks = self._inputs(call, False)
        values = call.operator(*arguments, **keywords)
        if not masks:
            self._put(outputs, values)
            return
        if call.operator._schema.name == "aten::_index_put_impl_" and any(one is True for one in call.arguments[3:4]):
            raise _Unreadable  # it adds
        moved = MOVES[call.operator._schema.name.removeprefix("aten::")]
        names = [one.name for one in call.operator._schema.arguments]
        places = [self._mask(one, name in moved) for name, one in zip(names, call.arguments, strict=False)]
        named = {
            name: self.elements.empty(value.shape, self._torch.bool)
            if isinstance(value, self._tensor) and any(value is one for one in outputs)
            else self._mask(value, name in moved)
            for name, value in call.keywords.items()
        }
        self._put(outputs, values, call.operator(*places, **named))

    def _mask(self, value: Any, moved: bool) -> Any:
        """An argument for the same operator over masks."""
        if not moved:
            return self._read_all(value, [], True)
        if isinstance(value, self._tensor):
            return self._pair(value)[1]
        if isinstance(value, (list, tuple)):
            return [self._mask(one, True) for one in value]
        return False

    def _any(self, call: Call) -> None:
        self._some(call, False)

    def _all(self, call: Call) -> None:
        self._some(call, True)

    def _some(self, call: Call, every: bool) -> None:
        """One known element decides: a True for any, a False for all."""
        outputs = self._wanted(call)
        if outputs is None:
            return
        arguments, keywords, masks = self._inputs(call, False)
        if not masks:
            self._put(outputs, call.operator(*arguments, **keywords))
            return
        keywords.pop("out", None)
        unknown = masks[0]
        values = self._aten._to_copy.default(arguments[0], dtype=self._torch.bool)
        if every:
            values = self._aten.bitwise_or.Tensor(values, unknown)
        base = self._aten.all if every else self._aten.any
        overload = {1: "default", 2: "dim", 3: "dim"}[len(arguments)]
        if len(arguments) > 1 and isinstance(arguments[1], (list, tuple)):
            overload = "dims"
        result = getattr(base, overload)(values, *arguments[1:], **keywords)
        missing = getattr(self._aten.any, overload)(unknown, *arguments[1:], **keywords)
        open_ = result if every else self._aten.logical_not.default(result)
        self._put(outputs, result, self._aten.bitwise_and.Tensor(missing, open_))

    def _fill(self, call: Call) -> None:
        """Whatever was there before does not count."""
        target = call.arguments[0]
        self._infinite = self._infinite or any(isinstance(one, float) and math.isinf(one) for one in call.arguments)
        if not target.is_cuda or target.layout is not self._torch.strided or not target.numel():
            return
        if not self._fits(target):
            if call.operator._schema.name != "aten::zero_" or not target.is_contiguous():
                self.elements.forget(target)
            return  # a memset of zeros is known whatever its size
        value: Any = 0 if len(call.arguments) < 2 else call.arguments[1]
        if isinstance(value, self._tensor):
            found, unknown = self.read(value)
            if unknown is not None:
                raise _Unreadable
            filled = self._aten.expand_copy.default(found, target.shape)
        else:
            filled = self._aten.full.default(target.shape, value, dtype=target.dtype, device=self._cpu)
        self.elements.write(target, filled, None)

    def _all_finite(self, call: Call) -> None:
        """GradScaler's check: gradients are unknown, and taken to be finite. The step is then made, which takes more
        than leaving it out."""
        gradients, found = call.arguments[:2]
        for tensor in gradients:
            self.elements.forget(tensor)
        self.elements.write(found, self._aten.zeros.default(found.shape, dtype=found.dtype, device=self._cpu), None)

    def _update_scale(self, call: Call) -> None:
        """GradScaler's scale, and the steps since it last grew."""
        arguments, _, _ = self._inputs(call, True)
        call.operator(*arguments)
        self._put(list(call.arguments[:2]), arguments[:2])

    def _topk(self, call: Call) -> None:
        """Over known values as it is; a choice of experts over unknown ones is assumed."""
        values = call.arguments[0]
        outputs = self.outputs(call)
        try:
            self._whole(call)
        except _Unreadable:
            self._unknown(call)
            if values.dim() >= 1 and 1 < values.shape[-1] <= ROUTED and len(outputs) == 2:
                self._route(values, outputs[1])

    def _route(self, values: Any, indices: Any) -> None:
        experts, choices = values.shape[-1], indices.shape[-1]
        if values.is_floating_point() and 0 < choices < experts and self._fits(indices):
            rows = math.prod(indices.shape[:-1])
            chosen = self._routing(experts, choices, rows)
            if chosen is None:
                return
            flat = [[chosen(row, place) for place in range(choices)] for row in range(rows)]
            made = self._torch.tensor(flat, dtype=indices.dtype, device=self._cpu)
            self.elements.write(indices, self._aten.view.default(made, list(indices.shape)), None)

    # --- copies and reads -----------------------------------------------------------------------------

    def _copy(self, call: Call) -> None:
        target, source = call.arguments[:2]
        if not target.is_cuda:
            if source.is_cuda:
                self._host_copy(target, source)
            return
        if not target.numel() or target.layout is not self._torch.strided:
            return
        same = target.dtype == source.dtype and target.is_contiguous() and source.is_contiguous()
        if not self._fits(target):
            if not same or target.shape != source.shape:
                self.elements.forget(target)
            return  # what is copied as it lies, the device itself carries
        found, unknown = self.read(source)
        if found.layout is not self._torch.strided:
            raise _Unreadable
        self.elements.write(
            target,
            self._aten.expand_copy.default(found, target.shape),
            None if unknown is None else self._aten.expand_copy.default(unknown, target.shape),
        )

    def _host_copy(self, target: Any, source: Any) -> None:
        unknown = True if not self._fits(source) else self.read(source)[1]
        if unknown is None or not source.numel():
            return
        other = self._outcome(source.dtype, source.numel())
        if other is None:
            return
        if unknown is True:
            self._aten.fill_.Scalar(target, other)
        else:
            self._aten.masked_fill_.Scalar(target, unknown, other)

    def _scalar_is_read(self, call: Call) -> Any:
        tensor = call.arguments[0]
        if not tensor.is_cuda:
            return None
        found = self.elements.read(tensor)
        return None if found is not None and found[1] is None else self._outcome(tensor.dtype, 1)

    def _outcome(self, dtype: Any, elements: int) -> Any:
        """Notes a read of what is unknown; what it reads as, or None: as the zeros that lie there."""
        self._reads.thread.unknown = True
        name = str(dtype).removeprefix("torch.")
        if dtype.is_floating_point or dtype.is_complex:
            return self._reads.other_float(name, elements)
        if name == "uint8" and self._reads.from_storage():
            self._reads.note("storage", name, elements)
            return None
        flag = name == "bool"
        if self._reads.note("flag" if flag else "integer", name, elements):
            return True if flag else self._reads.other_integer
        return None

    def _search_number(self, bounds: Any, number: Any, **keywords: Any) -> Any:
        """PyTorch's own implementation, with a tensor that can be passed to kernels in Python."""
        dtype = self._torch.result_type(bounds, number)
        one = self._aten.scalar_tensor.default(number, dtype=dtype, device=bounds.device)
        return self._aten.searchsorted.Tensor(bounds, one, **keywords)

    def _equal(self, one: Any, other: Any) -> bool:
        """PyTorch's own implementation, by operators that are computed."""
        if one.shape != other.shape:
            return False
        if one.numel() == 0 or (one.is_set_to(other) and not one.dtype.is_floating_point):
            return True
        return bool(self._aten._local_scalar_dense.default(self._aten.all.default(self._aten.eq.Tensor(one, other))))

    # --- for operators with sizes that depend on values (data_sizes.py) ------------------------------

    def exact(self, operator: Any, tensor: Any, *arguments: Any) -> Any:
        """The operator's result on the CPU; None where not all of the tensor is known."""
        return self._core.call_unrecorded(self._exact, operator, tensor, arguments)

    def _exact(self, operator: Any, tensor: Any, arguments: tuple[Any, ...]) -> Any:
        with self._unseen(), self._one_thread:
            try:
                values, unknown = self.read(tensor)
                return None if unknown is not None else operator(values, *arguments)
            except own(Exception) as error:  # as in _follower
                if not isinstance(error, _Unreadable):
                    self._failed.add(f"{operator} ({type(error).__name__})")
                return None

    def filled(self, results: Any, exact: Any) -> Any:
        """`results`, with what is known of them in them."""
        if exact is not None:
            self._core.call_unrecorded(self._fill_exact, results, exact)
        return results

    def _fill_exact(self, results: Any, exact: Any) -> None:
        with self._unseen():
            outputs, values = list(_flat(results)), list(_flat(exact))
            for tensor, value in zip(outputs, values, strict=False):
                if tensor.shape == value.shape and tensor.numel():
                    self.elements.write(tensor, value, None)


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _written(operator: Any) -> bool:
    return any(_writes(one) for one in operator._schema.arguments)


def _written_of(call: Call) -> list[Any]:
    """Arguments that it writes."""
    found = []
    for place, argument in enumerate(call.operator._schema.arguments):
        if _writes(argument):
            if place < len(call.arguments):
                found.append(call.arguments[place])
            elif argument.name in call.keywords:
                found.append(call.keywords[argument.name])
    return found


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _flat(one)
    else:
        yield value
