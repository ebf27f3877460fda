"""Which activation modules may have inplace=True: by all calls of them that their program can make."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environment

RUN = """
import gc, importlib, json, sys
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from cuptimem.simulation.modules import Modules

class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        modules.look()
        made = function(*args, **(kwargs or {}))
        if "leaky" in str(function):
            rows.append({"into": [0]})
            modules.made(rows[-1], sys._getframe(1))
        return made

found = []
gc.freeze()  # what PyTorch has made is searched no more
sys.path.insert(0, sys.argv[1])
for number in range(int(sys.argv[2])):
    modules, rows = Modules(), []
    program = importlib.import_module(f"case{number}")
    with Mode():
        kept = program.step()
    modules.finish()
    found.append([bool(row["into"]) for row in rows])
    del sys.modules[program.__name__], program, kept
    gc.collect()
print(json.dumps(found))
"""
PROGRAM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        act = nn.LeakyReLU()
        self.layer = nn.Linear(4, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4))
        {init}

    def forward(self, x):
        {forward}

class Other(nn.Module):
    def forward(self, x):
        return self.act(x) + x

def step():
    net = Net().eval()
    for _ in range(3):
        net(torch.ones(2, 4))
    {also}
    return net
"""
BODY, BRANCH = "return self.body(x)", "if self.training: return {}\n        return self.{}"
LISTED = "for body in self.all:\n            x = body(x)\n        return x"
OWN = "self.act = nn.LeakyReLU()"
CASES = {
    "in a sequence": (True, "pass", BODY, "pass"),
    "of an attribute": (True, OWN, "return self.act(self.layer(x))", "pass"),
    "an attribute, too": (False, "self.act = act", BODY, "pass"),
    "in a list": (False, "self.every = [act]", BODY, "pass"),
    "in a variable": (False, "global ACT; ACT = act", BODY, "pass"),
    "of a sequence that has two": (False, "self.two = nn.Sequential(act)", BODY, "pass"),
    "called on a branch": (False, OWN, BRANCH.format("x * self.act(x)", "act(self.layer(x))"), "pass"),
    "by an index": (False, "pass", BRANCH.format("x * self.body[1](x)", "body(x)"), "pass"),
    "in a loop": (False, "pass", BRANCH.format("[f(x) for f in self.body]", "body(x)"), "pass"),
    "of a list": (True, "self.all = nn.ModuleList([self.body]); del self.body", LISTED, "pass"),
    "of a list, in a loop": (
        False,
        "self.all = nn.ModuleList([self.body]); del self.body",
        LISTED + "\n        for one in self.all:\n            for f in one: x = f(x)",
        "pass",
    ),
    "a weight by an index": (True, "self.body[0].weight.data.zero_()", BODY, "pass"),
    "behind what may give its input": (False, "self.body[0] = nn.Dropout()", BODY, "pass"),
    "behind code of the program's": (
        False,
        "self.body[0] = Other()\n        Other.forward = lambda s, x: x",
        BODY,
        "pass",
    ),
    "with a hook": (False, "self.layer.register_forward_hook(print)", BODY, "pass"),
    "with a hook later": (False, "pass", BODY, "if 0: net.register_forward_hook(print)"),
    "with a library's hook": (True, "nn.utils.spectral_norm(self.layer)", BODY, "pass"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bool]]:
    folder = tmp_path_factory.mktemp("modules")
    for number, (_, init, forward, also) in enumerate(CASES.values()):
        text = PROGRAM.format(init=init, forward=forward, also=also)
        (folder / f"case{number}.py").write_text(text)
    words = [sys.executable, "-c", RUN, str(folder), str(len(CASES))]
    done = subprocess.run(words, env=clean_environment(), capture_output=True, text=True, timeout=300, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_calls_that_a_run_did_not_come_to(found: dict[str, list[bool]], case: str) -> None:
    assert found[case] == [CASES[case][0]] * 3
