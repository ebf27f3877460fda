"""Which line of a program makes its optimizers and DataLoaders?"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import clean_environment

pytestmark = pytest.mark.torch
MADE = """
import torch
from torch.utils.data import DataLoader

class Own(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(
            parameters, lr=0.1)

class Batches(DataLoader):
    def __init__(self, data, *rest):
        super().__init__(data, *rest)

def build(parameters, name):
    return getattr(torch.optim, name)(parameters)  # a factory

net = torch.nn.Linear(2, 2)
optimizers = [
    Own(net.parameters()),  # own
    build(net.parameters(), "AdamW"),
]
gone = torch.optim.Adam(net.parameters())
del gone
class Odd:
    batch_size = property(lambda self: 1 / 0)

    def __iter__(self):
        return iter([[0, 1]])

data = list(range(8))
held_out = DataLoader(data, 8)  # held out
loaders = [
    Batches(data, 4),  # batches
    DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(range(8), 2, False)),  # sampler
    DataLoader(data, batch_size=None),
    DataLoader(data, batch_sampler=Odd()),
]
library = {"DataLoader": DataLoader}
exec(compile("def prepare(one): return DataLoader(one.dataset, 5)", "/x/site-packages/prepare.py", "exec"), library)
own = DataLoader(data[:], 5)  # prepared
prepared = library["prepare"](own)
never = DataLoader(data, 3)
with torch.no_grad():
    list(held_out)
for one in [*loaders, prepared]:
    list(one), list(one)

class Zeroed(torch.optim.SGD):
    def clear(self):
        self.zero_grad(False)

zeroed = Zeroed(net.parameters())
zeroed.clear()  # zeros
zeroed.zero_grad()
net.zero_grad(set_to_none=True)
"""
DRIVER = """
import json, runpy, sys
from cuptimem.simulation.makers import Makers
makers = Makers()
makers.start()
made = runpy.run_path(sys.argv[1])
print(json.dumps([[makers.line_of(one) for one in made["optimizers"]], makers.loaders, makers.zeroing]))
"""


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(MADE)
    lines = {text.partition("#")[2].strip(): number for number, text in enumerate(MADE.splitlines(), 1) if "#" in text}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, path], env=clean_environment(), capture_output=True, text=True, check=True
    )
    optimizers, loaders, zeroing = json.loads(done.stdout)
    assert zeroing == [[str(path), "<module>", lines["zeros"]]]
    assert optimizers == [[str(path), "<module>", lines["own"]], [str(path), "build", lines["a factory"]]]
    assert loaders == [
        [4, [str(path), "<module>", lines["batches"]]],
        [2, [str(path), "<module>", lines["sampler"]]],
        [5, [str(path), "<module>", lines["prepared"]]],
        [8, [str(path), "<module>", lines["held out"]]],
    ]
