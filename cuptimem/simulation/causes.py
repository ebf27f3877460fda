"""Why a simulated program failed or never ended: what it asked for that a simulated device has not, and what to do."""

import re
import signal
from dataclasses import dataclass

from cuptimem.output.text.words import place
from cuptimem.report.model import HostRead
from cuptimem.report.stacks import user_frame
from cuptimem.simulation.facts import Facts, Raised

_FAKE_GROUP = (
    "give one rank torch's fake process group: from torch.testing._internal.distributed.fake_pg import FakeStore; "
    "torch.distributed.init_process_group('fake', rank=0, world_size=N, store=FakeStore()). FSDP2 and "
    "DistributedDataParallel run on it; DataParallel, and NCCL with one rank, run as they are"
)
_FAKE_HOOK = (
    "leave out the hook of DistributedDataParallel, and torch.compile of its wrapper: on the fake process group a "
    "collective has no result that a hook could read"
)
_IPC = (
    "GPU tensors cannot be handed to another process here: let workers return CPU tensors and move them in the parent"
)

_OWN_RUNTIME = (
    "that library has a CUDA runtime of its own, which finds no device here, so it may take the CPU: what it takes of "
    "a real device is not counted"
)

# What the device noted as asked for (part of its name, lower case), and what to do about it.
_REFUSED: tuple[tuple[str, str], ...] = (
    ("nccl", _FAKE_GROUP),
    ("ipc", _IPC),
    ("peer", "use one device, or leave the copy between devices out"),
    ("nvshmem", "symmetric memory is not simulated; leave it out for this question"),
    ("cugetexporttable", _OWN_RUNTIME),
    ("cufile", "GPUDirect storage is not simulated; load through host memory for this question"),
)

# PyTorch's messages (part of an exception's message, lower case) where the device could not note it.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    ("nccl error", "NCCL", _FAKE_GROUP),
    ("ncclunhandled", "NCCL", _FAKE_GROUP),
    ("ncclinternal", "NCCL", _FAKE_GROUP),
    ("distbackenderror", "NCCL", _FAKE_GROUP),
    ("ddp_comm_hooks", "a result of the fake process group", _FAKE_HOOK),
    ("expected the hook result is either", "a result of the fake process group", _FAKE_HOOK),
    ("cudaipc", "CUDA IPC", _IPC),
    ("ipc handle", "CUDA IPC", _IPC),
)
_MISSING = re.compile(r"undefined symbol: (\w+)")


@dataclass(frozen=True, slots=True)
class Cause:
    """One line what happened, and one what to do ("" where that is unknown)."""

    text: str
    hint: str = ""


def of_failure(facts: Facts) -> Cause:
    """Why a program that did not run out of memory failed."""
    if facts.run.signal is not None:
        return _of_signal(facts)
    chain = facts.chain or ()
    raised = _telling(chain)
    unsupported = _unsupported(facts, chain)
    if unsupported is not None:
        return unsupported
    if facts.limited or facts.limits:
        return Cause(
            f"this machine refused {facts.limited or sum(note.count for note in facts.limits)} requests for address "
            f"space{_names(facts.limits)}, not the simulated device",
            "raise the limit (ulimit -v unlimited) or simulate a smaller device",
        )
    if raised is None:
        return Cause(f"the program ended with exit code {facts.run.exit_code}")
    at = f" at {place(raised.at)}" if raised.at is not None else ""
    read = _read_at(facts, raised)
    if read is not None:
        return Cause(
            f"{raised.line}{at}: the program checks a value that no kernel has computed (it read zeros)",
            "leave this check out for the simulation, or give it a value that does not come from the device",
        )
    assumed = next(
        (one for one in facts.assumptions if raised.at and (one.file, one.line) == (raised.at.file, raised.at.line)),
        None,
    )
    if assumed is not None:
        return Cause(
            f"{raised.line}{at}: the size that {assumed.operator} gives there is assumed ({assumed.fraction:g})",
            f"say what it is: --assume {assumed.operator}=...",
        )
    if facts.undescribed:
        return Cause(
            f"{raised.line}{at}; entry points that are not described were called before:{_names(facts.undescribed)}",
            "report their names, so that they can be described",
        )
    hint = ""
    if facts.reads:
        hint = f"it read {facts.reads} values that no kernel has computed; the lines are below"
    return Cause(f"{raised.line}{at}", hint)


def _telling(chain: tuple[Raised, ...]) -> Raised | None:
    """The exception to show: the one that ended the program."""
    return chain[0] if chain else None


