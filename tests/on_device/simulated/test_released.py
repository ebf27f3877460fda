"""A row of `release`: the change that was tried is the one that is written, and it does not break the program."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.on_device.simulated.conftest import InOne

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
PROGRAM = Path(__file__).with_name("tried") / "released.py"


@pytest.fixture
def tried(in_one: InOne, tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    def ask(case: str) -> dict[str, Any]:
        words = ("advice", "--try", "--json", "--change", "release", str(PROGRAM), case)
        done = in_one("found = verb(*given)", words, tmp_path)
        assert done["code"] == 0, done["err"]
        found = json.loads(done["out"])
        return {**found["tried"][0], "before": found["as_it_is"]["peak_bytes"]}

    return ask


@pytest.mark.parametrize(
    ("case", "text", "write"),
    [
        ("in_a_loop", "for _ in range(3):", "del mask behind the for of this line"),
        ("in_one_branch", "if step >= 100:", "del other behind the if of this line"),
        ("behind_a_handler", "print(h.shape)", "del h behind this line"),
    ],
)
def test_the_row_is_what_was_tried(tried: Callable[[str], dict[str, Any]], case: str, text: str, write: str) -> None:
    one = tried(case)
    assert one["error"] is None and one["why_not"] is None, one
    proposal = one["proposal"]
    assert proposal["write"].startswith(write) and "features" not in proposal["write"]
    assert PROGRAM.read_text().splitlines()[proposal["line"]["line"] - 1].strip() == text
    assert one["applied"] == proposal["write"].count(" behind ")
    assert one["peak_bytes"] < one["before"]
    assert abs(one["predicted_bytes"] - one["peak_bytes"]) <= 0.01 * one["before"]


def test_what_others_read_is_no_row(tried: Callable[[str], dict[str, Any]]) -> None:
    one = tried("from_elsewhere")
    assert one["proposal"] is None or not {"TABLE", "rows"} & set(one["proposal"]["write"].split())
    assert one["error"] is None


def test_a_program_that_breaks_with_it(tried: Callable[[str], dict[str, Any]]) -> None:
    one = tried("by_its_frame")
    assert "KeyError: 'y'" in one["error"] and one["peak_bytes"] is None
