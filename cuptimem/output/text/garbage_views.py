"""What only reference cycles hold until Python's garbage collector runs: in words, for each view that shows memory."""

from cuptimem.output.text.blocks import Block, Text
from cuptimem.output.text.ledger_views import prose
from cuptimem.output.text.words import place, plural, share, size
from cuptimem.report.cycles import is_much
from cuptimem.report.model import Contents, Device, Line, OutOfMemory, Report

_REMEDY = "Break the cycles (weakref), or call gc.collect() every few steps."


def at_peak(report: Report, contents: Contents) -> list[Block]:
    """What collections behind a device's peak freed of it; of the moment of the last refusal all is known."""
    garbage = report.collected_at_peak(contents)
    ooms = report.device(contents.device).ooms
    known = ooms and ooms[-1].allocated == contents.bytes and report.device(contents.device).peak is contents
    if known and is_much(report.collected_after(ooms[-1]), contents.bytes):
        return at_refusal(report, ooms[-1])
    if garbage is None:
        return []
    part = f"{size(garbage.at_peak)} ({share(garbage.at_peak, contents.bytes)})"
    return prose(
        f"of these {part} only Python's garbage collector could free, and did later: "
        f"{_cycles(report, contents.device, garbage.line)}. {_REMEDY}"
    )


def at_refusal(report: Report, oom: OutOfMemory) -> list[Block]:
    """What a collection behind the last refusal freed, if that is this one."""
    freed = report.collected_after(oom)
    if freed == 0:
        return []
    garbage = report.device(oom.device).garbage
    made = _cycles(report, oom.device, garbage.made if garbage is not None else None)
    enough = "; gc.collect() before it would have made room" if freed >= oom.requested else ""
    return prose(
        f"{size(freed)} ({share(freed, oom.allocated)}) of what was alive was garbage: only reference cycles held it "
        f"({made}), and a collection behind the failure freed it{enough}. {_REMEDY}"
    )


def on_pages(report: Report) -> list[Block]:
    """The same for each device's peak and each refusal, in paragraphs that say themselves what they are about."""
    blocks: list[Block] = []
    for device in report.devices:
        moments = [
            (f"At the last refused request on {device.name}", at_refusal(report, oom)) for oom in device.ooms[-1:]
        ]
        if moments == [] or not moments[0][1]:
            moments = [(f"At the peak on {device.name}, {size(device.peak.bytes)}", at_peak(report, device.peak))]
        blocks += [
            Text(f"{moment}: {one.text.strip()}") for moment, said in moments for one in said if isinstance(one, Text)
        ]
    return blocks


def refused(report: Report) -> str:
    """What waited for the collector when refused memory ended the program, where that is much."""
    for device in report.devices:
        waited = report.collected_after(device.ooms[-1]) if device.ooms else 0
        if waited and is_much(waited, device.ooms[-1].allocated):
            part = share(waited, device.ooms[-1].allocated)
            return f"but {size(waited)} ({part}) on {device.name} was garbage when memory was refused: peak --at oom"
    return ""


def sawtooth(report: Report, device: Device) -> str:
    """What waits for Python's collector, where it is much: it grows until that runs."""
    one = device.garbage
    if one is None:
        return ""
    freed = f"{plural(one.collections, 'collection')} freed {size(one.freed)}"
    cycles = _cycles(report, device.name, one.made)
    return f"but garbage grew to {size(one.most)} on {device.name} ({freed}): {cycles}"


def _cycles(report: Report, device: str, line: Line | None) -> str:
    """cycles of Episode and Env, most of it made at rl.py:31"""
    made = report.cycles(device, line)
    said = f"cycles of {made}" if made else "reference cycles"
    return said if line is None or line.frame is None else f"{said}, most of it made at {place(line.frame)}"
