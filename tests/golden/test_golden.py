"""The golden traces open, and every answer to them is what it was, in the words of the table of renames."""

import json
from typing import Any

import pytest

import cuptimem
from tests.golden import answers, compare, renames
from tests.golden.renames import Renames


@pytest.mark.parametrize("name", answers.names())
def test_answers_are_as_they_were(name: str) -> None:
    cuptimem.open(answers.TRACES / f"{name}.cmem")
    assert compare.trace(name).differences == {}


def test_renames_all_apply() -> None:
    for name in answers.names():
        compare.trace(name)
    assert renames.read().unused() == []


def test_expected_and_traces_belong_together() -> None:
    kept = {path.name.removesuffix(".json.gz") for path in answers.EXPECTED.iterdir()}
    assert kept == set(answers.names())
    assert len(kept) >= 32


def test_a_wrong_value_is_found() -> None:
    old = answers.expected("train")
    wrong = json.loads(json.dumps(old))
    wrong["peak"]["peaks"][0]["contributors"][1]["bytes"] += 1
    wrong["steps"]["steps"][2]["extra"] = None
    del wrong["summary"]["events"]
    found = list(renames.differences(old, wrong))
    was = old["peak"]["peaks"][0]["contributors"][1]["bytes"]
    assert found == [
        f"$.summary.events: is gone, it was {old['summary']['events']}",
        f"$.peak.peaks[0].contributors[1].bytes: was {was}, is {was + 1}",
        "$.steps.steps[2].extra: is new, null",
    ]


OLD = {"schema": 2, "count": 1, "peaks": [{"count": 3, "what": "peak"}, {"count": 4, "what": "end"}]}


@pytest.mark.parametrize(
    ("table", "new"),
    [
        ({}, OLD),
        (
            {"keys": [{"old": "count", "new": "blocks"}]},
            {"schema": 2, "blocks": 1, "peaks": [{"blocks": 3, "what": "peak"}, {"blocks": 4, "what": "end"}]},
        ),
        (
            {
                "keys": [{"old": "count", "new": "blocks", "in": ["*/peaks"]}],
                "values": [
                    {"old": "end", "new": "last", "in": ["*/peaks/what"]},
                    {"old": 2, "new": 3, "in": ["*/schema"]},
                ],
            },
            {"schema": 3, "count": 1, "peaks": [{"blocks": 3, "what": "peak"}, {"blocks": 4, "what": "last"}]},
        ),
    ],
)
def test_renames_are_applied_where_they_say(table: dict[str, Any], new: dict[str, Any]) -> None:
    names = Renames(table)
    assert names.translate(OLD, "peak") == new
    assert names.unused() == []


def test_renames_that_apply_nowhere_are_told() -> None:
    names = Renames({"keys": [{"old": "count", "new": "blocks", "in": ["steps/*"]}]})
    assert names.translate(OLD, "peak") == OLD
    assert [one.old for one in names.unused()] == ["count"]


def test_two_keys_cannot_become_one() -> None:
    with pytest.raises(ValueError, match="two keys become 'schema'"):
        Renames({"keys": [{"old": "count", "new": "schema"}]}).translate(OLD, "peak")


def test_kept_answers_are_read_as_they_were() -> None:
    document = {
        "a": [{"x": list(range(30))}, {"x": list(range(30))}, None, 1.5, True, "é"],
        "b": {"x": list(range(30))},
    }
    assert answers.unpacked(answers.packed(document)) == document
