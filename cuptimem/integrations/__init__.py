"""One line in a trainer: a file per framework, each loaded when its name is first used (docs/trainers.md)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuptimem.integrations.accelerate import AccelerateTracker as AccelerateTracker
    from cuptimem.integrations.lightning import LightningCallback as LightningCallback
    from cuptimem.integrations.plain import Log as Log
    from cuptimem.integrations.plain import log as log
    from cuptimem.integrations.transformers import TransformersCallback as TransformersCallback

_HOME = {
    "AccelerateTracker": "accelerate",
    "LightningCallback": "lightning",
    "Log": "plain",
    "TransformersCallback": "transformers",
    "log": "plain",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'cuptimem.integrations' has no attribute {name!r}")
    module = __import__(f"cuptimem.integrations.{home}", fromlist=[name])
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
