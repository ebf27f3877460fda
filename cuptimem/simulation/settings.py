"""The settings of PyTorch's allocator that are tried when a program does not fit, and how they are handed to it."""

from collections.abc import Mapping

VARIABLE = "PYTORCH_ALLOC_CONF"
_OLD_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")  # still read, and then warned about

# The most likely to help first. What stands alone replaces the user's own settings, which it would not go with.
CANDIDATES: tuple[tuple[str, bool], ...] = (
    ("expandable_segments:True", False),
    ("garbage_collection_threshold:0.8", False),
    ("max_split_size_mb:128", False),
    ("backend:cudaMallocAsync", True),
)
# And one that makes blocks larger and more alike: it fits seldom where nothing else does.
COMPARED = (*CANDIDATES, ("roundup_power2_divisions:8", False))


def parts(text: str) -> dict[str, str]:
    """ "a:1,b:[x:1,y:2]" by key."""
    found: dict[str, str] = {}
    depth, start = 0, 0
    for position, character in enumerate(text + ","):
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            key, _, value = text[start:position].partition(":")
            if key.strip():
                found[key.strip()] = value.strip()
            start = position + 1
    return found


def current(environment: Mapping[str, str]) -> str:
    """The user's own settings, "" without any."""
    for name in (VARIABLE, *_OLD_VARIABLES[:1]):
        if environment.get(name):
            return environment[name]
    return ""


def candidates(environment: Mapping[str, str], those: tuple[tuple[str, bool], ...] = CANDIDATES) -> list[str]:
    """Values of the variable to try: the user's settings with one changed, leaving out what is set already."""
    own = parts(current(environment))
    tried = []
    for candidate, alone in those:
        (key, value), *_ = parts(candidate).items()
        if own.get(key, "").lower() == value.lower():
            continue
        if own.get("backend", "native").lower() != "native" and not alone:
            continue  # another back end has none of these
        merged = {key: value} if alone else {**own, key: value}
        tried.append(",".join(f"{name}:{setting}" for name, setting in merged.items()))
    return tried


def with_setting(environment: Mapping[str, str], value: str) -> dict[str, str]:
    """The environment in which the program runs with this setting."""
    changed = {name: text for name, text in environment.items() if name not in _OLD_VARIABLES}
    changed[VARIABLE] = value
    return changed
