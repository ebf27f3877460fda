"""The fixture `tensor_memory`: what a part of a test allocates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from cuptimem.errors import Error
from cuptimem.pytest_plugin import measuring
from cuptimem.record import recorder
from cuptimem.report.figures import Figures
from cuptimem.report.model import Report

_TABLES = ("above", "kept")


class TensorMemory(Figures):
    """What was allocated since the test's body began, or since the last reset(). Every figure is as of now, in bytes.

    def test_attention(tensor_memory):
        model = build()
        tensor_memory.reset()
        model(x)
        assert tensor_memory.peak_above_start <= "512 MiB"
    """

    def __init__(self, capture: measuring.Capture) -> None:
        self._capture = capture
        self._window: recorder.Window | None = None

    def __repr__(self) -> str:
        return "tensor_memory"  # as pytest explains a failed assertion

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "tensor_memory is not used in `with`: it measures from the test's first line, or from "
            "tensor_memory.reset() on, and its figures are as of the line that reads them"
        )

    def __exit__(self, *ignored: object) -> None:
        """Python looks for it before it calls __enter__."""

    @contextmanager
    def measured(self) -> Iterator[TensorMemory]:
        """Around a test."""
        self._capture.renew()
        self.reset()
        try:
            yield self
        finally:
            self._close()

    def _close(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            recorder.close_window(window, collect=False)

    def reset(self) -> None:
        """Measures from here on."""
        self._close()
        self._window = self._capture.open()

    @contextmanager
    def from_here(self) -> Iterator[None]:
        """Around a body: it is measured from its first line on."""
        self.reset()
        yield

    @property
    def report(self) -> Report:
        """Everything that is known of the part so far. Raises Error where anything may be missing."""
        if self._window is None:
            raise Error("tensor_memory belongs inside the test that asked for it")
        if not measuring.is_recorded(self._window):
            raise Error(measuring.ENDED_EARLY)
        return measuring.checked(measuring.read(self._window, _TABLES))
