"""Checks of decoded JSON: types, lengths and ranges.

A check is a function of a value, which raises Wrong. Who calls it for a part puts the part's name before.
"""

import math
from collections.abc import Callable
from typing import Any, NoReturn

EXACT = 1 << 53  # a browser's numbers are exact below
WIDE = 1 << 63
TEXT = 10_000  # characters: 1,000, each of which may be an escape

Check = Callable[[Any], None]


class Wrong(Exception):
    """What is wrong with the part at a path."""

    def __init__(self, what: str, path: str = "") -> None:
        self.what, self.path = what, path


def at(name: str, one: Check, value: Any) -> None:
    """A part under its name."""
    try:
        one(value)
    except Wrong as wrong:
        raise Wrong(wrong.what, f".{name}{wrong.path}") from None


def fail(what: str) -> NoReturn:
    raise Wrong(what)


def text(value: Any) -> None:
    if type(value) is not str:
        fail("is no text")
    if len(value) > TEXT:
        fail(f"is longer than {TEXT:,} characters")


def flag(value: Any) -> None:
    if type(value) is not bool:
        fail("is neither true nor false")


def number(value: Any) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) >= WIDE:
        fail("is no number or too large")


def whole(least: int = 1 - EXACT, most: int = EXACT - 1) -> Check:
    def one(value: Any) -> None:
        if type(value) is not int:
            fail("is no whole number")
        if not least <= value <= most:
            fail("is too small or too large")

    return one


def optional(inner: Check) -> Check:
    def one(value: Any) -> None:
        if value is not None:
            inner(value)

    return one


def fields(**checks: Check) -> Check:
    """An object with at least these."""

    def one(value: Any) -> None:
        if type(value) is not dict:
            fail("is not an object")
        for name, inner in checks.items():
            if name not in value:
                fail(f"lacks {name!r}")
            at(name, inner, value[name])

    return one


def listed(inner: Check, most: int) -> Check:
    def one(value: Any) -> None:
        if type(value) is not list:
            fail("is no list")
        if len(value) > most:
            fail(f"has more than {most:,} entries")
        for number, entry in enumerate(value):
            try:
                inner(entry)
            except Wrong as wrong:
                raise Wrong(wrong.what, f"[{number}]{wrong.path}") from None

    return one


def rows(most: int, *columns: Check) -> Check:
    """Rows of equal length, checked by column."""

    def one(value: Any) -> None:
        if type(value) is not list or set(map(type, value)) - {list}:
            fail("is no list of rows")
        if len(value) > most:
            fail(f"has more than {most:,} rows")
        if set(map(len, value)) - {len(columns)}:
            fail("has a row of another length")
        for number, (inner, column) in enumerate(zip(columns, zip(*value, strict=True), strict=False)):
            at(f"column {number}", inner, list(column))

    return one


def column(least: int = 1 - EXACT, most: int = EXACT - 1, *, gaps: bool = False) -> Check:
    """Whole numbers of a range. gaps: or nothing. Without a call for each number: there may be a million."""

    def one(value: Any) -> None:
        known = [cell for cell in value if cell is not None] if gaps and type(value) is list else value
        if type(known) is not list or set(map(type, known)) - {int}:
            fail("has more than whole numbers")
        if known and not (least <= min(known) and max(known) <= most):
            fail("has a number that is too small or too large")

    return one


def texts(value: Any) -> None:
    if type(value) is not list or set(map(type, value)) - {str}:
        fail("has more than texts")
    if value and max(map(len, value)) > TEXT:
        fail(f"has a text longer than {TEXT:,} characters")
