"""The changes that can be tried on a program from outside, by name.

A change is written NAME or NAME=VALUE, several together as NAME+NAME=VALUE. This module imports no torch: the others
of this package are imported in the process of a try alone (try_program.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from cuptimem.errors import Error

if TYPE_CHECKING:
    from cuptimem.simulation.changes.change import Change


# Behind the value of another batch: numbers of the DataLoaders that it is for, in the order of their making, or *.
LOADERS = ";loaders="
Operator = tuple[str, int, str, str]  # the file and line that call it, its name, the operand: self or other


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the changes. value: what it takes behind "=", "" for nothing; default: where that is left out."""

    home: str  # the module with the class
    name: str  # the class
    value: str = ""
    default: str | None = ""  # None: there is none
    is_free: bool = False  # it costs nothing: neither time nor numerics
    of: str = "training"  # where it acts: "training", "evaluation", or "" for both
    replaces: str = ""  # two changes that replace the same thing do not go together
    cost: str = ""  # of what a try says itself to write


KINDS: dict[str, Kind] = {
    "zero_grad_late": Kind("gradients", "ZeroGradLate", is_free=True),
    "set_to_none": Kind("gradients", "SetToNone", is_free=True),
    "no_grad": Kind("evaluation", "NoGrad", is_free=True, of="evaluation", cost="none"),
    "retain_graph": Kind("graphs", "RetainGraph", is_free=True),
    "freeze": Kind(
        "frozen", "Freeze", cost="care: these steps neither train them nor read their gradients, later ones may"
    ),
    "release": Kind("release", "Release", is_free=True, of=""),
    "clone_view": Kind("views", "CloneView", is_free=True, of=""),
    "in_place": Kind("activations", "InPlace", "names of modules such as features.*.act", "*", of=""),
    "fused_attention": Kind("attention", "FusedAttention", is_free=True, of=""),
    "fused": Kind("optimizers", "Fused", is_free=True, replaces="the optimizer's temporaries"),
    "no_foreach": Kind("optimizers", "NoForeach", replaces="the optimizer's temporaries"),
    "collect": Kind("garbage", "Collect", is_free=True),
    "keep_evaluation": Kind("evaluation", "KeepEvaluation", is_free=True, of="evaluation"),
    "checkpoint": Kind("checkpoints", "Checkpoint", "names of modules such as blocks.*"),
    "autocast": Kind("precision", "Autocast", "bf16 or fp16", "bf16", of="", cost="numerics: 16 bits"),
    "sgd": Kind("optimizers", "Sgd", replaces="the optimizer"),
    "adam8bit": Kind("optimizers", "Adam8bit", replaces="the optimizer"),
    "step_in_backward": Kind("optimizers", "StepInBackward"),
    "accumulate": Kind("batches", "Accumulate", "a number of parts of each batch", "2", replaces="the batch"),
    "batch": Kind("batches", "Batch", "a batch size, or NEW:OLD", None, replaces="the batch"),
    "chunked_loss": Kind("losses", "ChunkedLoss", "a number of parts", "8", cost="the loss's forward again"),
    "offload": Kind("activations", "Offload"),
    "expandable": Kind("allocator", "Expandable", of="", cost="none"),
}


def usual(stepped: bool) -> list[str]:
    """The changes that are tried where none is asked for: of a program whose optimizers step, or of one without."""
    here = "training" if stepped else "evaluation"
    return [name for name, kind in KINDS.items() if kind.default is not None and kind.of in (here, "")]


def need_evaluation(tried: Sequence[str]) -> bool:
    """Whether one of the changes acts where a few steps do not come to."""
    return any(KINDS[name].of == "evaluation" for text in tried for name, _ in parse(text))


def parse(text: str) -> list[tuple[str, str]]:
    """The names and values of a change or a combination. Raises Error for one that there is not."""
    found: list[tuple[str, str]] = []
    replaced: dict[str, str] = {}
    for part in text.split("+"):
        name, equals, value = part.strip().partition("=")
        kind = KINDS.get(name)
        if kind is None:
            raise Error(f"no change {name!r} can be tried; there are {', '.join(KINDS)}")
        if equals and not kind.value:
            raise Error(f"{name} takes no value, and {part} has one")
        if not value and kind.default is None:
            raise Error(f"{name} takes {kind.value}: {name}=...")
        _check(name, value)
        if name in (one for one, _ in found):
            raise Error(f"{text} has {name} twice")
        if kind.replaces and kind.replaces in replaced:
            raise Error(f"{replaced[kind.replaces]} and {name} do not go together: both replace {kind.replaces}")
        if kind.replaces:
            replaced[kind.replaces] = name
        found.append((name, value or kind.default or ""))
    return found


def is_free(text: str) -> bool:
    """Whether a change, or each of a combination, costs neither time nor numerics."""
    return all(KINDS[name].is_free for name, _ in parse(text))


def _check(name: str, value: str) -> None:
    least = {"accumulate": 2, "chunked_loss": 2, "batch": 1}.get(name)
    numbers = value.split(":", 1) if name == "batch" else [value]
    are_known = all(one.isascii() and one.isdecimal() for one in numbers)
    if value and least is not None and not (are_known and min(map(int, numbers)) >= least):
        raise Error(f"{name} takes {KINDS[name].value}, at least {least}, not {value!r}")
    if value and name == "autocast" and value not in ("bf16", "fp16"):
        raise Error(f"autocast takes bf16 or fp16, not {value!r}")


def install(parts: Sequence[tuple[str, str]], device: str, operators: Sequence[Operator] = ()) -> "list[Change]":
    """Puts the changes into this process, in which the program begins next. device: "cuda" or "cpu". operators: those
    that in_place is about, in the place of modules."""
    made = []
    for name, value in parts:
        kind = KINDS[name]
        home = import_module(f"{__name__}.{kind.home}")
        if name == "in_place" and operators:
            made.append(home.OperatorsInPlace(name, operators, device))
        else:
            made.append(getattr(home, kind.name)(name, value, device))
    for change in made:
        change.install()
    return made
