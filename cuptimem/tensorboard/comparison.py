"""Two recordings of the Memory page side by side: what each line had at the two peaks."""

from typing import Any

from cuptimem.report import diff
from cuptimem.report.stacks import Frame


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each device of either. A device's rows and its rest sum to its two peaks."""
    names = dict.fromkeys(device["name"] for one in (after, before) for device in one["devices"])
    return [_device(name, _find(before, name), _find(after, name)) for name in names]


def _find(data: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((device for device in data["devices"] if device["name"] == name), None)


def _device(name: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    old, new = (_lines(one) for one in (before, after))
    same = diff.match(_frames(old), _frames(new))
    rows: dict[object, dict[str, Any]] = {}
    for line in old:  # older files have a line for each phase
        row = rows.setdefault(_key(line), {"before": 0, "after": 0, **_shown(line)})
        row["before"] += line["bytes"]
    for line in new:
        place = same.get((line["file"], line["line"])) if line["file"] else None
        key = (*(place or (line["file"], line["line"])), "" if line["file"] else line["where"])
        if line["file"] and place is None:
            key = (*key, "new")  # that line of the first recording is another one
        row = rows.setdefault(key, {"before": 0, "after": 0})
        row.update(after=row["after"] + line["bytes"], **_shown(line))
    changes = sorted(rows.values(), key=lambda row: (-abs(row["after"] - row["before"]), row["where"]))
    return {
        "device": name,
        "before": before["peak"] if before else None,
        "after": after["peak"] if after else None,
        "rows": changes,
        "rest": {"before": before["rest"]["bytes"] if before else 0, "after": after["rest"]["bytes"] if after else 0},
    }


def _lines(device: dict[str, Any] | None) -> list[dict[str, Any]]:
    return device["lines"] if device else []


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return (line["file"], line["line"], "" if line["file"] else line["where"])


def _frames(lines: list[dict[str, Any]]) -> list[Frame]:
    found = {
        (line["file"], line["line"]): Frame(line["file"], line["function"], line["line"], text=line["code"])
        for line in lines
        if line["file"]
    }
    return list(found.values())


def _shown(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in ("where", "function", "code", "phase")}
