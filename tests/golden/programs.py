"""What the golden traces are recorded of: a table of programs, each a few steps long, and how each is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recording:
    """A program and the command that records it; the trace has the name of its row in RECORDINGS."""

    program: str
    options: tuple[str, ...] = ()  # of `cuptimem run`
    by: str = "run"  # "run", "profile" (the program itself records, into its argument), "pytest"
    cuda: bool = False  # with PyTorch's CUDA build, on a simulated device
    device: Mapping[str, object] = field(default_factory=dict)  # keywords of simulated.device.environment
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # beside the program
    code: int = 0  # the exit code that it ends with
    child: str = ""  # the trace of its child process is kept, too, under this name
    scrub: tuple[str, ...] = ()  # options of `cuptimem scrub`


MODEL = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


"""

TRAIN = (
    MODEL
    + """\
model = Net()
optimizer = torch.optim.Adam(model.parameters())
for step in range({steps}):
    loss = model(torch.randn(8, 32)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{body}"""
)

# Steps without PyTorch's modules, which make small traces.
SMALL = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
{before}for step in range({steps}):
    loss = (torch.ones(8, 64) @ weight).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
{body}"""


def train(steps: int, body: str = "") -> str:
    return TRAIN.format(steps=steps, body=body)


def small(steps: int, body: str = "", before: str = "", needs: str = "") -> str:
    program = SMALL.format(steps=steps, body=body, before=before)
    return f"import {needs}\n\n{program}" if needs else program


LEAK_CLOSURES = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)


class Tracker:
    def __init__(self):
        self.callbacks = []

    def watch(self, value):
        self.callbacks.append(lambda: value.norm())


tracker = Tracker()
for step in range(30):
    output = torch.ones(8, 64) @ weight
    output.sum().backward()
    tracker.watch(output.detach().clone())
    optimizer.step()
    optimizer.zero_grad()
"""

LEAK_GRAPH = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
total = 0
for step in range(30):
    hidden = torch.ones(8, 64) @ weight
    loss = hidden.exp().sum()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    total += loss
print(float(total))
"""

EVALUATE = (
    MODEL
    + """\
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for step in range(4):
        model(torch.randn(8, 32)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
    with torch.no_grad():
        scores = [model(torch.randn(8, 32)) for _ in range(4)]
    model.train()
"""
)

INFERENCE = (
    MODEL
    + """\
model = Net().eval()
cache = {}
with torch.no_grad():
    for step in range(14):
        cache[step] = model(torch.randn(4, 32))
"""
)

LOADER = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = DataLoader(TensorDataset(torch.randn(96, 64)), batch_size=8)
seen = []
for (batch,) in data:
    hidden = batch.exp()
    seen.append(hidden.sum(0))
"""

BACKWARD = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True)
for step in range(14):
    loss = (torch.ones(8, 64) @ weight).square().sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    weight.grad = None
"""

GAN = """\
import torch
from torch import nn

