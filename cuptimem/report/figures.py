"""The figures of a part of a program, as numbers that an assertion can compare with sizes: of a profile, and of the
fixture `tensor_memory`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from cuptimem import sizes
from cuptimem.words import size

if TYPE_CHECKING:
    from cuptimem.report.model import Device, Report


class Size(int):
    """Bytes, which compare with numbers and with sizes such as "512 MiB", and read as one in a failed assertion."""

    def _other(self, other: object) -> int:
        return sizes.parse(other) if isinstance(other, str) else other  # type: ignore[return-value]

    def __lt__(self, other: object) -> bool:
        return int.__lt__(self, self._other(other))

    def __le__(self, other: object) -> bool:
        return int.__le__(self, self._other(other))

    def __gt__(self, other: object) -> bool:
        return int.__gt__(self, self._other(other))

    def __ge__(self, other: object) -> bool:
        return int.__ge__(self, self._other(other))

    def __eq__(self, other: object) -> bool:
        try:
            return int.__eq__(self, self._other(other))
        except ValueError:  # a text that is no size
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __add__(self, other: int) -> Size:
        return Size(int.__add__(self, other))

    def __sub__(self, other: int) -> Size:
        return Size(int.__sub__(self, other))

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __repr__(self) -> str:
        return f"{int(self)} B" if self < 1024 else f"{int(self)} B ({size(self)})"


class Figures(ABC):
    """What is the same for every part that has a report. All in bytes."""

    _device: str | None = None  # None: all of them

    @property
    @abstractmethod
    def report(self) -> Report:
        """Everything that is known of the part so far."""

    @property
    def _is_over(self) -> bool:
        """Whether nothing can be added to it, and a collection was made at its end."""
        return False

    def on(self, device: str) -> Figures:
        """The figures of one device ("cpu", "pinned", "cuda:0"), or of all that are CUDA's ("cuda"). All zero without
        an allocation there. Raises ValueError for what is no device's name."""
        return _OnDevice(self, device)

    def _devices(self) -> list[Device]:
        named = self._device
        return [
            one for one in self.report.devices if named is None or one.name == named or one.name.startswith(f"{named}:")
        ]

    @property
    def peak_bytes(self) -> Size:
        """The highest sum of live blocks, older ones included, of the device where it is highest."""
        return max((Size(device.peak.bytes) for device in self._devices()), default=Size(0))

    @property
    def peak_above_start(self) -> Size:
        """The highest sum of live blocks that were allocated since the start, of the device where it is highest.

        Older blocks do not count, nor does it matter when they are freed. It is a lower bound where the recording went
        past its bound (max_size; report.compacted).
        """
        return max((Size(device.peak_above_start) for device in self._devices()), default=Size(0))

    @property
    def kept_bytes(self) -> Size:
        """What was allocated since the start and is alive after a collection, on all devices together.

        Gradients and optimizer state count, too, so it is no verdict: report.leaks has what grows.
        """
        if not self._is_over:
            import gc

            gc.collect()
        return Size(sum(device.kept for device in self._devices()))

    @property
    def leaked_bytes(self) -> Size:
        """The first name of kept_bytes, for tests that use it."""
        return self.kept_bytes


class _OnDevice(Figures):
    def __init__(self, whole: Figures, device: str) -> None:
        if not re.fullmatch(r"cpu|pinned|cuda(:(0|[1-9][0-9]{0,2}))?", device):
            raise ValueError(f'no device is called {device!r}: it is "cpu", "pinned", "cuda" or "cuda:0"')
        self._whole, self._device = whole, device

    def __repr__(self) -> str:
        return f"{self._whole!r}.on({self._device!r})"  # as pytest explains a failed assertion

    @property
    def report(self) -> Report:
        return self._whole.report

    @property
    def _is_over(self) -> bool:
        return self._whole._is_over
