"""Compares two runs of a program with different outcomes of reads, and words the result."""

from cuptimem.output.text.words import place
from cuptimem.simulation import cards
from cuptimem.simulation.facts import Facts
from cuptimem.simulation.result import UnknownRead

# Names of such runs, for the folder and for people.
BRANCHES = "flags and comparisons the other way"
INTEGERS = "integers as 1"
# 64 shows a size that matters away from the peak; 1 is for programs that fail with an index or a length of 64.
LARGER = 64
LARGER_INTEGERS = f"integers as {LARGER}"
TRIED = ((LARGER, LARGER_INTEGERS), (1, INTEGERS))

_KINDS = {
    "integer": "an integer",
    "flag": "a flag",
    "branch": "a comparison of a float",
    "unfollowed float": "a float",
}


def branches(facts: Facts) -> tuple[UnknownRead, ...]:
    """What it read and a branch may hang on."""
    return tuple(read for read in facts.unknown_reads if read.kind in ("flag", "branch"))


def is_longer(one: Facts, other: Facts) -> bool:
    """Whether a line reads a flag more often in `one`: a loop goes on there that ends in `other`."""

    def counts(facts: Facts) -> dict[object, int]:
        return {(read.kind, read.frame, read.library): read.count for read in branches(facts)}

    before = counts(other)
    return any(count > before.get(key, 0) for key, count in counts(one).items())


def takes_more(one: Facts, other: Facts) -> bool:
    """Whether `one` uses more of its devices; where both use the same, whether it has more in tensors."""

    def bytes_of(facts: Facts) -> tuple[int, int]:
        return sum(device.used for device in facts.devices), allocated(facts)

    return bytes_of(one) > bytes_of(other)


def allocated(facts: Facts) -> int:
    """Bytes in tensors, of all devices, each at its peak."""
    return sum(device.allocated for device in facts.devices)


def read_at(reads: tuple[UnknownRead, ...]) -> str:
    """a flag at train.py:12, in lib/loop.py:80, and 2 other lines"""
    first = reads[0]
    at = place(first.frame) if first.frame is not None else "no Python line"
    if first.library is not None and first.library != first.frame:
        at += f" (in {place(first.library)})"
    others = len({(read.frame, read.library) for read in reads}) - 1
    more = f" and {others} other {'line' if others == 1 else 'lines'}" if others else ""
    return f"{_KINDS[first.kind]} at {at}{more}"


def read_where_it_failed(facts: Facts) -> tuple[str, ...]:
    """Lines, as FILE:LINE, that read something in the function in which it failed, else in that file."""
    inner = facts.chain[0].inner if facts.chain else None
    if inner is None:
        return ()
    reads = [read.library for read in facts.unknown_reads if read.is_open and read.library is not None]
    there = [frame for frame in reads if frame.file == inner.file]
    near = [frame for frame in there if frame.function == inner.function] or there
    return tuple(dict.fromkeys(f"{frame.file}:{frame.line}" for frame in near))


def short(line: str) -> str:
    """loop.py:80, of a path and a line."""
    return line.rsplit("/", 1)[-1]


def upper_bound(reads: tuple[UnknownRead, ...]) -> str:
    """Of a loop that no kernel's value has stopped."""
    return (
        f"an upper bound: a loop that stops on {read_at(reads)} ran on to a bound of its own, because no kernel has "
        "computed that; if it stops earlier, it takes less"
    )


def compared(main: Facts, other: Facts, reads: tuple[UnknownRead, ...]) -> str:
    """What the run with other outcomes came to."""
    before, after = allocated(main), allocated(other)
    if before == after:
        return f"it read {read_at(reads)}, which no kernel has computed: the other way its peak is the same"
    if after > before and is_longer(other, main):
        return upper_bound(reads)
    larger, smaller = max(before, after), min(before, after)
    return (
        f"it read {read_at(reads)}, which no kernel has computed: its peak is {cards.text(larger)} or "
        f"{cards.text(smaller)}, and the larger one counts"
    )
