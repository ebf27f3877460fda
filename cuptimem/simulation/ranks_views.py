"""The ranks of a distributed program as one table."""

from collections.abc import Sequence

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.words import plural, size
from cuptimem.simulation.fitting import Row
from cuptimem.simulation.fitting_views import WORDS, peak, room
from cuptimem.simulation.ranks import Ranks, in_words
from cuptimem.simulation.result import Interval
from cuptimem.simulation.views import interval

_NCCL = "NCCL communicators"


def blocks(found: Sequence[Ranks], ranks: int) -> list[Block]:
    columns = [Column("ranks"), Column("run"), Column("verdict", style="strong"), Column("free", True)]
    columns += [Column("takes", True), Column("in tensors", True), Column("of NCCL", True)]
    cells = [_row(one) for one in found]
    if any(row[-1] for row in cells):
        columns.append(Column("because", flexible=True))
    fitting = sum(len(one.ranks) for one in found if one.row is not None and one.row.verdict == "fits")
    asked = sum(len(one.ranks) for one in found)
    title = f"It fits on {fitting} of {ranks} ranks"
    if asked < ranks:
        title = f"It fits on {fitting} of the {plural(asked, 'rank')} that ran, of {ranks}"
    first = next((one.row for one in found if one.row is not None), None)
    if first is not None:
        title += f", each on {first.case.setup.card.key} with {size(first.case.setup.memory)}"
    said: list[Block] = [Text(title, "title"), Text()]
    said += [Table(tuple(columns), tuple(row[: len(columns)] for row in cells)), *peak(_rows(found)), Text()]
    if any(one.run != one.ranks for one in found if one.row is not None):
        text = "run: the others are taken to be equal to them, because they lie between runs that are equal to the byte"
        said.append(Text(text, hang=2, prose=True))
    if any(one.row is None for one in found):
        text = "not known: between ranks that differ; --ranks runs those that it names"
        said.append(Text(text, hang=2, prose=True))
    if any(row[-2] for row in cells):
        text = "of NCCL: its communicators, from nothing to 1 GiB each; gloo's buffers lie in host memory"
        said.append(Text(text, hang=2, prose=True))
    said += [Text("free: at the peak, with everything that is modelled at its high end", hang=2, prose=True)]
    return said


def _rows(found: Sequence[Ranks]) -> list[Row]:
    return [one.row for one in found if one.row is not None]


def _row(one: Ranks) -> tuple[str, ...]:
    ranks, run, row = in_words(one.ranks), in_words(one.run), one.row
    if row is None:
        return ranks, "", "not known", "", "", "", "", ""
    simulation = row.simulation
    devices = () if simulation is None else simulation.devices
    fullest = max(devices, key=lambda device: device.used.low, default=None)
    parts = () if simulation is None else simulation.modelled
    nccl = next((interval(Interval(part.bytes, part.high_bytes)) for part in parts if part.name == _NCCL), "")
    tensors = "" if fullest is None else interval(fullest.allocated)
    because = "" if row.verdict == "fits" else row.reason
    return ranks, run, WORDS[row.verdict], room(row), interval(row.takes), tensors, nccl, because
