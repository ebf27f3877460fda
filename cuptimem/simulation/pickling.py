"""cloudpickle, with the files of code: from 3.1.3 on it leaves them out, and reports name lines by them."""

import io
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle


def dumps(value: object) -> bytes:
    """What pickle.loads() takes. Raises what an object's own pickling raises."""
    with io.BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


def restored(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    """A code object with its file: what a pickle calls when it is loaded."""
    return make(*arguments).replace(co_filename=file)


def _reduce(code: CodeType) -> tuple[Any, ...]:
    return restored, (code.co_filename, *_CLOUDPICKLE[CodeType](code))


_CLOUDPICKLE = cloudpickle.Pickler.dispatch_table


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    dispatch_table = _CLOUDPICKLE.new_child({CodeType: _reduce})
