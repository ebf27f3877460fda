"""Operators with outputs of a size that depends on values.

`nonzero` (and with it every boolean mask used as an index, masked_select, torch.where(condition), argwhere), the
`unique` family and `repeat_interleave` get an implementation for CUDA. Where the values are known (computed.py) the
output is what a GPU would make; where they are not, its size is an assumed share of the largest possible one, and its
elements are unknown. It stands below autograd, so backward works as before; fake tensors never come here, and
torch.compile breaks its graph there as it does on a real device.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cuptimem.simulation.computed import Computed
from cuptimem.simulation.places import Places, all_places, library_place, user_place

# Half of what is possible: the middle of an unknown range. The largest, which is safe to plan with, is what the
# high end of every answer takes; half keeps a mixture of experts from counting each token once per expert.
DEFAULT_FRACTION = 0.5
DEFAULT_REPEATS = 1.0  # of repeat_interleave: mean repeats of an element, which have no largest
DEFAULT_LOAD = 1.0  # of topk: all experts get the same

OPERATORS = {
    "nonzero": "share of the elements that are not zero, or true in a mask",
    "unique": "share of the elements (or rows) that differ",
    "repeat_interleave": "mean number of repeats",
    "topk": "load of the fullest expert, as a multiple of an even share",
}
_ROUTER = re.compile(r"rout|moe|expert|gat(e|ing)\b|gat(e|ing)[_.]", re.IGNORECASE)
_NEAR = 6  # innermost frames: their names are compared
WITHOUT_BOUND = ("repeat_interleave", "topk")  # their numbers may be above 1


class Assumed:
    """The fractions of this process, and where they were used."""

    def __init__(self, given: dict[str, float], high_end: bool, changed: Callable[[], None]) -> None:
        """given: by operator, or by "FILE:LINE operator" for what that line asks for."""
        self._given = {name: value for name, value in given.items() if " " not in name}
        self._by_line = [(*_line_of_key(name), value) for name, value in given.items() if " " in name]
        self._high_end = high_end
        self._changed = changed
        self.used: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._places = Places()
        self._library: Any = None  # torch.library.Library: its registrations end when it goes

    def _fraction(self, operator: str, frame: Any, highest: float) -> tuple[float, bool]:
        """The number, and whether the user has given it."""
        if any(operator == one for _, _, one, _ in self._by_line):
            for file, line, _ in all_places(frame):
                for end, number, one, value in self._by_line:
                    if one == operator and line == number and (file == end or file.endswith(f"/{end}")):
                        return value, True
        if operator in self._given:
            return self._given[operator], True
        if operator == "repeat_interleave":
            return DEFAULT_REPEATS, False
        if self._high_end:
            return highest, False
        return DEFAULT_LOAD if operator == "topk" else DEFAULT_FRACTION, False

    def size(self, operator: str, largest: int, item: int, highest: float = 1.0) -> int:
        """The assumed size out of `largest`, counted at the line that asks for it. item: bytes of each."""
        fraction = self.use(operator, largest, item, highest)
        return math.ceil(largest * fraction)

    def use(self, operator: str, largest: int, item: int, highest: float) -> float:
        """The fraction, counted at the line that asks for it."""
        frame = sys._getframe(1)
        fraction, given = self._fraction(operator, frame, highest)
        place, library = user_place(frame), library_place(frame)
        row = self.used.get((operator, fraction, place, library))
        if row is None:
            file, line, function = place
            row = self.used[operator, fraction, place, library] = {
                "operator": operator,
                "fraction": fraction,
                "given": given,
                "count": 0,
                "elements": 0,
                "bytes": 0,
                "file": file,
                "line": line,
                "function": function,
                "text": self._places.text(place),
                "library": (*library, self._places.text(library)),
            }
        elements = largest if operator == "topk" else math.ceil(largest * fraction)
        row["count"] += 1
        row["elements"] = max(row["elements"], elements)
        row["bytes"] = max(row["bytes"], elements * item)
        if row["count"] == 1:
            self._changed()
        return fraction

    def routing(self, experts: int, choices: int, rows: int) -> Callable[[int, int], int] | None:
        """Which expert a row takes as its first, second, ... choice; None: this is no choice of experts.

        Evenly, or such that expert 0 has a multiple of an even share, or (at the high end) all rows take the same. A
        choice of experts is known by the names of the functions that make it: beams are chosen by the same operator.
        """
        frame = sys._getframe(1)
        if not self._fraction("topk", frame, 1.0)[1] and not any(
            _ROUTER.search(function) for _, _, function in all_places(frame)[:_NEAR]
        ):
            return None
        highest = experts / choices
        load = self.use("topk", rows * choices, 8, highest)
        if load >= highest:
            return lambda row, place: place
        if load <= 1 or experts <= choices:
            return lambda row, place: (row * choices + place) % experts
        share = load / highest

        def skewed(row: int, place: int) -> int:
            full = math.floor((row + 1) * share) > math.floor(row * share)
            if full and place == 0:
                return 0
            return 1 + (row * choices + place) % (experts - 1)

        return skewed

    def rows(self) -> list[dict[str, Any]]:
        """As the process's note has them."""
        return list(self.used.values())

    def install(self, torch: ModuleType, computed: Computed, values: bool) -> None:
        """Registers the implementations with torch. Raises what torch raises."""
        library = torch.library.Library("aten", "IMPL")
        implementations = _implementations(torch, self.size, computed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden is what we want
            for name, function in implementations.items():
                library.impl(name, function, "CUDA")
            if values:
                computed.install(library)
        self._library = library


def _line_of_key(name: str) -> tuple[str, int, str]:
    place, _, operator = name.rpartition(" ")
    file, _, line = place.rpartition(":")
    return file, int(line), operator


def _implementations(
    torch: ModuleType, size: Callable[[str, int, int], int], computed: Computed
) -> dict[str, Callable[..., Any]]:
    """By operator and overload. Scratch space of the real kernels is made, too, where it is as large as the input:
    what they take beyond that (a few MiB) is not."""
    long = torch.int64
    aten = torch.ops.aten

    def nonzero(self: Any) -> Any:
        found = computed.exact(aten.nonzero.default, self)
        count = size("nonzero", self.numel(), 8 * self.dim()) if found is None else found.shape[0]
        # As the kernel has it: a column after the other.
        result = torch.empty_strided((count, self.dim()), (1, max(count, 1)), dtype=long, device=self.device)
        return computed.filled(result, found)

    def nonzero_out(self: Any, *, out: Any) -> Any:
        found = computed.exact(aten.nonzero.default, self)
        count = size("nonzero", self.numel(), 8 * self.dim()) if found is None else found.shape[0]
        return computed.filled(out.resize_((count, self.dim())), found)

    def flat_unique(operator: Any, self: Any, inverse: bool, counts: bool, sorting: bool, arguments: Any) -> Any:
        exact = computed.exact(operator, self, *arguments)
        number = self.numel()
        scratch = [self.new_empty(number)] if sorting else []  # sorted
        if sorting and inverse:
            scratch += [self.new_empty(number, dtype=long), self.new_empty(number)]  # its order, and the sort's own
        inverse_out = self.new_empty(self.shape if inverse else 0, dtype=long)
        # The kernel writes into tensors of the input's size and then makes them smaller: their storage stays.
        found, found_counts = self.new_empty(number), self.new_empty(number if counts else 0, dtype=long)
        del scratch
        count = size("unique", number, self.element_size()) if exact is None else exact[0].numel()
        results = found.resize_(count), inverse_out, found_counts.resize_(count if counts else 0)
        return computed.filled(results, exact)

    def unique(self: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
        return flat_unique(aten._unique.default, self, return_inverse, False, True, (sorted, return_inverse))[:2]

    def unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        arguments = (sorted, return_inverse, return_counts)
        return flat_unique(aten._unique2.default, self, return_inverse, return_counts, True, arguments)

    def along(operator: Any, self: Any, dim: int, inverse: bool, counts: bool, arguments: Any) -> Any:
        exact = computed.exact(operator, self, *arguments)
        shape = list(self.shape)
        length = shape[dim]
        order = self.new_empty(length, dtype=long)
        row = self.element_size() * (self.numel() // length if length else 0)
        shape[dim] = size("unique", length, row) if exact is None else exact[0].shape[dim]
        result = self.new_empty(shape)
        del order
        results = (
            result,
            self.new_empty(length if inverse else 0, dtype=long),
            self.new_empty(shape[dim] if counts else 0, dtype=long),
        )
        return computed.filled(results, exact)

    def unique_dim(
        self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> Any:
        arguments = (dim, sorted, return_inverse, return_counts)
        return along(aten.unique_dim.default, self, dim, return_inverse, return_counts, arguments)

    def unique_consecutive(
        self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        operator, arguments = aten.unique_consecutive.default, (return_inverse, return_counts, dim)
        if dim is None:
            return flat_unique(operator, self, return_inverse, return_counts, False, arguments)
        return along(operator, self, dim, return_inverse, return_counts, arguments)

    def unique_dim_consecutive(self: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
        operator, arguments = aten.unique_dim_consecutive.default, (dim, return_inverse, return_counts)
        return along(operator, self, dim, return_inverse, return_counts, arguments)

    def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
        found = computed.exact(aten.repeat_interleave.Tensor, repeats)
        if output_size is None:
            output_size = (
                size("repeat_interleave", repeats.numel(), repeats.element_size()) if found is None else found.numel()
            )
        sums = repeats.cumsum(0)
        result = repeats.new_empty(output_size)
        del sums
        return computed.filled(result, found)

    return {
        "nonzero": nonzero,
        "nonzero.out": nonzero_out,
        "_unique": unique,
        "_unique2": unique2,
        "unique_dim": unique_dim,
        "unique_consecutive": unique_consecutive,
        "unique_dim_consecutive": unique_dim_consecutive,
        "repeat_interleave.Tensor": repeat_interleave,
    }
