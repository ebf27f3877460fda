"""What only reference cycles hold: how a holder's path says it, and from when on it is worth a word."""

import re

CYCLE = "only a reference cycle"  # referrers.Search.unnamed: before the ring of attributes

_LEAST = 1 << 20  # bytes of garbage: less is said of none
_SHARE = 20  # ... and of the peak at least one in so many
_FUNCTION = re.compile(CYCLE + r": (?:closure \w+ of (\S+\(\))|traceback → (\w+ in \S+\(\)))")
_CLASS = re.compile(r"(?:: |→ )(\w+)\.\w")


def is_much(garbage: int, peak: int) -> bool:
    return garbage >= max(_LEAST, peak // _SHARE)


def classes_of(path: str) -> str:
    """The classes that a holder's path names where only a cycle holds: "Episode and Env" of Episode.env → Env.episode.
    Else the function that calls itself, or the variable that keeps an exception with its traceback, or ""."""
    if found := _FUNCTION.match(path):
        return str(found[1] or found[2])
    return " and ".join(dict.fromkeys(_CLASS.findall(path))) if path.startswith(CYCLE) else ""
