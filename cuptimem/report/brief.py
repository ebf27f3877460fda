"""What a prompt, a debugger and a failed assertion show of an object: one line, whatever it holds."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol

import cuptimem
from cuptimem import words
from cuptimem.printable import printable

if TYPE_CHECKING:
    from cuptimem.report.stacks import Frame

_MOST = 120  # characters of a line
_NAME = 40  # of one name in it


class Placed(Protocol):
    @property
    def frame(self) -> "Frame | None": ...
    @property
    def where(self) -> str: ...


class Brief:
    """Objects with a one-line repr, `<cuptimem.Peak cpu: ...>`; what differs in two equal lines is in their fields."""

    __slots__ = ()

    def _summary(self) -> str:
        """What stands behind the class's name."""
        parts = (_field(one.name, getattr(self, one.name)) for one in fields(self) if one.compare)  # type: ignore[arg-type]  # a class that has no _summary is a dataclass
        return ", ".join(part for part in parts if part)

    def __repr__(self) -> str:
        kind = type(self)
        home = "cuptimem" if kind.__name__ in cuptimem.__all__ else kind.__module__
        text = printable(f"{home}.{kind.__qualname__} {self._summary()}".rstrip())
        return f"<{text}>" if len(text) <= _MOST - 2 else f"<{text[: _MOST - 3]}…>"


def name(text: str) -> str:
    """A name's end, for that of a file or a function says most; escaped first, so that its length is bounded."""
    text = printable(text[-2 * _NAME :])
    return text if len(text) <= _NAME else "…" + text[1 - _NAME :]


def at(frame: "Frame") -> str:
    """Its file and line, as views show them."""
    return name(frame.shown)


def where(one: Placed) -> str:
    """The place of a line or leak, or why there is none, as views show it."""
    return name(one.where if one.frame is None else one.frame.shown)


def amount(size: int, count: int) -> str:
    """50.0 MiB in 3 blocks"""
    return f"{words.size(size)} in {words.plural(count, 'block')}"


def in_step(step: int | None) -> str:
    """Nothing where there is no step."""
    return "" if step is None else f" in step {step}"


def _field(label: str, value: Any) -> str:
    """One field of a line; "" for what says nothing there."""
    if value is None or value is False or value in ((), ""):
        return ""
    if isinstance(value, tuple):
        if label == "stack":
            from cuptimem.report.stacks import user_frame

            frame = user_frame(value)
            return "" if frame is None else f"at {at(frame)}"
        return f"{len(value)} {label}"
    if isinstance(value, str):
        return f"{label}={name(value)!r}"
    return f"{label}={value!r}"
