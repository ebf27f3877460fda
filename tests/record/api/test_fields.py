"""The field tables of the core: what analyze() returns is what they list."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuptimem import _core
from tests.unit.analysis.craft import Trace, encoder

TABLES = _core.fields()
PLAIN = {"bool", "int", "int | None", "float", "str", "str | None", "stack", "line | None"}


@pytest.mark.parametrize("table", TABLES)
def test_every_field_has_a_type_and_a_doc(table: str) -> None:
    made = {"name", "text", "stack", "frame"}
    for name, kind, doc in TABLES[table]:
        assert re.fullmatch(r"[a-z]\w*", name) and doc and doc == doc.strip() and not doc.endswith("."), name
        named = re.findall(r"[a-z_]+", kind.removesuffix(" | None").removeprefix("columns of "))
        assert kind in PLAIN or kind.endswith(" ints") or set(named) - set(TABLES) <= made, name


@pytest.mark.parametrize("table", TABLES)
def test_names_are_unique(table: str) -> None:
    names = [name for name, _, _ in TABLES[table]]
    assert len(names) == len(set(names))


def agrees(table: str, value: Any) -> Iterator[str]:
    """The fields, and those of what lies in them, that the object has otherwise than its table lists them."""
    names = [name for name, _, _ in TABLES[table]]
    parts = [value[name] for name in names] if isinstance(value, dict) else list(value)
    if (isinstance(value, dict) and list(value) != names) or len(parts) != len(names):
        yield table
    for (name, kind, _), part in zip(TABLES[table], parts, strict=False):
        if kind.startswith("[") and kind[1:-1] in TABLES:
            for one in part:
                yield from agrees(kind[1:-1], one)
        elif kind.removesuffix(" | None") in TABLES and part is not None:
            yield from agrees(kind.removesuffix(" | None"), part)
        elif kind in ("int", "str", "float", "bool") and type(part).__name__ != kind:
            yield f"{table}.{name}"


def test_what_is_returned_is_what_is_listed(tmp_path: Path) -> None:
    Trace.library = encoder()
    t = Trace()
    t.alloc(0x1000, 512, t.line(1))
    path = t.write(tmp_path / "run.cmem")
    raw = _core.analyze(path, tables=("end", "kept"), charts=[(0, 1 << 40, 8, 8, 8)])
    assert raw["allocations"] == 1 and len(raw["charts"]) == 1
    assert list(agrees("report", raw)) == []
