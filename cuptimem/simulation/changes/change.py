"""What all changes have: a count of what they did, and the reason where that is nothing."""

from collections.abc import Callable
from typing import Any, NoReturn


class Change:
    """A change that is put into the program of this process. Subclasses patch what the program will call."""

    why_not = "nothing in the program is what it changes"  # said where it did nothing

    def __init__(self, name: str, value: str, device: str) -> None:
        self.name = name
        self.value = value
        self.device = device  # "cuda" or "cpu"
        self.applied = 0

    def install(self) -> None:
        """Before the program's first line."""
        raise NotImplementedError


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
