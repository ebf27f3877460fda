"""A row of `release`: the change that was tried is the one that is written, and it does not break the program."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, clean_environment

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
PROGRAM = Path(__file__).with_name("tried") / "released.py"
CASES = ("in_a_loop", "in_one_branch", "behind_a_handler", "from_elsewhere", "by_its_frame")
DRIVER = """
import contextlib, io, json, sys
from cuptimem.cli import advice_try
from cuptimem.output.bounded import NONE
from cuptimem.simulation import tries
program, *cases = sys.argv[1:]
found = {}
with tries.Server("h100") as server:
    tries.Server = lambda *_: contextlib.nullcontext(server)
    for case in cases:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert advice_try.run([program, case], ["release"], bounds=NONE) == 0
        found[case] = json.loads(out.getvalue())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(sim_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of each case what the verb says, all from one process that has imported PyTorch."""
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sim_python, "-c", DRIVER, str(PROGRAM), *CASES],
        cwd=tmp_path_factory.mktemp("released"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def tried(found: dict[str, Any]) -> Callable[[str], dict[str, Any]]:
    return lambda case: {**found[case]["tried"][0], "before": found[case]["as_it_is"]["peak_bytes"]}


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
