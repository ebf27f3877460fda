"""What the verbs that read a trace share: their arguments, the progress bar, the choice of a device."""

import argparse
import os

from cuptimem.report import Peak, Report, analyze
from cuptimem.reporters import terminal


def parser(verb: str, description: str) -> argparse.ArgumentParser:
    """A parser with FILE and --json."""
    result = argparse.ArgumentParser(prog=f"cuptimem {verb}", description=description, allow_abbrev=False)
    result.add_argument("file", metavar="FILE", help="a trace that `cuptimem run` or cuptimem.profile wrote")
    result.add_argument("--json", action="store_true", help="one JSON object (docs/json.md) instead of text")
    return result


def count(text: str) -> int:
    """An argument that counts from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"at least 1, not {value}")
    return value


def index(text: str) -> int:
    """An argument that counts from 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"at least 0, not {value}")
    return value


def read(path: str, step: int | None = None, ledger_at_ns: int | None = None) -> Report:
    """Opens a trace, with a bar on standard error when it takes long."""
    with terminal.progress(f"reading {os.path.basename(path)}") as tell:
        return analyze(path, step=step, progress=tell, ledger_at_ns=ledger_at_ns)


def chosen_peaks(report: Report, device: str | None) -> tuple[Peak, ...]:
    """The peaks to show: of one device or of all that were used, which may be none."""
    if device is not None:
        return (report.device(device).peak,)
    return tuple(peak for peak in report.peaks if peak.bytes > 0)
