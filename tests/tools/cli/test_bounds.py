"""--most and --max-bytes: every answer of --json within bounds, with what was left out counted."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic import write_synthetic
from cuptimem.cli import main
from cuptimem.errors import Error
from cuptimem.output.bounded import Bounds, bounded
from tests.golden.answers import TRACES

ASKED = ("summary", "peak", "leaks", "steps", "table", "account", "tree", "advice", "ledger", "fragmentation")
STACKS = ("stack", "origin", "frames")
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("trace") / "run.cmem")
    write_synthetic(path, 20_000, 1, on="cuda")
    return path


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Ask:
    def ask(*words: str) -> str:
        code = main(words)
        out, error = capfd.readouterr()
        assert code == 0, error
        return out

    return ask


def lists(value: Any, place: tuple[str, ...] = ()) -> Counter[str]:
    """Items of all lists in each place."""
    found: Counter[str] = Counter()
    if isinstance(value, dict):
        for key, one in value.items():
            found += lists(one, (*place, key))
    elif isinstance(value, list):
        found["/".join(place)] += len(value)
        for one in value:
            found += lists(one, place)
    return found


def longest(value: Any, place: tuple[str, ...] = ()) -> int:
    if isinstance(value, dict):
        return max((longest(one, (*place, key)) for key, one in value.items()), default=0)
    if not isinstance(value, list) or place[-1] in STACKS:
        return 0
    own = len(value) if any(isinstance(one, dict | list) for one in value) else 0
    return max([own, *(longest(one, place) for one in value)])


@pytest.mark.parametrize("verb", ASKED)
def test_most(ask: Ask, trace: str, verb: str) -> None:
    name = trace if verb not in ("ledger", "fragmentation") else str(TRACES / "cuda-train.cmem")
    whole, cut = json.loads(ask(verb, name, "--json")), json.loads(ask(verb, name, "--most", "2"))
    left = cut.pop("left_out")
    assert "left_out" not in whole and list(cut) == list(whole)
    assert longest(cut) <= 2
    assert all(row["items"] > 0 for row in left.values())
    for place in set(lists(whole)) - set(left):  # a list in a list that was left out is left out with it
        if not any(place.startswith(f"{one}/") for one in left):
            assert lists(whole)[place] == lists(cut)[place], place
    for place, row in left.items():
        if not any(place.startswith(f"{one}/") for one in left):
            assert lists(cut)[place] + row["items"] == lists(whole)[place], place


@pytest.mark.parametrize("size", [4096, 20_000])
@pytest.mark.parametrize("verb", ASKED)
def test_max_bytes(ask: Ask, trace: str, verb: str, size: int) -> None:
    name = trace if verb not in ("ledger", "fragmentation") else str(TRACES / "cuda-train.cmem")
    out = ask(verb, name, "--max-bytes", str(size))
    assert len(out.encode()) <= size
    whole = ask(verb, name, "--json")
    assert bool(json.loads(out)["left_out"]) == (len(whole) + len('  "left_out": {},\n') > size)


def test_what_was_left_out_has_its_bytes(ask: Ask, trace: str) -> None:
    whole, cut = json.loads(ask("peak", trace, "--json")), json.loads(ask("peak", trace, "--most", "1", "--json"))
    rows = [row for contents in whole["peaks"] for row in contents["contributors"][1:]]
    assert cut["left_out"]["peaks/contributors"] == {"items": len(rows), "bytes": sum(row["bytes"] for row in rows)}


def test_one_that_cannot_be_so_small(trace: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["peak", trace, "--max-bytes", "40"]) == 1
    out, error = capfd.readouterr()
    assert out == "" and error.count("\n") == 1 and "--max-bytes 40" in error


def test_lists_of_words_are_cut_last() -> None:
    def pieces(document: Any) -> list[str]:
        return [json.dumps(document)]

    document = {"notes": ["a" * 50] * 4, "rows": [{"bytes": 7, "stack": [{"f": "x" * 30}] * 9}] * 5}
    some = bounded(document, Bounds(bytes=600), pieces)
    assert some["notes"] == document["notes"] and 0 < len(some["rows"]) < 5
    few = bounded(document, Bounds(bytes=200), pieces)
    assert few["left_out"]["notes"]["items"] + len(few["notes"]) == 4
    with pytest.raises(Error, match="at least"):
        bounded(document, Bounds(bytes=10), pieces)
