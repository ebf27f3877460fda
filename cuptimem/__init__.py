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

    from cuptimem.errors import Error as Error
    from cuptimem.fragmentation import Fragmentation as Fragmentation
    from cuptimem.kernels import Kernels as Kernels
    from cuptimem.leaks import Leak as Leak
    from cuptimem.leaks import LeakPart as LeakPart
    from cuptimem.leaks import Leaks as Leaks
    from cuptimem.ledger import DriverLevel as DriverLevel
    from cuptimem.ledger import Ledger as Ledger
    from cuptimem.ledger import LedgerLine as LedgerLine
    from cuptimem.profiler import Action as Action
    from cuptimem.profiler import Profile as Profile
    from cuptimem.profiler import profile as profile
    from cuptimem.profiler import schedule as schedule
    from cuptimem.report import Backward as Backward
    from cuptimem.report import Clock as Clock
    from cuptimem.report import ClockChange as ClockChange
    from cuptimem.report import Contents as Contents
    from cuptimem.report import Contributor as Contributor
    from cuptimem.report import Device as Device
    from cuptimem.report import HostRead as HostRead
    from cuptimem.report import Line as Line
    from cuptimem.report import Lost as Lost
    from cuptimem.report import OutOfMemory as OutOfMemory
    from cuptimem.report import Peak as Peak
    from cuptimem.report import Report as Report
    from cuptimem.report import ResidentPoint as ResidentPoint
    from cuptimem.report import Step as Step
    from cuptimem.report import Steps as Steps
    from cuptimem.report import Survivor as Survivor
    from cuptimem.report import TimelinePoint as TimelinePoint
    from cuptimem.report import open as open
    from cuptimem.simulation.api import simulate as simulate
    from cuptimem.simulation.result import Simulation as Simulation
    from cuptimem.stacks import Frame as Frame
    from cuptimem.tensorboard.handler import tensorboard_handler as tensorboard_handler

_HOME = {
    "Error": "errors",
    "Action": "profiler",
    "Profile": "profiler",
    "profile": "profiler",
    "schedule": "profiler",
    "Backward": "report",
    "Clock": "report",
    "ClockChange": "report",
    "Contents": "report",
    "Contributor": "report",
    "Device": "report",
    "DriverLevel": "ledger",
    "Fragmentation": "fragmentation",
    "Frame": "stacks",
    "HostRead": "report",
    "Kernels": "kernels",
    "Leak": "leaks",
    "LeakPart": "leaks",
    "Leaks": "leaks",
    "Ledger": "ledger",
    "LedgerLine": "ledger",
    "Line": "report",
    "Lost": "report",
    "OutOfMemory": "report",
    "Peak": "report",
    "Report": "report",
    "Simulation": "simulation.result",
    "ResidentPoint": "report",
    "Step": "report",
    "Steps": "report",
    "Survivor": "report",
    "TimelinePoint": "report",
    "open": "report",
    "simulate": "simulation.api",
    "tensorboard_handler": "tensorboard.handler",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> "Any":
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'cuptimem' has no attribute {name!r}")
    module = __import__(f"cuptimem.{home}", fromlist=[name])
    value = getattr(module, name)
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
