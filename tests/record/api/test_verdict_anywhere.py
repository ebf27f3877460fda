"""The same loop has the same verdict alone, as a window, under `cuptimem run`, and however often it is asked for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from tests.conftest import Result, clean_environment
from tests.forkserver import Forks

pytestmark = pytest.mark.torch

# A training that keeps a list, or makes garbage in cycles, and what happens between its last step and the end.
PROGRAM = """
import gc, json, sys
import torch


class Knot:
    def __init__(self, tensor):
        self.me, self.tensor = self, tensor


def young():
    return [[] for _ in range(300_000)] and None


TAILS = {"nothing": lambda: None, "young": young, "zero": lambda: gc.collect(0), "one": lambda: gc.collect(1)}


def train(leaks, tail, look=lambda step: None):
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(40):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if leaks:
            kept.append(torch.empty(1000))
        else:
            Knot(torch.empty(1000))
        look(step)
    TAILS[tail]()
    return kept


# No full collection but those that are asked for; a search for holders makes too few objects for a young one.
gc.set_threshold(100_000, 10, 1_000_000)
"""

ASKING = """
import cuptimem


def verdict(prof):
    report = prof.report
    return [[leak.reason, leak.bytes_per_step] for leak in (*report.leaks, *report.suspects)]


said = {}
for leaks in (True, False):
    for tail in TAILS if not leaks else ("young",):
        with cuptimem.profile() as alone:
            train(leaks, tail)
        with cuptimem.profile() as outer:
            with cuptimem.profile() as window:
                train(leaks, tail)
            at_once = verdict(window)
        said[f"{leaks} {tail}"] = [verdict(alone), at_once, verdict(window), verdict(outer)]
    with cuptimem.profile() as asked:
        train(leaks, "nothing", lambda step: asked.report if step in (20, 39) else None)
    said[f"{leaks} asked"] = [verdict(asked)]
    def inside():
        prof = cuptimem.profile()
        prof.start()
        train(leaks, "nothing", lambda step: step == 39 and prof.stop())
        return prof

    said[f"{leaks} inside"] = [verdict(inside())]
    with cuptimem.profile() as asked:
        kept = train(leaks, "nothing")
        said[f"{leaks} snapshot"] = [verdict(asked)]
        gc.collect()
        said[f"{leaks} collected"] = [verdict(asked)]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("anywhere")
    script = folder / "asking.py"
    script.write_text(PROGRAM + ASKING)
    done = forks.of(PROGRAM).run(script, environment=clean_environment(), cwd=folder)
    assert (done.code, done.err) == (0, "")
    answer: dict[str, list[Any]] = json.loads(done.out)
    return answer


@pytest.mark.parametrize(
    ("leaks", "tail"), [(True, "young"), *((False, tail) for tail in ("nothing", "young", "zero", "one"))]
)
def test_alone_and_as_a_window(said: dict[str, list[Any]], leaks: bool, tail: str) -> None:
    """Whatever collection runs behind the last step."""
    verdict = [["" if leaks else "late garbage", 4000.0]]
    assert said[f"{leaks} {tail}"] == [verdict] * 4


@pytest.mark.parametrize("leaks", [True, False])
def test_a_profile_that_ends_inside_the_loops_function(said: dict[str, list[Any]], leaks: bool) -> None:
    """Its collection leaves what the function holds, so garbage is told for certain."""
    assert said[f"{leaks} inside"] == [[["" if leaks else "garbage", 4000.0]]]


@pytest.mark.parametrize("leaks", [True, False])
def test_a_report_in_the_middle(said: dict[str, list[Any]], leaks: bool) -> None:
    """It says that no collection was made, changes no verdict by being asked for, and knows after gc.collect()."""
    verdict = [["" if leaks else "late garbage", 4000.0]]
    assert said[f"{leaks} snapshot"] == [[["no collection", 4000.0]]]
    assert said[f"{leaks} collected"] == [verdict]
    # A report makes so many objects that Python collects young ones, and some of the garbage with them.
    assert said[f"{leaks} asked"] in ([[verdict]] if leaks else [[verdict], [[]]])


@pytest.mark.parametrize("leaks", [True, False])
def test_under_run(forked: Callable[..., Result], leaks: bool, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"{PROGRAM}\nkept = train({leaks}, 'young')\n")
    done = forked("-m", "cuptimem", "run", "-q", "-o", "run.cmem", "program.py")
    assert (done.code, done.err) == (0, "")
    report = cuptimem.open(tmp_path / "run.cmem")
    found = [(leak.reason, leak.bytes_per_step) for leak in (*report.leaks, *report.suspects)]
    assert found == [("" if leaks else "late garbage", 4000.0)]
