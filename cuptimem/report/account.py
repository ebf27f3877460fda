"""What a device's peak is made of by module and by category, as a balance sheet: every sum is exact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cuptimem.displayed import Displayed
from cuptimem.report import grouping
from cuptimem.report.brief import Brief, amount, name
from cuptimem.report.model import CATEGORIES, Contents
from cuptimem.words import plural, size


@dataclass(frozen=True, slots=True, repr=False)
class AccountRow(Brief):
    """A module's bytes, or those of blocks outside of modules."""

    module: str | None  # its qualified name, of at most Account.depth parts; None: outside modules
    parts: tuple[int, ...]  # bytes in the order of report.CATEGORIES
    count: int  # blocks

    def _summary(self) -> str:
        return f"{name(self.module or grouping.OUTSIDE)}: {amount(self.bytes, self.count)}"

    @property
    def bytes(self) -> int:
        return sum(self.parts)

    def of(self, category: str) -> int:
        """Bytes of one of report.CATEGORIES."""
        return self.parts[CATEGORIES.index(category)]


@dataclass(frozen=True, repr=False)
class Account(Displayed, Brief):
    """One device at a moment. The rows' bytes sum to `bytes`, category by category to `total`."""

    contents: Contents
    depth: int | None
    rows: tuple[AccountRow, ...]  # the largest first

    def _summary(self) -> str:
        return f"{self.device}: {size(self.bytes)} in {plural(len(self.rows), 'module')}"

    @property
    def device(self) -> str:
        return self.contents.device

    @property
    def bytes(self) -> int:
        return self.contents.bytes

    @cached_property
    def total(self) -> AccountRow:
        """All rows together."""
        return together(self.rows)


def together(rows: Sequence[AccountRow]) -> AccountRow:
    """The sum of the rows."""
    parts = tuple(sum(row.parts[number] for row in rows) for number in range(len(CATEGORIES)))
    return AccountRow(None, parts, sum(row.count for row in rows))


def equal_together(rows: Sequence[AccountRow]) -> tuple[AccountRow, ...]:
    """Modules whose names differ by a number alone as one, the largest first: "h.*.attn" of h.0.attn and h.1.attn."""
    groups: dict[str | None, list[AccountRow]] = {}
    for row in rows:
        groups.setdefault(row.module and grouping.without_number(row.module), []).append(row)
    found = [replace(together(group), module=name) if len(group) > 1 else group[0] for name, group in groups.items()]
    return tuple(sorted(found, key=lambda row: (-row.bytes, row.module or "")))


def of_contents(contents: Contents, depth: int | None = None) -> Account:
    """depth: a module counts for the first so many parts of its name. What has no contributor is "unknown"."""
    place = {category: number for number, category in enumerate(CATEGORIES)}
    sums: dict[str | None, list[int]] = {}
    counts: dict[str | None, int] = {}

    def add(module: str | None, category: str, size: int, count: int) -> None:
        sums.setdefault(module, [0] * len(CATEGORIES))[place[category]] += size
        counts[module] = counts.get(module, 0) + count

    for one in contents.contributors:
        module = grouping.module(one, depth)
        add(None if module == grouping.OUTSIDE else module, one.category, one.bytes, one.count)
    if contents.rest_bytes or contents.rest_count:
        add(None, "unknown", contents.rest_bytes, contents.rest_count)
    rows = (AccountRow(module, tuple(parts), counts[module]) for module, parts in sums.items())
    return Account(contents, depth, tuple(sorted(rows, key=lambda row: (-row.bytes, row.module or ""))))
