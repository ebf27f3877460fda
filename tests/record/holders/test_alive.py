"""Who holds what is alive when a recording ends, whatever ends it.

PYTEST_DONT_REWRITE: rewritten assertions keep what they compare in local variables of their own.
"""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cuptimem  # noqa: E402  behind torch's presence
from tests.conftest import Result  # noqa: E402

pytestmark = pytest.mark.torch
MIB = 1 << 20
Run = Callable[..., tuple[cuptimem.Report, str]]
Held = dict[int, list[tuple[str, int, int]]]  # by the number of the line: path, count, bytes


def held(report: cuptimem.Report) -> Held:
    return {
        one.frame.line: [(holder.path, holder.count, holder.bytes) for holder in one.holders]
        for one in report.held
        if one.frame is not None
    }


@pytest.fixture
def run(forked: Callable[..., Result], tmp_path: Path) -> Run:
    """Runs it as `program.py`, as `cuptimem run` would; its first line is line 1."""

    def call(program: str, *options: str, code: int = 0) -> tuple[cuptimem.Report, str]:
        (tmp_path / "program.py").write_text(program)
        done = forked("-m", "cuptimem", "run", *options, "-o", "run.cmem", "program.py")
        assert done.code == code, done.err
        return cuptimem.open(tmp_path / "run.cmem"), done.err

    return call


OPTIMIZER = """\
import torch
def build():
    model = torch.nn.Linear(512, 512, bias=False)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, opt = build()
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(1, 512)).sum().backward()
    opt.step()
del model
"""


def test_an_optimizer_holds_a_model_that_was_deleted(run: Run, call: Callable[..., Result]) -> None:
    """Parameters, their gradients and the state, each on its line."""
    report, _ = run(OPTIMIZER)
    found = held(report)
    assert {line: sum(size for _, _, size in rows) for line, rows in found.items()} == {3: MIB, 8: MIB, 9: MIB}
    assert all(path.startswith("opt.state (SGD) in module program → ") for rows in found.values() for path, *_ in rows)
    assert found[8][0][0].endswith(" → .grad")
    shown = call("summary", "--at", "end", "run.cmem").out
    assert shown.count("held by opt.state (SGD) in module program") == 3
    rows = json.loads(call("summary", "--json", "run.cmem").out)["held"]
    assert [(row["line"]["line"], row["bytes"], row["count"]) for row in rows] == [
        (3, MIB, 1),
        (8, MIB, 1),
        (9, MIB, 1),
    ]
    for words in (("peak", "--at", "end"), ("table", "--what", "end")):
        assert call(*words, "run.cmem").out.count("held by opt.state (SGD)") == 3


def test_a_model_comes_before_its_optimizer(run: Run, tmp_path: Path) -> None:
    """Two layers deep, the optimizer's way to a parameter is the shorter one."""
    program = OPTIMIZER.replace("del model\n", "").replace(
        "model = torch.nn.Linear(512, 512, bias=False)",
        "model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False)))",
    )
    report, _ = run(program)
    assert {line: [path for path, *_ in rows] for line, rows in held(report).items()} == {
        3: ["model (Sequential) in module program"],
        8: ["model (Sequential) in module program → .grad"],
        9: ["opt.state (SGD) in module program → defaultdict[...] → dict['momentum_buffer']"],
    }


INSIDE = """\
import torch
class Agent:
    __slots__ = ("kept", "optimizer")
    def __init__(self):
        model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(512, 512, bias=False)))
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.kept = {kept}
class Learner:
    pass
learner = Learner()
learner.agent = Agent()
for _ in range(3):
    learner.agent.optimizer.zero_grad()
    {model}(torch.ones(1, 512)).sum().backward()
    learner.agent.optimizer.step()
"""


@pytest.mark.parametrize(
    ("kept", "model"),
    [
        ("model", "learner.agent.kept"),
        ("{1: [model]}", "learner.agent.kept[1][0]"),
        ("{'actor': model}", "learner.agent.kept['actor']"),
    ],
)
def test_a_model_in_an_attribute_comes_before_its_optimizer(run: Run, tmp_path: Path, kept: str, model: str) -> None:
    report, _ = run(INSIDE.format(kept=kept, model=model))
    path = f"{model} (Sequential) in module program"
    assert {line: [path for path, *_ in rows] for line, rows in held(report).items()} == {
        5: [path],
        14: [f"{path} → .grad"],
    }


SEVERAL = """\
import torch
def new():
    return torch.ones(1 << 18)
class Keeper:
    pass
keeper = Keeper()
keeper.few = [new(), new()]
one = new()
rest = {"a": new(), "b": new(), "c": new(), "d": new(), "e": new()}
view = new()[:16]
"""


def test_holders_of_a_line_sum_to_it(run: Run, call: Callable[..., Result]) -> None:
    """More than are shown; what they leave is the last one."""
    report, _ = run(SEVERAL)
    assert held(report) == {
        3: [
            ("rest in module program → dict[5 keys]", 5, 5 * MIB),
            ("keeper.few (Keeper) in module program → list[0:2]", 2, 2 * MIB),
            ("one in module program", 1, MIB),
            ("others", 1, MIB),
        ]
    }
    done = call("holders", "run.cmem", "program.py:3")
    assert "9.0 MiB in 9 blocks on cpu at the end" in done.out
    assert "held by rest in module program → dict[5 keys] (56 %)" in done.out
    assert "and by others (11 %)" in done.out


