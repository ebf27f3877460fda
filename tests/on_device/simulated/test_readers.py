"""Does what a run with readers foretells hold for the program changed by hand, at the line where that is?"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean_environment
from tests.forkserver import Forks
from tests.on_device.simulated import device
from tests.on_device.simulated.conftest import InOne

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]
PROGRAM = Path(__file__).with_name("tried") / "unread.py"
CODE = """
from cuptimem.advice import Adviser
from cuptimem.advice.readers import Readers
from cuptimem.cli import advice_try
from cuptimem.report import load
program, cases, few_steps = given
found = {}
for case, changes in cases.items():
    words, steps = [program, "--case", case], 3 if case in few_steps else None
    mine = found[case] = {"plain": server.run(words, steps=steps, trace=f"{case}.cmem").peak_bytes}
    mine["read"] = server.run(words, "", steps, trace=f"{case}.json.cmem", readers=f"{case}.json").peak_bytes
    plain, read = (load.analyze(f"{case}.{name}", with_lives=True) for name in ("cmem", "json.cmem"))
    readers = Readers(read, f"{case}.json")
    adviser = Adviser(plain, None, readers)
    advised = adviser.advise()
    for one in advised.proposals:
        if one.free or one.technique in ("in_place", "no_grad", "load_late", "host_snapshot"):
            mine[one.technique] = {"bytes": one.bytes, "line": one.frame.line, "cost": one.cost, "free": one.free}
    for change in changes:
        mine[f"{change} by hand"] = server.run([*words, "--hand", change], steps=steps).peak_bytes
    if "release" in changes:
        mine["release tried"] = server.run(words, "release", steps).peak_bytes
    if "no_grad" in changes:
        values = advice_try.places(f"{case}.cmem", f"{case}.json")
        mine["no_grad tried"] = server.run(words, "no_grad", steps, values=values).peak_bytes
    if "retain_graph" in changes:
        values = advice_try.places(f"{case}.cmem", f"{case}.json")
        mine["retain_graph tried"] = server.run(words, "retain_graph", steps, values=values).peak_bytes
    if "clone_view" in changes:
        values = advice_try.places(f"{case}.cmem", f"{case}.json")
        mine["clone_view tried"] = server.run(words, "clone_view", steps, values=values).peak_bytes
    if "in_place" in changes:
        operators = adviser.operators_in_place()
        mine["in_place tried"] = server.run(words, "in_place", steps, operators=operators).peak_bytes
"""
ON_CPU = """
import contextlib, io, json, sys
import torch
folder, cases = json.loads(sys.argv[1])
sys.path.insert(0, folder)
import unread
unread.DEVICE, unread.ROWS = "cpu", 64
found = {}
for case, changes in cases.items():
    for change in changes:
        torch.manual_seed(0)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                unread.CASES[case](change)
                answer = [float(line) for line in printed.getvalue().split()]
            except RuntimeError as error:
                answer = str(error)
        found.setdefault(case, {})[change] = answer
print(json.dumps(found))
"""
# Of each case, the line where each change is.
CASES: Mapping[str, Mapping[str, str]] = {
    "held": {"release": "real, imaginary = frames"},
    "graph": {"no_grad": "goal = other(x).mean(1)", "release": "loss = F.mse_loss(model(x).mean(1), goal.detach())"},
    "elementwise": {"in_place": "x = x.mul_(0.5) if by_hand else x * 0.5"},
    "leaky": {"in_place": "x = F.leaky_relu("},
    "subtracted": {},
    "leaf": {},
    "later": {},
    "branch": {"no_grad": "extra = other(y).square().mean()"},
    "twice": {},
    "flow": {"no_grad": "goal = other(x)", "release": "aim = 0.5"},
    "resumed": {"release": "model.load_state_dict("},
    "retained": {"retain_graph": "loss.backward(retain_graph=not by_hand)"},
    "needed": {},
    "records": {"release": "x = batch.mixed[:, :64].contiguous()"},
    "inside": {"no_grad": "goal = self.taught(x).mean(1)"},
    "snapshot": {"host_snapshot": "if by_hand else copy.deepcopy(weights)"},
    "listed": {},
    "parts": {"clone_view": "kept.append(x[:, 0].clone() if by_hand else x[:, 0])"},
    "mapped": {"load_late": 'data = torch.randn(4 * ROWS, 64, device="cpu" if by_hand else DEVICE)'},
}
# A change that the steps of a try do not show to be wrong: not proposed, or with care.
WRONG = {
    "subtracted": "in_place",
    "leaf": "in_place",
    "later": "in_place",
    "branch": "no_grad",
    "needed": "retain_graph",
    "listed": "clone_view",
}


@pytest.fixture(scope="module")
def found(in_one: InOne, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    cases = {case: list(changes) for case, changes in CASES.items()}
    found: dict[str, Any] = in_one(CODE, [str(PROGRAM), cases, list(WRONG)], tmp_path_factory.mktemp("readers"))
    return found


@pytest.mark.parametrize("case", CASES)
def test_as_by_hand(found: Mapping[str, Any], case: str) -> None:
    """And nothing else that is free is proposed, but what variables hold that a wrong change is about."""
    mine, lines = found[case], PROGRAM.read_text().splitlines()
    assert mine["read"] == mine["plain"]
    proposed = {name: row for name, row in mine.items() if isinstance(row, dict)}
    assert proposed.keys() - ({"release"} if case in WRONG else set()) == CASES[case].keys()
    if "no_grad" in proposed:
        sure = case not in (*WRONG, "inside")  # a module may keep what it makes
        assert (proposed["no_grad"]["free"], proposed["no_grad"]["cost"] == "none") == (sure, sure)
    for change, text in CASES[case].items():
        by_hand = mine[f"{change} by hand"]
        assert by_hand < mine["plain"]
        assert abs(proposed[change]["bytes"] - by_hand) <= 0.01 * by_hand
        assert text in lines[proposed[change]["line"] - 1]
        assert abs(mine.get(f"{change} tried", by_hand) - by_hand) <= 0.01 * by_hand


@pytest.fixture(scope="module")
def computed(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """By case and change, what the program prints on the CPU, or its error."""
    cases = {case: ["", *changes, *([WRONG[case]] if case in WRONG else [])] for case, changes in CASES.items()}
    program = tmp_path_factory.mktemp("computed") / "program.py"
    program.write_text(ON_CPU)
    given = json.dumps([str(PROGRAM.parent), cases])
    environment = clean_environment() | device.environment()
    done = forks.of(PROGRAM.read_text()).run(program, given, environment=environment, cwd=program.parent)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.parametrize("case", CASES)
def test_results(computed: Mapping[str, Any], case: str) -> None:
    """What is proposed as free leaves them as they are, up to rounding; of what is not, the same would not be true."""
    as_it_is = computed[case][""]
    assert isinstance(as_it_is, list) and as_it_is
    for change in CASES[case].keys() - {WRONG.get(case)}:
        assert computed[case][change] == pytest.approx(as_it_is, rel=1e-5)
    if case in WRONG:
        wrong = computed[case][WRONG[case]]
        assert isinstance(wrong, str) or wrong != pytest.approx(as_it_is, rel=1e-3)
