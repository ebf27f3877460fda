"""python -m cuptimem.cli.answer TRACE: a recording in four lines, for the end of `cuptimem run`.

A process of its own. The kernel ends it when it has used CPU_SECONDS, when SECONDS have passed (a disk may be slow), or
where memory runs out: then nothing is printed.
"""

import resource
import signal
import sys
from collections.abc import Sequence

from cuptimem.output.text import leak_views
from cuptimem.output.text.account_views import short
from cuptimem.output.text.blocks import Text
from cuptimem.output.text.part_views import in_a_line
from cuptimem.output.text.words import function, plural, share, size, where
from cuptimem.printable import printable
from cuptimem.report.load import analyze
from cuptimem.report.model import Contents, Device, Report

CPU_SECONDS = 2
SECONDS = 20
_DEVICES = 3
_CATEGORIES = 2
_LINES = 2
_PARTS = 2  # of a line
_WIDTH = 160  # characters: parts are left out of a line that would be longer
_MOST = 1000  # bytes: four lines of any trace fit into a pipe that is one page large; no usual one is cut


def lines(report: Report) -> list[str]:
    """The peaks and their categories, the two largest lines, the leaks; nothing if nothing was allocated."""
    devices = [device for device in report.devices if device.peak.bytes > 0]
    if not devices:
        return []
    contents = report.contents("peak", devices[0].name)
    return [_peaks(devices, contents), *_largest(contents), leak_views.line(report)]


def _largest(contents: Contents) -> list[str]:
    """The lines of the user's that have the most, with what libraries did below them."""
    found = []
    for line in contents.lines[:_LINES]:
        name = f"{where(line)} {function(line.frame)}".rstrip()
        head = f"  {size(line.bytes):>10} {share(line.bytes, contents.bytes):>5}  {name}"
        parts = (in_a_line(line, contents, most) for most in range(_PARTS, 0, -1))
        fitting = (f"{head}, {part}" for part in parts if part and len(head) + len(part) + 2 <= _WIDTH)
        found.append(next(fitting, head))
    return found


def _peaks(devices: Sequence[Device], contents: Contents) -> str:
    sizes = [f"{size(device.peak.bytes)} on {device.name}" for device in devices[:_DEVICES]]
    if len(devices) > _DEVICES:
        sizes.append(f"others on {plural(len(devices) - _DEVICES, 'device')}")
    step = f" in step {contents.step}" if contents.step is not None and len(devices) == 1 else ""
    prose = " ".join(block.text.strip() for block in short(contents) if isinstance(block, Text))
    categories = ", ".join(prose.split(" · ")[:_CATEGORIES]) if prose else ""
    of = f" ({devices[0].name})" if len(devices) > 1 else ""
    return f"peak {', '.join(sizes)}{step}" + (f"; most of it{of}: {categories}" if categories else "")


def shown(line: str) -> str:
    text = printable(line)
    whole = text.encode("utf-8", "backslashreplace")
    return text if len(whole) <= _MOST else whole[: _MOST - 3].decode("utf-8", "ignore") + "…"


def main() -> int:
    """Prints the lines; 1 if there are none."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # the program still has its memory: the kernel is to end this process, not that one
    except OSError:  # a sandbox without /proc; the lines are worth the risk there, for they need little memory
        pass
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the program may ignore it, or block it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(SECONDS)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    bound = CPU_SECONDS if most == resource.RLIM_INFINITY else min(CPU_SECONDS, most)
    resource.setrlimit(resource.RLIMIT_CPU, (bound, bound))
    text = "".join(f"cuptimem: {shown(line)}\n" for line in lines(analyze(sys.argv[1])))
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    return 0 if text else 1


if __name__ == "__main__":
    sys.exit(main())
