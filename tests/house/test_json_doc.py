"""docs/json.md documents what --json prints: its tables are those of the core's fields, and no key is missing."""

import re
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.json import SCHEMA
from cuptimem.simulation import as_json
from tests.golden import answers, renames
from tests.house import json_doc

FREE = ("*/environment", "*/libraries")  # their keys are not ours
DIGESTS = ("export *", "page *")  # of other forms than --json
BY = {"library-line"}  # of `table`: the value of --by
UNSEEN = {"waiting_blocks", "held_line"}  # of which no golden trace has any


def objects(value: Any, place: str) -> Iterator[tuple[str, frozenset[str]]]:
    if isinstance(value, list):
        for part in value:
            yield from objects(part, place)
    elif isinstance(value, dict) and not any(fnmatchcase(place, free) for free in FREE):
        yield place, frozenset(value)
        for key, part in value.items():
            yield from objects(part, f"{place}/{key}")


@cache
def keys() -> dict[str, frozenset[str]]:
    """Of the objects in each place of any answer to a golden trace."""
    found: dict[str, frozenset[str]] = {}
    for name in answers.names():
        for asked, answer in answers.expected(name).items():
            if "exit code" not in answer and not any(fnmatchcase(asked, one) for one in DIGESTS):
                for place, there in objects(renames.read().translate(answer, asked), asked):
                    found[place] = found.get(place, frozenset()) | there
    return found


def test_the_page_is_up_to_date() -> None:
    assert json_doc.filled(json_doc.PAGE.read_text()) == json_doc.PAGE.read_text(), "make json-doc"


@pytest.mark.parametrize("name", json_doc.REGIONS)
def test_a_table_has_the_keys_of_its_objects(name: str) -> None:
    region = json_doc.REGIONS[name]
    assert f"<!-- fields {name} -->" in json_doc.PAGE.read_text()
    there = [key for place, key in keys().items() if any(fnmatchcase(place, pattern) for pattern in region.places)]
    assert frozenset().union(*there) == {*json_doc.documented(name), *region.also} or (not there and name in UNSEEN)


def test_every_key_is_documented() -> None:
    words = set(re.findall(r'["`]([\w ]+)["`]', json_doc.PAGE.read_text()))
    every = frozenset().union(*keys().values())
    assert len(every) > 150 and every - words == BY


def test_the_schema_is_the_core_s() -> None:
    assert cuptimem.open(answers.TRACES / f"{answers.names()[0]}.cmem").schema == SCHEMA


def test_keys_name_attributes() -> None:
    """Each key of an object names an attribute of its dataclass, or what stands in its place."""
    assert as_json.Simulation in json.KEYS
    for kind, (words, elsewhere) in json.KEYS.items():
        names = {word.rstrip("?") for word in words.split()}
        there = {*dir(kind), *(one.name for one in fields(kind))}
        assert {*elsewhere} <= names, kind.__name__
        for name in names:
            value = elsewhere.get(name) or json.ELSEWHERE.get(name) or name
            assert not isinstance(value, str) or value.split(".")[0] in there, f"{kind.__name__}: {name}"
