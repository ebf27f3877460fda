"""cuptimem: the memory profiler for PyTorch.

    with cuptimem.profile("run.cmem") as prof:
        train()
    print(prof.report)

    report = cuptimem.open("run.cmem")      # later, elsewhere, without torch

Importing this package loads neither torch nor the analysis; each name below is loaded when first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing would be loaded into every profiled program

if TYPE_CHECKING:
    from typing import Any

    from cuptimem import integrations as integrations
    from cuptimem.advice import estimate as estimate
    from cuptimem.distributed import gather as gather
    from cuptimem.distributed import ranks as ranks
    from cuptimem.distributed.comparison import Ranks as Ranks
    from cuptimem.errors import Error as Error
    from cuptimem.integrations.plain import log as log
    from cuptimem.record.on_demand import OnDemand as OnDemand
    from cuptimem.record.on_demand import Window as Window
    from cuptimem.record.on_demand import on_demand as on_demand
    from cuptimem.record.profiler import Action as Action
    from cuptimem.record.profiler import Profile as Profile
    from cuptimem.record.profiler import profile as profile
    from cuptimem.record.profiler import schedule as schedule
    from cuptimem.report.fragmentation import Fragmentation as Fragmentation
    from cuptimem.report.kernels import Kernels as Kernels
    from cuptimem.report.leaks import Leak as Leak
    from cuptimem.report.leaks import LeakPart as LeakPart
    from cuptimem.report.leaks import Leaks as Leaks
    from cuptimem.report.ledger import DriverLevel as DriverLevel
    from cuptimem.report.ledger import Ledger as Ledger
    from cuptimem.report.ledger import LedgerLine as LedgerLine
    from cuptimem.report.load import open as open
    from cuptimem.report.model import Backward as Backward
    from cuptimem.report.model import Clock as Clock
    from cuptimem.report.model import ClockChange as ClockChange
    from cuptimem.report.model import Contents as Contents
    from cuptimem.report.model import Contributor as Contributor
    from cuptimem.report.model import Device as Device
    from cuptimem.report.model import HostRead as HostRead
    from cuptimem.report.model import Line as Line
    from cuptimem.report.model import Lost as Lost
    from cuptimem.report.model import OutOfMemory as OutOfMemory
    from cuptimem.report.model import Peak as Peak
    from cuptimem.report.model import Report as Report
    from cuptimem.report.model import ResidentPoint as ResidentPoint
    from cuptimem.report.model import Step as Step
    from cuptimem.report.model import Steps as Steps
    from cuptimem.report.model import Survivor as Survivor
    from cuptimem.report.model import TimelinePoint as TimelinePoint
    from cuptimem.report.stacks import Frame as Frame
    from cuptimem.simulation.api import simulate as simulate
    from cuptimem.simulation.result import Simulation as Simulation
    from cuptimem.tensorboard.handler import tensorboard_handler as tensorboard_handler

_HOME = {
    "Error": "errors",
    "estimate": "advice",
    "integrations": "integrations",
    "log": "integrations.plain",
    "OnDemand": "record.on_demand",
    "Window": "record.on_demand",
    "on_demand": "record.on_demand",
    "Action": "record.profiler",
    "Profile": "record.profiler",
    "profile": "record.profiler",
    "schedule": "record.profiler",
    "Backward": "report.model",
    "Clock": "report.model",
    "ClockChange": "report.model",
    "Contents": "report.model",
    "Contributor": "report.model",
    "Device": "report.model",
    "DriverLevel": "report.ledger",
    "Fragmentation": "report.fragmentation",
    "Frame": "report.stacks",
    "HostRead": "report.model",
    "Kernels": "report.kernels",
    "Leak": "report.leaks",
    "LeakPart": "report.leaks",
    "Leaks": "report.leaks",
    "Ledger": "report.ledger",
    "LedgerLine": "report.ledger",
    "Line": "report.model",
    "Lost": "report.model",
    "OutOfMemory": "report.model",
    "Peak": "report.model",
    "Ranks": "distributed.comparison",
    "Report": "report.model",
    "Simulation": "simulation.result",
    "ResidentPoint": "report.model",
    "Step": "report.model",
    "Steps": "report.model",
    "Survivor": "report.model",
    "TimelinePoint": "report.model",
    "gather": "distributed",
    "open": "report.load",
    "ranks": "distributed",
    "simulate": "simulation.api",
    "tensorboard_handler": "tensorboard.handler",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> "Any":
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'cuptimem' has no attribute {name!r}")
    module = __import__(f"cuptimem.{home}", fromlist=[name])
    value = module if home == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: "Any") -> None:
    """%load_ext cuptimem: the cell magic %%cuptimem."""
    from cuptimem.notebook import magic

    magic.load(shell)


def unload_ipython_extension(shell: "Any") -> None:
    """%unload_ext cuptimem"""
    from cuptimem.notebook import magic

    magic.unload(shell)
