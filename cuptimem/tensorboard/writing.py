"""Writes a recording's file for the Memory page, so that it is always within what the page's side reads."""

import gzip
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from cuptimem.report.model import Report
from cuptimem.tensorboard import limits, packed
from cuptimem.tensorboard.checks import Damaged
from cuptimem.tensorboard.data import FOLDER, SUFFIX, prepare
from cuptimem.whole_files import replacing

_MOST_HALVINGS = 12  # then one of each is left


def write(report: Report, folder: str, name: str, first_step: int, chart: object = None) -> str:
    """Writes <folder>/plugins/cuptimem/<name>.cuptimem.json.gz whole or not at all; returns its path."""
    target = os.path.join(folder, FOLDER, name + SUFFIX)
    text = fitting(prepare(report, first_step, chart))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with replacing(target) as file:
        file.write(gzip.compress(text, 6))
    return target


def fitting(data: dict[str, Any]) -> bytes:
    """JSON that the page can show. What is too large loses its picture, where that is half of what is allowed, then
    detail: at each try half of it. Sums stay, and what is left out is counted. Raises Error where the page would refuse
    it anyway."""
    text = _json(data)
    if limits.excess(text) and limits.excess(_json(data["chart"]), share=2):
        data = {**data, "chart": None}
        text = _json(data)
    for halvings in range(1, _MOST_HALVINGS + 1):
        if not limits.excess(text):
            break
        text = _json(smaller(data, halvings))
    try:
        packed.decoded(text)
    except Damaged:
        if data["chart"] is None:
            raise
        return fitting({**data, "chart": None})
    return text


def smaller(data: dict[str, Any], halvings: int) -> dict[str, Any]:
    """The same with less detail."""

    def most(number: int, least: int = 1) -> int:
        return max(least, number >> halvings)

    longest = most(300, 40)

    def short(part: Any) -> Any:
        if isinstance(part, str):
            return part if len(part) <= longest else part[: longest - 1] + "…"
        if isinstance(part, dict):
            return {key: short(one) for key, one in part.items()}
        return [short(one) for one in part] if isinstance(part, list) else part

    def device(one: dict[str, Any]) -> dict[str, Any]:
        shown, others = (one["lines"][: most(500)], one["lines"][most(500) :])
        rest = {key: one["rest"][key] + sum(line[key] for line in others) for key in ("bytes", "count")}
        return {
            **one,
            "lines": [{**line, "stack": line["stack"][: most(24, 4)]} for line in shown],
            "notes": one["notes"][: most(100)],
            "rest": {**rest, "lines": one["rest"]["lines"] + len(others)},
            "timeline": thinned(one["timeline"], most(2048), (min, min, max, _known_most)),
        }

    steps, leaks, ends = data["steps"], data["leaks"], most(5000)
    left_out = max(0, len(steps) - 2 * ends)
    less = {
        **data,
        "environment": dict(list(data["environment"].items())[: most(60)]),
        "caveats": data["caveats"][: most(100)],
        "devices": [device(one) for one in data["devices"]],
        "resident": thinned(data["resident"], most(2048), (min, max)),
        "steps": [*steps[:ends], *steps[-ends:]] if left_out else steps,
        "steps_left_out": data["steps_left_out"] + left_out,
        "leaks": [{**leak, "keeps": leak["keeps"][: most(20)]} for leak in leaks[: most(200)]],
        "leaks_left_out": data["leaks_left_out"] + max(0, len(leaks) - most(200)),
        "ooms": data["ooms"][: most(200)],
        "chart": None,
    }
    return {**short(less), "chart": data["chart"]}


def thinned(rows: list[list[Any]], most: int, merge: tuple[Callable[[Any], Any], ...]) -> list[list[Any]]:
    """So many rows at most: each stands for as many neighbours, whose columns are merged by a function each."""
    each = -(-len(rows) // most)
    if each <= 1:
        return rows
    parts = (rows[i : i + each] for i in range(0, len(rows), each))
    return [[one(column) for one, column in zip(merge, zip(*part, strict=True), strict=True)] for part in parts]


def _known_most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _json(part: Any) -> bytes:
    return json.dumps(part, separators=(",", ":"), allow_nan=False).encode()