STOPPED = """\
import os, signal, torch
def work(step, batch):
    scratch = batch + 1
    if step == 5:
        {how}
    return scratch.sum()
def train():
    seen = []
    for step in range(10):
        seen.append(torch.ones(1 << 18))
        loss = work(step, torch.ones(1 << 19))
train()
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
        ("torch.empty(1 << 50)", 1),
        ("raise ValueError", 1),
    ],
    ids=["interrupted", "out of memory", "failed"],
)
def test_functions_that_an_exception_has_left(run: Run, call: Callable[..., Result], how: str, code: int) -> None:
    report, said = run(STOPPED.format(how=how), code=code)
    found = held(report)
    assert found[10] == [("seen in train() → list[0:6]", 6, 6 * MIB)]
    assert found[3] == [("scratch in work()", 1, 2 * MIB)]
    assert found[11] == [("batch in work()", 1, 2 * MIB)]
    assert ("held by seen in train() → list[0:6]" in said) is (how.startswith("torch"))
    error = {"os": "KeyboardInterrupt", "torch": "RuntimeError", "raise": "ValueError"}[how.split(".")[0].split()[0]]
    moment = f"at the end, when {error} had ended it"
    assert f"2.0 MiB in 1 block on cpu {moment}" in call("holders", "run.cmem", "program.py:3").out
    assert f"What is alive on cpu: 10.0 MiB, {moment}" in call("summary", "--at", "end", "run.cmem").out


WAITING = """\
import torch
class Box:
    def __init__(self, data):
        self.data, self.me = data, self
def make(kept):
    kept.append(Box(torch.ones(1 << 18)).data)
def main():
    kept = []
    for _ in range(6):
        make(kept)
        make([])
    {how}
main()
"""


@pytest.mark.parametrize("how", ["torch.empty(1 << 50)", "raise ValueError"])
def test_garbage_is_not_held_at_the_end(run: Run, call: Callable[..., Result], how: str) -> None:
    """One line makes what is kept and what waits for the collector; the end has the former alone."""
    report, _ = run(WAITING.format(how=how), code=1)
    assert report.device("cpu").end == 6 * MIB
    assert held(report) == {6: [("kept in main() → list[0:6]", 6, 6 * MIB)]}
    shown = call("summary", "--at", "end", "run.cmem").out
    assert "held by kept in main() → list[0:6]\n" in shown and "cycle" not in shown
    if report.oom_left is not None:
        page = call("peak", "--at", "oom", "run.cmem").out
        assert "held by only a reference cycle: Box.me (50 %)" in page


def test_a_block_that_a_refused_request_leaves() -> None:
    def fails() -> Any:
        scratch = torch.ones(1 << 18)
        return torch.empty(1 << 50), scratch

    with pytest.raises(RuntimeError, match="allocate"), cuptimem.profile() as prof:
        kept = [torch.ones(1 << 18)]
        fails()
    rows = sorted(row for rows in held(prof.report).values() for row in rows)
    name = "test_a_block_that_a_refused_request_leaves"
    assert rows == [(f"kept in {name}() → list[0]", 1, MIB), ("scratch in fails()", 1, MIB)]
    assert kept


HELD_BY_CPP = """\
import torch
from torch.utils.dlpack import to_dlpack
capsule = to_dlpack(torch.ones(1 << 18))
values = torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.int64), torch.ones(4, 1 << 16), (8, 1 << 16))
storage = torch.ones(1 << 18).untyped_storage()
start = torch.ones(1 << 18, requires_grad=True)
end = (start * 2).exp().sum()
"""


def test_what_only_cpp_refers_to(run: Run, call: Callable[..., Result]) -> None:
    """A sparse tensor's parts, a storage without a tensor and a graph are reached from Python."""
    report, _ = run(HELD_BY_CPP)
    found = {line: max(rows, key=lambda row: row[2])[0] for line, rows in held(report).items()}
    assert found == {
        3: "no Python object: C++ or numpy holds it",
        4: "values in module program",
        5: "storage in module program",
        6: "start in module program",
        7: "end in module program → .grad_fn → SumBackward0 → saved by ExpBackward0",
    }
    shown = call("holders", "run.cmem", "program.py:3").out
    assert "no Python object: C++ or numpy holds it" in shown and "held by no" not in shown


def test_where_it_was_not_searched(run: Run, call: Callable[..., Result]) -> None:
    with cuptimem.profile() as outer, cuptimem.profile() as inner:
        kept = torch.ones(1 << 18)
    assert not inner.report.held
    assert [one.holders[0].path for one in outer.report.held] == ["kept in test_where_it_was_not_searched()"]
    report, _ = run("import torch\nkept = torch.ones(1 << 18)\n", "--no-holders")
    assert not report.held and report.environment["holders"] == "off"
    done = call("holders", "run.cmem")
    assert done.code == 1 and "recorded without the search for holders" in done.err
    assert kept is not None


def test_a_line_that_grew_and_is_gone(run: Run, call: Callable[..., Result]) -> None:
    program = """\
import torch
def train():
    layer, losses = torch.nn.Linear(8, 8), []
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(40):
        layer(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        losses.append(torch.ones(1 << 10))
train()
"""
    run(program)
    shown = call("holders", "run.cmem", ":8").out
    assert "held by losses in train() → list[0:23], as of step 23" in shown
    done = call("holders", "program.py:6")
    assert done.code == 1 and "nothing of it was alive at the end, and it did not grow" in done.err
    machine = json.loads(call("holders", "run.cmem", "--json").out)
    assert [(row["line"]["line"], row["held"], len(row["leaks"])) for row in machine["lines"]] == [(8, [], 1)]
