"""A curve of numbers in one line of text."""

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"


def curve(values: Sequence[int], columns: int) -> str:
    """The last numbers, one column each, from the lowest of them to the highest; equal ones are all low."""
    shown = values[-columns:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    span = max(1, high - low)
    return "".join(LEVELS[(value - low) * (len(LEVELS) - 1) // span] for value in shown)
