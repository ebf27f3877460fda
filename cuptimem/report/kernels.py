"""Kernels beside the blocks that were alive around them, as plain frozen data. Times are nanoseconds, sizes bytes."""

import re
from dataclasses import dataclass

from cuptimem.report.brief import Brief, name
from cuptimem.report.stacks import Frame, Stack, user_frame
from cuptimem.words import duration


@dataclass(frozen=True, slots=True, repr=False)
class KernelTime(Brief):
    """All runs of one kernel."""

    name: str  # as the compiler wrote it, mangled
    count: int
    ns: int

    @property
    def short(self) -> str:
        """Its own name without namespaces, arguments and types."""
        return short_name(self.name)


@dataclass(frozen=True, slots=True, repr=False)
class KernelUse(Brief):
    """Blocks of one stack that were there long before any work they can have been for ran, or long after it.

    Which stream a block is used on is not told, so any work of its device counts: the first that was launched after
    the block was allocated, the last before it was freed.
    """

    bytes: int
    count: int
    wait_ns: int  # the longest
    kernel: str  # that this one was for, or was since; mangled, "" where it is unknown
    stack: Stack
    stack_lost: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)


@dataclass(frozen=True, slots=True, repr=False)
class DeferredFrees(Brief):
    """Freed blocks of one stack that could not be given to anybody else yet, because of record_stream."""

    bytes: int
    count: int
    stream: int  # its handle: the one that had not come so far
    stack: Stack
    stack_lost: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)


@dataclass(frozen=True, slots=True, repr=False)
class Kernels(Brief):
    """Work on the device in the same time as the memory. Only where it was recorded (--kernels)."""

    launches: int
    ran: int
    dropped: int  # launches without a record of their work, though there were records by then
    unrecorded: int  # launches before the first record, or before a compacted stretch: what became of them is unknown
    unlaunched: int  # pieces of work, among `ran`, whose launch was not seen
    unjudged: int  # blocks in neither list, because too many waited for records
    wait_least_ns: int  # what "long" is in `early` and `late`
    ns: int  # of all kernels and copies together
    names_total: int  # different ones, of which `names` has the first
    names: tuple[KernelTime, ...]  # the most time first, at most fifty
    early: tuple[KernelUse, ...]  # the most bytes first, at most fifty, as are the next two
    late: tuple[KernelUse, ...]
    deferred_frees: tuple[DeferredFrees, ...]

    def _summary(self) -> str:
        most = f", most in {name(self.names[0].short)}" if self.names else ""
        return f"{self.launches} launched, {self.ran} ran for {duration(self.ns)}{most}"


# -- names ---------------------------------------------------------------------------------------------------------

# What stands between identifiers in a mangled name's template arguments: literals, substitutions, parameters. The
# digits in them are no identifier's length.
_BETWEEN = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|S[abdiost]|T\d*_|[A-Za-z_]")


def _identifier(name: str, at: int) -> tuple[str, int]:
    """The identifier with its length before it that begins here, and where it ends; "" if none does."""
    digits = re.compile(r"[1-9][0-9]{0,8}").match(name, at)
    if digits is None:
        return "", at
    end = digits.end() + int(digits.group())
    return (name[digits.end() : end], end) if end <= len(name) else ("", at)


def _last_of_run(name: str, at: int) -> tuple[str, int]:
    """The last of the identifiers that follow each other from here: of at::native::f it is f."""
    last = ""
    while True:
        one, at = _identifier(name, at)
        if not one:
            return last, at
        last = one


def short_name(name: str) -> str:
    """A kernel's own name: vectorized_elementwise_kernel<FillFunctor> of all that at::native's mangled one says.

    Of the template's arguments the first named one stays, which tells many kernels of one name apart. A name that is
    not mangled loses its arguments; one that cannot be read, or is words ("copy host to device"), stays as it is.
    """
    if name == "set":
        return "memset"
    if not name.startswith("_Z"):
        if "(" not in name and "<" not in name:
            return name  # of C, or no kernel: copy host to device
        plain = re.sub(r"<.*>|\(.*\)", "", name).split()
        return plain[-1].rpartition("::")[2] if plain else name
    start = re.compile(r"_ZL?N?[KVr]*L?").match(name)
    own, at = _last_of_run(name, start.end() if start is not None else 2)
    if not own:
        return name
    if name[at : at + 1] != "I":
        return own
    at += 1
    while at < len(name):
        argument, end = _last_of_run(name, at)
        if argument:
            return f"{own}<{argument}>"
        between = _BETWEEN.match(name, end)
        if between is None:
            return own
        at = between.end()
    return own
