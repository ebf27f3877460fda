"""A run for TensorBoard out of a trace: its scalars, and what the Memory page shows."""

import os
from typing import Any

from cuptimem.report.load import analyze
from cuptimem.tensorboard import handler, scalars


def write(trace: str | os.PathLike[str], path: str | os.PathLike[str], options: Any = None) -> None:
    """Makes a run of a trace in the folder `path`; of a rank, in a subfolder. What an earlier export of the same trace
    left there is replaced. Raises Error, one line."""
    handler.require_tensorboard()
    asked = {name: getattr(options, name) for name in ("window", "code", "progress") if hasattr(options, name)}
    report = analyze(os.fspath(trace), **asked)
    folder = handler.run_folder(os.fspath(path), report)
    name = f"{handler.worker_name(report)}.{report.start_realtime_ns}"
    events = os.path.join(folder, scalars.file_name(name))
    if os.path.lexists(events):
        os.unlink(events)
    handler.write(report, folder, name, name, 0)
