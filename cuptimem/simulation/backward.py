"""What a call of torch.autograd.backward() or grad() asks for; Tensor.backward() is one, too."""

from collections.abc import Mapping, Sequence
from typing import Any

PASSES = ("backward", "grad")  # of torch.autograd
_PLACES = {"backward": {"retain_graph": 2, "create_graph": 3}, "grad": {"retain_graph": 3, "create_graph": 4}}


def asks(name: str, what: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether it asks for that: what is "retain_graph" or "create_graph"."""
    place = _PLACES[name][what]
    return bool(arguments[place] if place < len(arguments) else keywords.get(what))


def keeps_graph(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether it keeps the graph that it runs, and makes none of itself, which would need that."""
    asked = (asks(name, what, arguments, keywords) for what in ("retain_graph", "create_graph"))
    return tuple(asked) == (True, False)


def without_graph(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments and keywords of a call that keeps none."""
    place = _PLACES[name]["retain_graph"]
    if place < len(arguments):
        return [*arguments[:place], False, *arguments[place + 1 :]], dict(keywords)
    return list(arguments), {**keywords, "retain_graph": False}