torch.manual_seed(0)
generator, critic = nn.Linear(8, 32), nn.Linear(32, 1)
first = torch.optim.SGD(generator.parameters(), lr=0.1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(8):
    second.zero_grad()
    (critic(generator(torch.randn(4, 8)).detach()).mean() - critic(torch.randn(4, 32)).mean()).backward()
    second.step()
    if step % 2:
        first.zero_grad()
        (-critic(generator(torch.randn(4, 8))).mean()).backward()
        first.step()
"""

NO_STEPS = """\
import torch

table = torch.arange(4096, dtype=torch.float32).reshape(64, 64)
for power in range(3):
    table = table @ torch.eye(64)
pieces = [row.clone() for row in table[:5]]
del table
"""

THREADS = """\
import threading
import torch


def work(number):
    kept = [torch.full((256 * number,), 1.0) for _ in range(4)]
    return sum(float(one.sum()) for one in kept)


threads = [threading.Thread(target=work, args=(number + 1,)) for number in range(3)]
for thread in threads:
    thread.start()
    thread.join()
work(9)
"""

GARBAGE = small(
    24,
    """\
    node = {"batch": torch.ones(512)}
    node["itself"] = node
    del node
    if step % 8 == 7:
        gc.collect()
""",
    needs="gc",
)

WINDOWS = """\
import sys

import torch

import cuptimem

for part in range(3):
    pass
weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
with cuptimem.profile(sys.argv[1]):
    for part in range(3):
        with cuptimem.profile():
            kept = []
            for step in range(3):
                (torch.ones(8 * (part + 1), 64) @ weight).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                kept.append(torch.ones(100))
"""

SCHEDULE = """\
import sys

import torch

import cuptimem

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
with cuptimem.profile(sys.argv[1], schedule=cuptimem.schedule(wait=2, warmup=1, active=3, repeat=1)) as profile:
    for step in range(9):
        (torch.ones(8, 64) @ weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        profile.step()
"""

MIDDLE = """\
import sys

import torch

import cuptimem

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.Adam([weight], lr=0.1)
history = []


def step():
    (torch.ones(8, 64) @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append(torch.ones(300))


for _ in range(5):
    step()
with cuptimem.profile(sys.argv[1]):
    for _ in range(8):
        step()
    del history[:3]
"""

FORK = small(
    6,
    needs="os",
    body="""\
    if step == 2:
        child = os.fork()
        kept = torch.ones(1024 if child else 2048)
if child == 0:
    more = [torch.ones(64) for _ in range(5)]
else:
    os.waitpid(child, 0)
""",
)

NOTEBOOK = """\
import linecache

CELLS = [
    "import torch\\nweight = torch.zeros(64, 64, requires_grad=True)\\nkept = []\\n",
    "for step in range(12):\\n    y = torch.ones(8, 64) @ weight\\n"
    "    y.sum().backward()\\n    kept.append(y.detach())\\n",
    "total = torch.stack(kept)\\n",
]
space = {}
for number, cell in enumerate(CELLS, 1):
    name = f"/tmp/ipykernel_4711/{1000000 + number}.py"
    linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
    exec(compile(cell, name, "exec"), space)
"""

PACKAGE = """\
import torch


def smooth(values):
    spread = values[None] * torch.ones(4, 1)
    return spread.mean(0)


class Buffer:
    def __init__(self):
        self.values = []

    def add(self, value):
        self.values.append(smooth(value))
"""

PACKAGED = """\
import sys

sys.path.insert(0, "lib/python3/site-packages")
import torch
from smoother import Buffer

weight = torch.zeros(64, 64, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
buffer = Buffer()
for step in range(30):
    (torch.ones(8, 64) @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    buffer.add(torch.ones(512))
"""

PYTEST = """\
import pytest
import torch


@pytest.mark.limit_tensor_memory("4 KiB")
def test_products():
    table = torch.ones(64, 64)
    assert float((table @ table).sum()) == 64**3
"""

CHECKPOINT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2))
optimizer = torch.optim.AdamW(blocks.parameters())
for step in range(4):
    x = torch.randn(8, 16)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CONVOLUTION = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.zeros(4, dtype=torch.long)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

RECURRENT = """\
import torch
from torch import nn

torch.manual_seed(0)
words, cell = nn.Embedding(50, 16), nn.GRUCell(16, 16)
optimizer = torch.optim.RMSprop([*words.parameters(), *cell.parameters()])
state = torch.zeros(2, 16)
for step in range(4):
    for position in range(3):
        state = cell(words(torch.tensor([step, position])), state)
    state.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    state = state.detach()
"""

CUDA_MODEL = (
    MODEL
    + """\
model = Net(256).cuda()
optimizer = torch.optim.Adam(model.parameters())
"""
)

CUDA_TRAIN = (
    CUDA_MODEL
    + """\
for step in range(4):
    model(torch.ones(16, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)

CUDA_LEAK = """\
import torch

weight = torch.zeros(64, 64, requires_grad=True, device="cuda")
optimizer = torch.optim.SGD([weight], lr=0.1)
losses = []
for step in range(26):
    loss = (torch.ones(64, 64, device="cuda") @ weight).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss)
"""

OOM_LEFT = """\
import torch

layers = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
layers.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
"""

OOM_CAUGHT = """\
import torch

size = 16 << 30
kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
while True:
    try:
        batch = torch.empty(size, dtype=torch.uint8, device="cuda")
        break
    except torch.cuda.OutOfMemoryError:
        size //= 4
del batch
"""

# Every second block of 12 MiB stays, so that no 20 MiB are in one piece.
FRAGMENTED = """\
import torch

blocks = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(12)]
del blocks[::2]
small = [torch.empty(100_000, dtype=torch.uint8, device="cuda") for _ in range(30)]
del small[1:]
large = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
"""

STREAMS = """\
import torch

other = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
for step in range(3):
    y = x * 2
    with torch.cuda.stream(other):
        other.wait_stream(torch.cuda.current_stream())
        z = y + 1
        y.record_stream(other)
    del y
    torch.cuda.synchronize()
"""

TWO_DEVICES = """\
import torch

first = torch.nn.Linear(128, 128, device="cuda:0")
second = torch.nn.Linear(128, 128, device="cuda:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range(4):
    hidden = first(torch.ones(32, 128, device="cuda:0"))
    second(hidden.to("cuda:1")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

READS = """\
import torch

values = torch.rand(1000, device="cuda")
for step in range(3):
    if float((values * 2).max()) > 2:
        break
    values = values + 1
print(torch.arange(4, device="cuda").tolist())
"""

PAST_BOUND = small(150, "    if step % 10 == 0:\n        kept.append(torch.ones(500))\n", "kept = []\n")

EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}

RECORDINGS: dict[str, Recording] = {
    "train": Recording(train(6)),
    "train-wider": Recording(train(6).replace("width=32", "width=48").replace("8, 32", "8, 48")),
    "train-operators": Recording(train(2), ("--operators",)),
    "train-no-walks": Recording(train(3), ("--no-walks", "--no-holders")),
    "checkpoint": Recording(CHECKPOINT),
    "convolution": Recording(CONVOLUTION),
    "recurrent": Recording(RECURRENT),
    "gan": Recording(GAN),
    "evaluate": Recording(EVALUATE),
    "leak-list": Recording(small(30, "    kept.append(torch.ones(1024))\n", "kept = []\n")),
    "leak-graph": Recording(LEAK_GRAPH),
    "leak-cache": Recording(small(30, "    cache[step] = loss.detach() * torch.ones(600)\n", "cache = {}\n")),
    "leak-closures": Recording(LEAK_CLOSURES, scrub=("--no-source", "--hide", "watch")),
    "leak-few-steps": Recording(small(8, "    kept.append(torch.ones(1024))\n", "kept = []\n")),
    "suspects": Recording(small(36, "    losses.append(loss.detach())\n", "losses = []\n")),
    "filling": Recording(
        small(
            30, "    recent.append(torch.ones(700))\n", "recent = collections.deque(maxlen=200)\n", needs="collections"
        )
    ),
    "clock-module": Recording(INFERENCE),
    "clock-data": Recording(LOADER),
    "clock-backward": Recording(BACKWARD),
    "no-steps": Recording(NO_STEPS),
    "threads": Recording(THREADS),
    "garbage": Recording(GARBAGE),
    "windows": Recording(WINDOWS, by="profile"),
    "schedule": Recording(SCHEDULE, by="profile"),
    "middle": Recording(MIDDLE, by="profile"),
    "fork": Recording(FORK, ("--follow",), child="fork-child"),
    "exec": Recording(small(4, '\nos.execv("/bin/true", ["true"])\n', needs="os")),
    "killed": Recording(small(6, "\nos.kill(os.getpid(), 9)\n", needs="os"), code=-9),
    "failed": Recording(small(3, "\nraise ValueError(step)\n"), code=1),
    "max-size": Recording(PAST_BOUND, ("--max-size", "16K")),
    "max-size-killed": Recording(
        "import os\n\n" + PAST_BOUND + "\nos.kill(os.getpid(), 9)\n", ("--max-size", "16K"), code=-9
    ),
    "notebook": Recording(NOTEBOOK),
    "code": Recording(
        PACKAGED,
        environment={"CUPTIMEM_CODE": "smoother"},
        files={"lib/python3/site-packages/smoother.py": PACKAGE},
    ),
    "pytest": Recording(PYTEST, by="pytest", code=1),
    "cuda-train": Recording(CUDA_TRAIN, cuda=True),
    "cuda-operators": Recording(CUDA_TRAIN.replace("range(4)", "range(2)"), ("--operators", "--no-driver"), cuda=True),
    "cuda-expandable": Recording(CUDA_TRAIN.replace("range(4)", "range(2)"), cuda=True, environment=EXPANDABLE),
    "cuda-malloc-async": Recording(
        CUDA_TRAIN.replace("range(4)", "range(2)"),
        cuda=True,
        environment={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    ),
    "cuda-kernels": Recording(STREAMS, ("--kernels",), cuda=True),
    "cuda-leak": Recording(CUDA_LEAK, cuda=True),
    "cuda-fragmented": Recording(FRAGMENTED, cuda=True, device={"device": "t4"}),
    "cuda-two-devices": Recording(TWO_DEVICES, cuda=True, device={"devices": 2}),
    "cuda-reads": Recording(READS, cuda=True, device={"device": "l4"}),
    "oom-left": Recording(OOM_LEFT, cuda=True, device={"memory": "4GiB"}, code=1),
    "oom-caught": Recording(OOM_CAUGHT, cuda=True, device={"memory": "4GiB"}),
}
