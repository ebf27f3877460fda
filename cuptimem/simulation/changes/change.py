"""What all changes have: a count of what they did, and the reason where that is nothing."""

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from cuptimem.simulation.places import Place, call_place


class Change:
    """A change that is put into the program of this process. Subclasses patch what the program will call."""

    why_not = "nothing in the program is what it changes"  # said where it did nothing

    def __init__(self, name: str, value: str, device: str) -> None:
        self.name = name
        self.value = value
        self.device = device  # "cuda" or "cpu"
        self.applied = 0
        self.again = ""  # what it found out, with which it is to be tried once more
        self.write = ""  # what to write where the program makes its call; "": as advice of the recording has it
        self._weights: dict[Place, int] = {}

    def install(self) -> None:
        """Before the program's first line."""
        raise NotImplementedError

    def finish(self) -> None:
        """Behind the program's last line that runs."""

    @property
    def place(self) -> Place | None:
        """The program's call that was given the most to work on, of those where the change did something."""
        return max(self._weights, key=lambda one: self._weights[one], default=None)

    def saw(self, elements: int) -> None:
        """It does something where the program is now."""
        self.saw_at(call_place(sys._getframe(1)), elements)

    def saw_at(self, place: Place | None, elements: int) -> None:
        if place is not None:
            self._weights[place] = self._weights.get(place, 0) + elements


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts make(original) in the place of an attribute."""
    setattr(owner, name, make(getattr(owner, name)))


_enders: list[Callable[[str], NoReturn]] = []


def on_refusal(end: Callable[[str], NoReturn]) -> None:
    """end(reason) ends the process of the try: the program could catch an exception."""
    _enders.append(end)


def refuse(reason: str) -> NoReturn:
    """Ends the try: with this program the change would do something else than what its name says."""
    for end in _enders:
        end(reason)
    raise RuntimeError(reason)
