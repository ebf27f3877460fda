"""Operators whose output's size depends on values, which a simulated device does not have: assumed sizes for them.

`nonzero` (and with it every boolean mask used as an index, masked_select, torch.where(condition), argwhere), the
`unique` family and `repeat_interleave` get an implementation for CUDA that makes an output of an assumed share of its
largest possible size. It stands below autograd, so backward works as before; fake tensors never come here, and
torch.compile breaks its graph there as it does on a real device.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import linecache
import math
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Half of what is possible: the middle of a range nobody knows. The largest, which is safe to plan with, is what the
# high end of every answer takes; half keeps a mixture of experts from counting each token once per expert.
DEFAULT_FRACTION = 0.5
DEFAULT_REPEATS = 1.0  # of repeat_interleave: mean repeats of an element, which have no largest

OPERATORS = {
    "nonzero": "share of the elements that are not zero, or true in a mask",
    "unique": "share of the elements (or rows) that differ",
    "repeat_interleave": "mean number of repeats",
}

_LARGEST = 4 << 20  # bytes of a source file, as CM_SOURCE_READ_MAX of csrc/capture/sourcetext.h
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib(?:64)?[/\\]python3\.\d+t?)[/\\]|^<frozen ")


class Assumed:
    """The fractions of this process, and where they were used."""

    def __init__(self, given: dict[str, float], high_end: bool, changed: Callable[[], None]) -> None:
        self._given = given
        self._high_end = high_end
        self._changed = changed
        self.used: dict[tuple[str, str, int, str], int] = {}
        self._text: dict[tuple[str, int], str] = {}  # of the lines, as they were
        self._library: Any = None  # torch.library.Library: its registrations end when it goes

    def fraction(self, operator: str) -> float:
        if operator in self._given:
            return self._given[operator]
        if operator == "repeat_interleave":
            return DEFAULT_REPEATS
        return 1.0 if self._high_end else DEFAULT_FRACTION

    def size(self, operator: str, largest: int) -> int:
        """The assumed size, counted at the line that asks for it."""
        place = (operator, *_user_place())
        self.used[place] = self.used.get(place, 0) + 1
        if self.used[place] == 1:
            _, file, line, _ = place
            self._text[file, line] = _line_of(file, line)
            self._changed()
        return math.ceil(largest * self.fraction(operator))

    def rows(self) -> list[dict[str, Any]]:
        """As the process's note has them."""
        return [
            {
                "operator": operator,
                "fraction": self.fraction(operator),
                "given": operator in self._given,
                "count": count,
                "file": file,
                "line": line,
                "function": function,
                "text": self._text.get((file, line), ""),
            }
            for (operator, file, line, function), count in list(self.used.items())
        ]

    def install(self, torch: ModuleType) -> None:
        """Registers the implementations with torch. Raises what torch raises."""
        library = torch.library.Library("aten", "IMPL")
        implementations = _implementations(torch, self.size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is overridden is what we want
            for name, function in implementations.items():
                library.impl(name, function, "CUDA")
        self._library = library


def _line_of(file: str, line: int) -> str:
    """What a traceback would show. Code may say that it is of any file: a device or a pipe is not read, nor one that is
    too large."""
    if file not in linecache.cache:
        try:
            found = os.stat(file)
        except (OSError, ValueError):  # ValueError: a NUL
            return ""
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _LARGEST:  # those of /proc have no size
            return ""
    return linecache.getline(file, line).rstrip("\r\n")


def _user_place() -> tuple[str, int, str]:
    """The innermost frame of the user's own code, else of any."""
    frame = sys._getframe(1)
    nearest: tuple[str, int, str] | None = None
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            place = (code.co_filename, frame.f_lineno, code.co_qualname)
            if _LIBRARY.search(code.co_filename) is None:
                return place
            nearest = nearest or place
        frame = frame.f_back  # type: ignore[assignment]
    return nearest or ("", 0, "")


def _implementations(torch: ModuleType, size: Callable[[str, int], int]) -> dict[str, Callable[..., Any]]:
    """By operator and overload. Scratch space of the real kernels is made, too, where it is as large as the input:
    what they take beyond that (a few MiB) is not."""
    long = torch.int64

    def nonzero(self: Any) -> Any:
        count = size("nonzero", self.numel())
        # As the kernel has it: a column after the other.
        return torch.empty_strided((count, self.dim()), (1, max(count, 1)), dtype=long, device=self.device)

    def nonzero_out(self: Any, *, out: Any) -> Any:
        return out.resize_((size("nonzero", self.numel()), self.dim()))

    def flat_unique(self: Any, inverse: bool, counts: bool, inverse_shape: Any, sorting: bool) -> Any:
        number = self.numel()
        scratch = [self.new_empty(number)] if sorting else []  # sorted
        if sorting and inverse:
            scratch += [self.new_empty(number, dtype=long), self.new_empty(number)]  # its order, and the sort's own
        inverse_out = self.new_empty(inverse_shape if inverse else 0, dtype=long)
        # The kernel writes into tensors of the input's size and then makes them smaller: their storage stays.
        found, found_counts = self.new_empty(number), self.new_empty(number if counts else 0, dtype=long)
        del scratch
        count = size("unique", number)
        return found.resize_(count), inverse_out, found_counts.resize_(count if counts else 0)

    def unique(self: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
        return flat_unique(self, return_inverse, False, self.shape, True)[:2]

    def unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return flat_unique(self, return_inverse, return_counts, self.shape, True)

    def along(self: Any, dim: int, inverse: bool, counts: bool) -> Any:
        shape = list(self.shape)
        length = shape[dim]
        order = self.new_empty(length, dtype=long)
        shape[dim] = size("unique", length)
        result = self.new_empty(shape)
        del order
        return (
            result,
            self.new_empty(length if inverse else 0, dtype=long),
            self.new_empty(shape[dim] if counts else 0, dtype=long),
        )

    def unique_dim(
        self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> Any:
        return along(self, dim, return_inverse, return_counts)

    def unique_consecutive(
        self: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        if dim is None:
            return flat_unique(self, return_inverse, return_counts, self.shape, False)
        return along(self, dim, return_inverse, return_counts)

    def unique_dim_consecutive(self: Any, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
        return along(self, dim, return_inverse, return_counts)

    def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
        if output_size is None:
            output_size = size("repeat_interleave", repeats.numel())
        sums = repeats.cumsum(0)
        result = repeats.new_empty(output_size)
        del sums
        return result

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
