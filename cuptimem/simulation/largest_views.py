"""The largest batch, as text."""

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import plural, size
from cuptimem.simulation.largest import Largest, SizeTried, Way, refusal
from cuptimem.simulation.launch import Setup

_COLUMNS = (
    Column("size", True), Column("run"), Column("peak in tensors", True), Column("reserved", True),
    Column("outcome", flexible=True),
)  # fmt: skip


def blocks(found: Largest, way: Way, setup: Setup) -> list[Block]:
    room = f"{setup.card.key} with {size(setup.memory)}"
    titles = {
        "found": f"{found.size} is the largest {way} that fits on {room}",
        "none fits": f"No {way} fits on {room}",
        "undecided": f"UNDECIDED: the largest {way} on {room}",
        "script failed": f"The program failed on {room}",
    }
    table = Table(_COLUMNS, tuple(_row(one) for one in found.tries))
    return [
        Text(titles[found.answer], "title" if found.answer == "found" else "warning"),
        Text(f"  {found.reason}", hang=2, prose=True),
        Text(),
        table,
        Text(),
        *(Text(line, hang=2, prose=True) for line in _lines(found)),
    ]


def _lines(found: Largest) -> list[str]:
    said = []
    if found.predicted is not None:
        said.append(f"the recording of {_recorded(found)} predicted {found.predicted}")
    said.append(
        f"margin: a context of {size(found.context)}, the highest published for the card, and workspaces, "
        "communicators and assumed sizes at their allowance; a card that takes less may hold the next size"
    )
    if found.size is not None and found.whole is None:
        said.append(
            f"{found.size} did not come to the program's end in time: what follows its first steps is not known"
        )
    if found.next is not None and found.size is not None:
        said.append(f"sizes above {found.next} are taken not to fit")
    return said


def _recorded(found: Largest) -> int:
    return next(one.size for one in found.tries if one.fits)


def _row(one: SizeTried) -> tuple[str, ...]:
    tried = one.tried
    stretch = "to its end" if one.whole else plural(tried.steps, "step")
    if one.fits:
        return (str(one.size), stretch, size(tried.peak_bytes or 0), size(tried.reserved_bytes or 0), "fits")
    outcome = refusal(tried) or tried.why_not or f"{tried.ooms} OutOfMemoryErrors caught"
    return (str(one.size), stretch if not tried.timed_out else "-", "-", "-", outcome)