def _of_signal(facts: Facts) -> Cause:
    number = facts.run.signal or 0
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    where = crashed_at(facts.run.crash)
    at = f" at {where}" if where else ""
    if number == signal.SIGKILL:
        return Cause(
            "the program was killed (SIGKILL), perhaps by the system because this machine's own memory ran out",
            "kernels cost nothing here, but what lies in host memory does; look at the summary of its trace",
        )
    hint = "if it does not crash on a real GPU, this is a bug of the simulated device: report it with this line"
    if facts.undescribed:
        hint += f" and the entry points called before:{_names(facts.undescribed)}"
    if number == signal.SIGTERM:
        hint = ""
    return Cause(f"the program was ended by {name}{at}", hint)


def crashed_at(crash: str) -> str:
    """file:line of the innermost frame that faulthandler wrote, the user's own where there is one."""
    frames = []
    for line in crash.splitlines():
        line = line.strip()
        if line.startswith('File "') and ", line " in line:
            file, _, rest = line[6:].partition('", line ')
            number = rest.split(" ", 1)[0]
            if number.isdecimal():
                frames.append((file, int(number)))
    if not frames:
        return ""
    from cuptimem.report.stacks import Frame

    frame = user_frame(tuple(Frame(file, "", number) for file, number in frames))
    return place(frame) if frame is not None else ""


def of_refused(facts: Facts) -> Cause | None:
    """What it asked for that is not simulated, as the device noted it."""
    for note in facts.unsupported:
        if note.name.lower().startswith("cupti"):
            continue  # a profiler's wishes: no memory hangs on them
        hint = next((hint for word, hint in _REFUSED if word in note.name.lower()), "leave it out for this question")
        return Cause(f"the program uses {note.name}, which is not simulated", hint)
    return None


def _unsupported(facts: Facts, chain: tuple[Raised, ...]) -> Cause | None:
    asked = of_refused(facts)
    if asked is not None:
        return Cause(f"{asked.text}{_why(chain)}", asked.hint)
    for raised in chain:
        text = f"{raised.type} {raised.message}".lower()
        for word, name, hint in _MESSAGES:
            if word in text:
                return Cause(f"the program uses {name}, which is not simulated{_why(chain)}", hint)
        missing = _MISSING.search(raised.message)
        if missing is not None and "ImportError" in raised.bases:
            return Cause(
                f"a library wants {missing[1]}, which the simulated device does not have{_why(chain)}",
                "report its name, so that it can be described",
            )
    return None


def _why(chain: tuple[Raised, ...]) -> str:
    raised = _telling(chain)
    if raised is None:
        return ""
    at = f" at {place(raised.at)}" if raised.at is not None else ""
    return f" ({raised.line[:120]}{at})"


def _read_at(facts: Facts, raised: Raised) -> HostRead | None:
    """A host read on the line that failed, or in its function where the exception is a check's."""
    if raised.at is None:
        return None
    check = any(
        base in ("AssertionError", "ValueError", "FloatingPointError", "ZeroDivisionError", "IndexError")
        for base in raised.bases
    )
    for read in facts.host_reads:
        frame = read.frame
        if frame is None or frame.file != raised.at.file:
            continue
        if frame.line == raised.at.line or (check and frame.function == raised.at.function):
            return read
    return None


def of_timeout(facts: Facts, timeout: float) -> Cause:
    """What a program was doing when its time was up."""
    where = crashed_at(facts.run.where)
    at = f" at {where}" if where else ""
    waited = max(facts.open_reads, key=lambda read: read.count, default=None)
    steps = len({step.index for step in facts.report.steps.ended}) if facts.report is not None else 0
    text = f"the program was still running{at} after {timeout:g} s"
    if steps:
        text += f", in step {steps - 1}"
    if waited is not None and waited.frame is not None and waited.count >= 100:
        inner = waited.library is not None and waited.library != waited.frame
        within = f" (in {place(waited.library)})" if inner and waited.library is not None else ""
        return Cause(
            f"{text}; {place(waited.frame)}{within} read a value that no kernel has computed {waited.count} times: a "
            "loop that waits for it ends by a bound of its own alone",
            "give that loop a bound, or a smaller one (of tokens, rounds or steps), or more time with --timeout",
        )
    return Cause(text, "run fewer steps (a peak shows in the first ones), or give it more time with --timeout")


def _names(notes: tuple[object, ...]) -> str:
    names = [str(getattr(note, "name", note)) for note in notes]
    return (" " + ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")) if names else ""
