"""Does what a run with readers foretells hold for the program changed by hand, at the line where that is?"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean_environment

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
PROGRAM = Path(__file__).with_name("tried") / "unread.py"
DRIVER = """
import json, sys
from cuptimem.advice import advise
from cuptimem.advice.readers import Readers
from cuptimem.report import load
from cuptimem.simulation import tries
program, cases = json.load(sys.stdin)
found = {}
with tries.Server("h100") as server:
    for case, changes in cases.items():
        words = [program, "--case", case]
        mine = found[case] = {"plain": server.run(words, steps=None, trace=f"{case}.cmem").peak_bytes}
        mine["read"] = server.run(words, steps=None, trace=f"{case}.read.cmem", readers=f"{case}.json").peak_bytes
        plain, read = (load.analyze(f"{case}.{name}", with_lives=True) for name in ("cmem", "read.cmem"))
        advised = advise(plain, None, Readers(read, f"{case}.json"))
        for one in advised.proposals:
            if one.free:
                mine[one.technique] = {"bytes": one.bytes, "line": one.frame.line, "write": one.write}
        for change in changes:
            mine[f"{change} by hand"] = server.run([*words, "--hand", change], steps=None).peak_bytes
        if "release" in changes:
            mine["release tried"] = server.run(words, "release", steps=None).peak_bytes
print(json.dumps(found))
"""
# Of each case, the line where each change is.
CASES = {
    "held": {"release": "real, imaginary = frames"},
    "graph": {"no_grad": "goal = other(x).mean(1)", "release": "loss = F.mse_loss(model(x).mean(1), goal.detach())"},
    "elementwise": {"in_place": "x = x.mul_(0.5) if by_hand else x * 0.5"},
    "leaky": {"in_place": "x = F.leaky_relu("},
}


@pytest.fixture(scope="module")
def found(sim_python: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    done = subprocess.run(
        [sim_python, "-c", DRIVER],
        input=json.dumps([str(PROGRAM), {case: list(changes) for case, changes in CASES.items()}]),
        cwd=tmp_path_factory.mktemp("readers"),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("case", CASES)
def test_as_by_hand(found: Mapping[str, Any], case: str) -> None:
    """And nothing else that is free is proposed."""
    mine, lines = found[case], PROGRAM.read_text().splitlines()
    assert mine["read"] == mine["plain"]
    proposed = {name: row for name, row in mine.items() if isinstance(row, dict)}
    assert set(proposed) == set(CASES[case])
    for change, text in CASES[case].items():
        by_hand = mine[f"{change} by hand"]
        assert by_hand < mine["plain"]
        assert abs(proposed[change]["bytes"] - by_hand) <= 0.01 * by_hand
        assert text in lines[proposed[change]["line"] - 1]
        assert abs(mine.get(f"{change} tried", by_hand) - by_hand) <= 0.01 * by_hand
