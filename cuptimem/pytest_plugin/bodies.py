"""Where the body of a test begins and ends.

It is what pytest calls the test's "call". A unittest.TestCase runs setUp and tearDown in there, too: its body is the
test method alone.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

Measure = Callable[[], AbstractContextManager[None]]


@contextmanager
def measured(item: pytest.Item, measure: Measure) -> Iterator[None]:
    """Within, every call of the test's body is measured: behind and before all hooks of other plugins."""
    changed: Any = item
    if not is_unittest(item):
        with _replaced(item, "runtest", _wrapped(item.runtest, measure)):
            yield
        return
    method, instance = changed.obj, changed.instance
    changed.obj = wrapped = _wrapped(method, measure)
    # pytest leaves a coroutine function to unittest, which looks for it by its name.
    try:
        with _replaced(instance, item.name, wrapped) if inspect.iscoroutinefunction(method) else nullcontext():
            yield
    finally:
        changed.obj = method


@contextmanager
def _replaced(holder: Any, name: str, value: object) -> Iterator[None]:
    own = vars(holder).get(name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        delattr(holder, name)
        if own is not None:
            setattr(holder, name, own)


def failed(item: pytest.Item) -> bool:
    """Whether unittest has seen a failure, or a skip, that pytest only learns of when it makes the report."""
    return bool(getattr(item, "_excinfo", None))


def is_unittest(item: pytest.Item) -> bool:
    unittest = sys.modules.get("unittest")
    cls = getattr(item, "cls", None)
    return unittest is not None and isinstance(cls, type) and issubclass(cls, unittest.TestCase)


def _wrapped(method: Callable[..., Any], measure: Measure) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call_later() -> Any:
            __tracebackhide__ = True
            with measure():
                return await method()

        return call_later

    @functools.wraps(method)
    def call() -> Any:
        __tracebackhide__ = True
        with measure():
            return method()

    return call
