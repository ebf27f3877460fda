"""What a person reads of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from cuptimem.doctor.checks import GROUPS, Diagnosis, State
from cuptimem.output.text.blocks import Block, Column, Table, Text

_SIGNS: dict[State, str] = {"ok": "ok", "note": "-", "warning": "!", "failed": "FAILED"}


def blocks(diagnosis: Diagnosis, slots: bool = False) -> list[Block]:
    """What a person reads; slots: each slot and offset too."""
    shown: list[Block] = []
    for group in GROUPS:
        checks = [check for check in diagnosis.checks if check.group == group]
        if not checks:
            continue
        shown.append(Text(group, "title"))
        width = max(len(check.name) for check in diagnosis.checks)
        for check in checks:
            sign = _SIGNS[check.state]
            style: Literal["", "warning"] = "warning" if check.state in ("warning", "failed") else ""
            shown.append(Text(f"  {sign:<6}  {check.name:<{width}}  {check.text}", style, hang=width + 12, whole=True))
            indent = " " * (width + 12)
            if check.cost and check.state != "ok":
                shown.append(Text(f"{indent}so: {check.cost}", whole=True))
            if check.fix and check.state != "ok":
                shown.append(Text(f"{indent}do: {check.fix}", whole=True))
        shown.append(Text())
    if slots:
        shown.extend(_details(diagnosis))
    shown.append(Text(diagnosis.verdict, "strong" if diagnosis.works else "warning"))
    return shown


def _details(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.slots:
        yield Text("Slots", "title")
        yield Table(
            (Column("meaning"), Column("library"), Column("patched", right=True), Column("function")),
            tuple((s.meaning, s.library or "none", str(s.patched), s.name) for s in diagnosis.slots),
        )
        yield Text()
    if diagnosis.offsets:
        yield Text("Offsets", "title")
        yield Table(
            (Column("field"), Column("byte", right=True)),
            tuple((name, str(value)) for name, value in diagnosis.offsets.items()),
        )
        yield Text()
