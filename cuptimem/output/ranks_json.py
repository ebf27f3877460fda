"""The JSON objects of verbs that compare ranks, as docs/json.md documents them."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from cuptimem.distributed.changes import Moved, RanksDiff
from cuptimem.distributed.comparison import Grows, Ranks, Row
from cuptimem.output.json import SCHEMA


def ranks(one: Ranks) -> dict[str, Any]:
    def labels(places: Iterable[int]) -> list[str]:
        return [one.label(at) for at in places]

    def rows(found: Iterable[Row]) -> list[dict[str, Any]]:
        return [{"name": row.name, "bytes": row.bytes, "middle": row.middle} for row in found]

    def rank(at: int) -> dict[str, Any]:
        summary = asdict(one.ranks[at])
        return {"label": one.label(at), "more": one.more(at), "differs": one.differs(at), **summary}

    return {
        "schema": SCHEMA,
        "middle": one.label(one.middle),
        "ranks": [rank(at) for at in one.order],
        "differences": [
            {
                "ranks": labels(difference.ranks),
                "bytes": difference.bytes,
                "step": difference.step,
                "alone": difference.alone,
                "batch": difference.batch,
                "categories": rows(difference.categories),
                "lines": rows(difference.lines),
            }
            for difference in one.differences
        ],
        "unexplained": one.unexplained,
        "guests": [
            {
                "host": guest.host,
                "device": guest.device,
                "owner": one.label(guest.owner),
                "ranks": labels(guest.ranks),
                "bytes": guest.bytes,
                "used": guest.used,
                "lines": [{"name": name, "bytes": bytes} for name, bytes in guest.lines],
            }
            for guest in one.guests
        ],
        "growths": [{**asdict(grows.growth), "ranks": labels(grows.ranks)} for grows in one.growths],
        "missing": list(one.missing),
        "failed": [{"path": path, "reason": why} for path, why in one.failed],
        "launchers": list(one.launchers),
    }


def ranks_diff(one: RanksDiff, failed: Iterable[tuple[str, str]]) -> dict[str, Any]:
    def rows(found: Iterable[Moved]) -> list[dict[str, Any]]:
        return [{"name": row.name, "before": row.before, "after": row.after} for row in found]

    def leaks(found: Iterable[Grows]) -> list[dict[str, Any]]:
        return [{**asdict(grows.growth), "ranks": list(grows.ranks)} for grows in found]

    return {
        "schema": SCHEMA,
        "ranks": [
            {
                "rank": pair.rank,
                "more": pair.more,
                "before": None if pair.before is None else asdict(pair.before),
                "after": None if pair.after is None else asdict(pair.after),
            }
            for pair in one.pairs
        ],
        "changes": [
            {
                "ranks": list(change.ranks),
                "bytes": change.bytes,
                "categories": rows(change.categories),
                "lines": rows(change.lines),
            }
            for change in one.changes
        ],
        "begun": leaks(one.begun),
        "ended": leaks(one.ended),
        "unjoined": list(one.unjoined),
        "failed": [{"path": path, "reason": why} for path, why in failed],
    }
