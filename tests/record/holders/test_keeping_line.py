"""Which line puts what grows into its container: from the text of programs, and in a recording."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output.text import leak_views, text
from cuptimem.record import keeping_line


@pytest.fixture(autouse=True)
def only_the_given_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_line, "_files_of_program", list)


SOURCE = """\
import heapq
from collections import defaultdict

cache, shadowed = {}, []


class Trainer:
    seen = []

    def __init__(self):
        self.history, self.bank, self.twice = [], defaultdict(list), []

    def log(self, loss):
        self.history.append(loss)

    def remember(self, key, x):
        self.bank[key].append(x)
        self.twice.append(x)

    def again(self, x):
        self.twice.append(x)


def main(loader):
    losses, worst, rows, sums, groups = [], [], [], [], {}

    def keep(x):
        losses.append(x)

    for x in loader:
        keep(x)
        heapq.heappush(worst, (x.sum(), x))
        rows += [x]
        sums = sums + [x]
        groups.setdefault(
            x.kind, []
        ).append(x)
        Trainer.seen.insert(0, x)


def other(losses):
    losses.append(1)


def fill(i, x):
    cache[i] = x


def shadow(shadowed):
    shadowed.append(1)
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("self.history (Trainer) in fit() → list[0:24] → .grad_fn", "14 in Trainer.log"),
        ("trainer.bank (Trainer) in main() → defaultdict[0:3] → list[0:8]", "17 in Trainer.remember"),
        ("Trainer.seen (class) → list[0:40]", "38 in main"),
        ("losses in main() → list[0:9]", "28 in main.<locals>.keep"),
        ("worst in main() → list[0:9] → tuple[1]", "32 in main"),
        ("rows in main() → list[0:9]", "33 in main"),
        ("sums in main() → list[0:9]", "34 in main"),
        ("groups in main() → dict[...] → list[0:9]", "35 in main"),
        ("cache in module train → dict[0:9]", "46 in fill"),
        ("cache in module train → dict[7 keys] → .history (Trainer) → list[0:26] → dict['in']", "14 in Trainer.log"),
        ("cache in module train → dict[7 keys] → .layers (Cache) → deque(maxlen=99)[0:9]", "46 in fill"),  # a library's
        ("cache in module train → dict[7 keys] → .twice (Trainer) → list[0:9]", ""),
        ("cache in module train → dict[7 keys] → .kind (Item) → list[0:9]", ""),  # read, and never seen being filled
        ("cache in module train → dict[7 keys] → … → .history (Trainer) → list[0:9]", ""),  # cut
        ("cache in module train → dict[7 keys] → .histo…", ""),
        ("trainer.twice (Trainer) in main() → list[0:9]", ""),  # two lines do
        ("shadowed in module train → list[0:9]", ""),  # only a parameter of that name
        ("losses in elsewhere() → list[0:9]", ""),
        ("total in main() → .grad_fn → AddBackward0", ""),  # no container
        ("others", ""),
        ("only a reference cycle: Episode.env → Env.episode", ""),
        ("no Python object: C++ or numpy holds it", ""),
    ],
)
def test_the_line_of_a_path(tmp_path: Path, path: str, line: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    assert keeping_line.find(path, [str(file)], time.time() + 60) == (f"train.py:{line}" if line else "")


OTHERWISE = """\
import torch
losses, seen, buf, nested, meters = [], {}, [], {"a": {"b": []}}, {}


def log(out, x):
    out.append(x)


def remember(k, v, seen=seen):
    seen[k] = v


def reset():
    seen["x"] = None


class Meter:
    def add(self, x):
        self.records.append(x * 2)


class Logger:
    pass


class Named(Meter):
    pass


losses.append(torch.ones(4))
buf.append(torch.ones(1))
push = buf.append
nested["meta"] = torch.ones(1)
inner = nested["a"]["b"]
for i in range(40):
    log(losses, torch.ones(4))
    push(i)
    inner.append(i)
    meters["n"] = 0
    meters.__setitem__(i, torch.ones(4))
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("losses in module train → list[1:40]", ""),  # a function gets it under another name
        ("seen in module train → dict[0:40]", ""),
        ("buf in module train → list[1:40]", ""),
        ("nested in module train → dict[...] → dict[...] → list[0:40]", ""),
        ("log.records (Logger) in module train → list[0:40]", ""),  # another class's attribute of that name
        ("meter.records (Named) in module train → list[0:40]", "19 in Meter.add"),
        ("meters in module train → dict[0:40]", "40 in <module>"),  # what puts a number is another line
    ],
)
def test_a_name_alone_is_no_proof(tmp_path: Path, path: str, line: str) -> None:
    file = tmp_path / "train.py"
    file.write_text(OTHERWISE)
    assert keeping_line.find(path, [str(file)], time.time() + 60) == (f"train.py:{line}" if line else "")


def test_a_file_that_has_changed_since_is_not_asked(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    path = "cache in module train → dict[0:9]"
    assert keeping_line.find(path, [str(file)], file.stat().st_mtime - 1) == ""
    assert keeping_line.find(path, [str(tmp_path / "gone.py")], time.time()) == ""
    file.write_text("cache[1] = (")
    assert keeping_line.find(path, [str(file)], time.time() + 60) == ""


PROGRAM = """\
import torch


class Trainer:
    def __init__(self):
        self.layer = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        self.history = []

    def step(self):
        loss = self.layer(torch.ones(2, 4)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def log(self, loss):
        self.history.append(loss)

    def fit(self):
        for _ in range(40):
            self.log(self.step())


Trainer().fit()
"""


@pytest.mark.torch
def test_a_holder_that_is_gone_at_the_end_has_its_line(tmp_path: Path) -> None:
    script, trace = tmp_path / "train.py", tmp_path / "run.cmem"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "cuptimem", "run", "-o", trace, script]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    (leak,) = cuptimem.open(trace).leaks
    (holder,) = leak.holders
    assert holder.path.startswith("self.history (Trainer) in fit() → list[0:23]") and holder.step is not None
    assert holder.put_at == "train.py:18 in Trainer.log"
    assert "held by self.history (Trainer) in fit(), put there by train.py:18" in said
    shown = text.render(leak_views.entry(leak, several_loops=False), 80)
    assert "kept by" not in shown
    assert "   put there by train.py:18 in Trainer.log\n" in shown
