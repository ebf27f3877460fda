"""Numbers of parameters, in the order in which the program makes them: what one run finds out the next one knows."""

import functools
from typing import Any

from torch import nn

from cuptimem.simulation.changes.change import patch

_numbers: dict[int, int] = {}  # by id


@functools.cache
def count() -> None:
    """From here on."""
    patch(nn.Parameter, "__new__", _making)


def number(parameter: Any) -> int | None:
    """None: it is no parameter, or was there before."""
    return _numbers.get(id(parameter)) if isinstance(parameter, nn.Parameter) else None


def _making(original: Any) -> Any:
    made_so_far = iter(range(1 << 62))

    def new(*arguments: Any, **keywords: Any) -> Any:
        made = original(*arguments, **keywords)
        _numbers[id(made)] = next(made_so_far)
        return made

    return new
