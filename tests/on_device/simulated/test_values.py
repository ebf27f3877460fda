"""Values on the simulated device: what is computed, what stays unknown, and what is read of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuptimem.simulation.computed import LARGEST_FLOAT, LARGEST_INTEGER

pytestmark = pytest.mark.cuda_torch

# `unknown` is what only a kernel would have computed.
BEGIN = """\
import json, torch
import torch.nn.functional as F
cuda = dict(device="cuda")
unknown = torch.randn(4, 6, **cuda) @ torch.randn(6, 6, **cuda)
found = {}
"""
END = 'print("FOUND " + json.dumps(found))\n'

COMPUTED = (
    BEGIN
    + """\
ids = torch.arange(12, **cuda).view(3, 4)
mask = torch.ones(3, 4, dtype=torch.long, **cuda)
mask[0, 0] = 0
lengths = mask.sum(1)
found["flags"] = [bool(mask.all()), bool(mask.any()), bool((mask == 1).all()), bool(torch.equal(ids, ids.clone()))]
found["lengths"] = [lengths.tolist(), lengths.max().item(), lengths.cumsum(0, dtype=torch.int32).tolist()]
found["split"] = [len(one) for one in torch.zeros(11, **cuda).split(lengths.tolist())]
found["packed"] = F.pad(lengths.cumsum(0), (1, 0)).tolist()
found["positions"] = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1).tolist()
found["nonzero"] = [mask.nonzero().shape[0], ids[mask.bool()].tolist(), torch.where(ids > 9)[1].tolist()]
found["unique"] = torch.unique(ids % 3, return_counts=True)[1].tolist()
found["repeats"] = torch.repeat_interleave(torch.arange(3, **cuda), lengths).tolist()
found["bincount"] = [torch.bincount(lengths).tolist(), F.one_hot(lengths).shape[1]]
found["shifted"] = F.pad(ids[:, 1:], (0, 1), value=-100)[0].tolist()
found["moved"] = [torch.cat([ids, ids + 1], 1)[0].tolist(), ids.flip(1)[0].tolist(), ids.t().contiguous()[0].tolist()]
found["sorted"] = [ids[0].argmax().item(), (-ids[0]).sort().indices.tolist(), ids.flatten().topk(2).values.tolist()]
found["floats"] = [torch.full((2,), 0.5, **cuda).mul(3).tolist(), torch.linspace(0, 1, 3, **cuda).tolist()]
found["kinds"] = [ids.to(torch.int32).sum().item(), ids.float().mean().item(), (2 * ids[0] + 1).tolist()]
written = torch.zeros(4, dtype=torch.long, **cuda)
written.index_put_((torch.tensor([1, 3], **cuda),), torch.tensor([7, 8], **cuda))
written.scatter_(0, torch.tensor([0], **cuda), 9)
found["written"] = written.tolist()
found["drawn"] = bool((torch.rand(64, **cuda) < 2).all()) and 0 <= torch.randint(5, (1,), **cuda).item() < 5
found["graph"] = True
x = torch.zeros(3, requires_grad=True, **cuda)
((x + 1) * 2).sum().backward()
found["gradient"] = x.grad.tolist()
found["cut off"] = [(torch.ones(2, dtype=torch.uint8, **cuda) * 300).tolist(), (ids[0].int() ^ 0x9E3779B9)[0].item()]
torch.searchsorted(torch.arange(5.0, **cuda), 2.5), torch.bucketize(2.5, torch.arange(5.0, **cuda))
torch.manual_seed(3)
drawn = torch.rand(8, **cuda).tolist()
torch.manual_seed(3)
found["again"] = torch.rand(8, **cuda).tolist() == drawn
import operator
dtypes = [torch.bool, torch.uint8, torch.int32, torch.int64]
dtypes += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
operations = [operator.add, operator.mul, operator.truediv, operator.floordiv, operator.pow, operator.eq, operator.lt]
different = []
for dtype in dtypes:  # PyTorch on the CPU says what is right: types as well as values
    for shape in ((), (3,)):
        host = torch.ones(shape, dtype=dtype)
        for number in (True, 2, 2.5, host.clone(), torch.tensor(3), torch.tensor(1.5)):
            for operation in operations:
                for turned in (False, True):
                    other = number.cuda() if isinstance(number, torch.Tensor) and number.dim() else number
                    if operation is operator.pow and isinstance(number, torch.Tensor):
                        continue  # of two tensors it is not computed
                    try:
                        on_host = operation(number, host) if turned else operation(host, number)
                    except (NotImplementedError, RuntimeError):
                        continue  # there is no such operation on the CPU
                    on_device = operation(other, host.cuda()) if turned else operation(host.cuda(), other)
                    if on_host.dtype != on_device.dtype or on_host.tolist() != on_device.tolist():
                        case = (operation.__name__, dtype, shape, number, turned, on_host, on_device)
                        different.append(str(case))
found["different"] = different[:5]
with torch.device("cuda"):
    found["mode"] = torch.arange(3).add(1).tolist()
"""
    + END
)

EXPECTED: dict[str, Any] = {
    "flags": [False, True, False, True],
    "lengths": [[3, 4, 4], 4, [3, 7, 11]],
    "split": [3, 4, 4],
    "packed": [0, 3, 7, 11],
    "positions": [[1, 0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]],
    "nonzero": [11, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [2, 3]],
    "unique": [4, 4, 4],
    "repeats": [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
    "bincount": [[0, 0, 0, 1, 2], 5],
    "shifted": [1, 2, 3, -100],
    "moved": [[0, 1, 2, 3, 1, 2, 3, 4], [3, 2, 1, 0], [0, 4, 8]],
    "sorted": [3, [3, 2, 1, 0], [11, 10]],
    "floats": [[1.5, 1.5], [0.0, 0.5, 1.0]],
    "kinds": [66, 5.5, [1, 3, 5, 7]],
    "written": [9, 7, 0, 8],
    "drawn": True,
    "graph": True,
    "gradient": [2.0, 2.0, 2.0],
    "cut off": [[44, 44], 0x9E3779B9 - (1 << 32)],
    "again": True,
    "different": [],
    "mode": [1, 2, 3],
}


def found_in(text: str) -> dict[str, Any]:
    (line,) = [line for line in text.splitlines() if line.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found


def test_what_is_known_is_computed(simulate: Callable[..., Any]) -> None:
    done = simulate(COMPUTED)
    assert done.code == 0, done.err
    assert found_in(done.err) == EXPECTED
    answer = done.answer
    assert answer["verdict"] == "fits" and answer["reads"] == [] and answer["assumptions"] == []
    assert answer["attempts"] == [] and not any("computed" in note for note in answer["notes"])


UNKNOWN = (
    BEGIN
    + f"""\
flags = unknown.sum(1) > 0  # nobody knows
yes = torch.ones(4, dtype=torch.bool, **cuda)
token = unknown.argmax(1)
found["decided"] = [(flags | yes).all().item(), (flags & ~yes).any().item(), (token * 0).tolist()]
found["chosen"] = torch.where(yes, torch.arange(4, **cuda), token).tolist()
state = torch.zeros(4, dtype=torch.long, **cuda)
found["before"] = state.sum().item()
state.add_(token)  # what was known is no more
found["after"] = state.sum().item()  # read 1
found["part"] = torch.cat([torch.arange(2, **cuda), token])[:2].tolist()
found["rest"] = torch.cat([torch.arange(2, **cuda), token])[2].item()  # read 2
torch.save({{"loss": unknown.sum().item()}}, "saved.pt")  # read 0
found["saved"] = torch.load("saved.pt")
norm = torch.nn.BatchNorm1d(6, **cuda)
norm(unknown)
found["mean"] = norm.running_mean.sum().item()  # read 7
large = torch.arange({LARGEST_INTEGER // 8 + 1}, **cuda)
found["large"] = large[5].item()  # read 3: too large to be computed
floats = torch.ones({LARGEST_FLOAT // 4 + 1}, **cuda)
found["float"] = floats[5].item()  # read 4
found["flag"] = flags[0].item()  # read 5
found["divided"] = [3 / unknown.sum().item(), unknown.sum().item() ** -1, *divmod(3, unknown.sum().item())]  # read 8
loss = unknown.mean()
if loss.item() * 2 + 1 < 3:  # read 6, and a comparison
    found["small"] = True
infinite = torch.tensor([1.0, float("inf"), float("nan")], **cuda)
large = torch.randn(300, 300, **cuda) @ torch.randn(300, 300, **cuda)  # too large, and taken to be finite
found["finite"] = [
    torch.isfinite(loss).item(), torch.isnan(large).any().item(), torch.isinf(unknown).any().item(),
    torch.isfinite(infinite).tolist(), torch.isfinite(large).all().item(),
]
scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=1)
weight = torch.zeros(4, requires_grad=True, **cuda)
optimizer = torch.optim.SGD([weight], lr=0.1)
scaler.scale((weight * unknown[0, :4]).sum()).backward()
scaler.step(optimizer)  # its gradients are taken to be finite
scaler.update()
found["scale"] = scaler.get_scale()  # twice as much
"""
    + END
)


def test_what_is_unknown_stays_unknown(simulate: Callable[..., Any]) -> None:
    done = simulate(UNKNOWN, "--no-retry")
    assert done.code == 4, done.err
    found = found_in(done.err)
    assert found == {
        "decided": [True, False, [0, 0, 0, 0]],
        "chosen": [0, 1, 2, 3],
        "before": 0,
        "after": 0,
        "part": [0, 1],
        "rest": 0,
        "large": 0,
        "float": 0.0,
        "flag": False,
        "small": True,
        "divided": [3.0, 1.0, 3.0, 0.0],
        "saved": {"loss": 0.0},
        "mean": 0.0,
        "finite": [True, False, False, [True, False, False], True],
        "scale": 16.0,
    }
    lines = UNKNOWN.splitlines()
    reads = {
        (one["kind"], one["dtype"], lines[one["line"]["line"] - 1].partition("# ")[2]) for one in done.answer["reads"]
    }
    assert reads == {
        ("float", "float32", "read 0"),
        ("float", "float32", "read 7"),
        ("integer", "int64", "read 1"),
        ("integer", "int64", "read 2"),
        ("integer", "int64", "read 3: too large to be computed"),
        ("float", "float32", "read 4"),
        ("flag", "bool", "read 5"),
        ("float", "float32", "read 8"),
        ("float", "float32", "read 6, and a comparison"),
        ("branch", "float", "read 6, and a comparison"),
    }


EARLY = """\
import torch
model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
for step in range(50):
    loss = model(torch.ones(8, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    if {read} < 1e-3:
        break
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
print("steps", step + 1)
"""


@pytest.mark.parametrize(
    "read",
    [
        "loss.item()",
        pytest.param("loss.detach().cpu().numpy()", marks=pytest.mark.extended),
        pytest.param("loss", marks=pytest.mark.extended),
    ],
)
def test_a_program_that_ends_by_a_loss_of_zero_is_run_the_other_way(simulate: Callable[..., Any], read: str) -> None:
    """One step, because the loss reads as zero: its peak is not what counts."""
    done = simulate(EARLY.format(read=read), "--memory", "2GiB", "--context", "100MiB")
    steps = 50 if read == "loss" else 1  # a comparison of tensors is a flag, and reads as False
    assert done.code == 0 and f"steps {steps}\n" in done.err, done.err
    answer = done.answer
    assert answer["devices"][0]["allocated"]["low"] > 64 << 20
    assert any("flags and comparisons the other way" in one["with"] for one in answer["attempts"])


GENERATE = """\
import torch
weights = torch.zeros(512, 512, device="cuda")
ids = torch.zeros(2, 1, dtype=torch.long, device="cuda")
unfinished = torch.ones(2, dtype=torch.long, device="cuda")
cache, bound = [], 24
while True:
    cache.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
    token = (torch.zeros(2, 512, device="cuda") @ weights).argmax(-1)
    token = token * unfinished + 7 * (1 - unfinished)
    ids = torch.cat([ids, token[:, None]], 1)
    done = torch.full((2,), ids.shape[1] > bound, device="cuda")
    done = done | torch.isin(ids[:, -1], torch.tensor([9], device="cuda"))
    unfinished = unfinished & ~done
    if {stop}:
        break
print("tokens", ids.shape[1])
"""


@pytest.mark.parametrize(
    "stop", [pytest.param("unfinished.max() == 0", marks=pytest.mark.extended), "not unfinished.any()"]
)
def test_a_loop_of_tokens_runs_to_its_own_bound(simulate: Callable[..., Any], stop: str) -> None:
    """Whether a zero goes on or stops: the bound is computed, the end of a sentence is not."""
    done = simulate(GENERATE.format(stop=stop), "--memory", "4GiB", "--context", "100MiB")
    assert done.code == 0, done.err
    assert done.answer["devices"][0]["allocated"]["high"] > 24 * (8 << 20), done.err
    if stop != "unfinished.max() == 0":  # a zero stops it at once
        assert any(note.startswith("an upper bound") for note in done.answer["notes"])


ASSUMED = """\
import torch
unknown = torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
rows = unknown.sum(1)
first = (rows > 0).nonzero()
second = (rows > 1).nonzero()
third = (rows > 2).nonzero()
beams = unknown[:, :8].topk(2)  # no choice of experts
class Router:
    def forward(self, scores):
        return scores.topk(2)
scores, experts = Router().forward(unknown[:, :8])
counts = torch.bincount(experts.flatten(), minlength=8)
known = beams.indices.sum().item() != 0
print("FOUND " + __import__("json").dumps([len(first), len(second), len(third), counts.tolist(), known]))
"""


def test_assumed_sizes_by_line_and_the_routing_of_experts(simulate: Callable[..., Any]) -> None:
    given = ("--assume", "program.py:5 nonzero=0.25,nonzero=0.75,topk=2")
    done = simulate(ASSUMED, *given)
    assert done.code == 0, done.err
    sizes = json.loads(next(line for line in done.err.splitlines() if line.startswith("FOUND "))[6:])
    assert sizes[:3] == [48, 16, 48] and sum(sizes[3]) == 128 and max(sizes[3]) == sizes[3][0] == 32
    rows = [
        (one["operator"], one["share"], one["elements"], one["bytes"], one["line"])
        for one in done.answer["assumptions"]
    ]
    assert sorted(rows) == [
        ("nonzero", 0.25, 16, 128, 5),
        ("nonzero", 0.75, 48, 384, 4),
        ("nonzero", 0.75, 48, 384, 6),
        ("topk", 2.0, 128, 1024, 7),
        ("topk", 2.0, 128, 1024, 10),
    ]
    done = simulate(ASSUMED, "--no-retry", "--assume", "nonzero=0.5")
    sizes = json.loads(next(line for line in done.err.splitlines() if line.startswith("FOUND "))[6:])
    assert sizes[3] == [16] * 8 and sizes[4] is False  # evenly, where nothing is said, and for experts alone
    assert [one["line"] for one in done.answer["assumptions"] if one["operator"] == "topk"] == [10]


FORKED = """\
import os, torch
x = torch.arange(1 << 20, device="cuda") * 2
print("FOUND", x.sum().item(), torch.get_num_threads())
pid = os.fork()
if pid == 0:
    torch.ones(1 << 20).mul(2).sum()  # by OpenMP's threads, which no child inherits
    os._exit(7)
print("FOUND", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_of_fork_can_compute(simulate: Callable[..., Any]) -> None:
    done = simulate(FORKED, "--no-retry", OMP_NUM_THREADS="2")
    assert [line for line in done.err.splitlines() if line.startswith("FOUND")] == [
        f"FOUND {(1 << 20) * ((1 << 20) - 1)} 2",
        "FOUND 7",
    ], done.err


COMPARED = """\
import importlib, json, sys
sys.path.insert(0, {root!r})
import torch
class Check:
    def __call__(self, *arguments, **keywords): pass
    def __getattr__(self, name): return self
importlib.import_module("tests.on_device.simulated.programs.{name}").main(Check())
stats = [torch.cuda.memory_stats(index) for index in range(torch.cuda.device_count())]
print("FOUND " + json.dumps(stats))
"""


@pytest.mark.parametrize("name", ["gpt_fp16_scaler", pytest.param("fsdp2", marks=pytest.mark.extended)])
def test_computing_changes_nothing_of_pytorchs(simulate: Callable[..., Any], name: str, tmp_path: Path) -> None:
    """Statistics of its allocator, every call that the device got, and all that the recording has, CPU included."""
    code = COMPARED.format(root=str(Path(__file__).parents[3]), name=name)
    runs = []
    for values in ("0", "1"):
        log, trace = tmp_path / f"log{values}", tmp_path / f"{values}.cmem"
        done = simulate(code, "--no-retry", "-o", str(trace), CUPTIMEM_SIM_VALUES=values, CUPTIMEM_SIM_LOG=str(log))
        (line,) = [line for line in done.err.splitlines() if line.startswith("FOUND ")]
        stats = json.loads(line.removeprefix("FOUND "))
        # Which free blocks are split depends on when the thread of backward gives which back.
        kept = [{key: value for key, value in one.items() if "inactive_split" not in key} for one in stats]
        summary = json.loads(simulate("", str(trace), verb="summary").out)
        devices = [(one["device"], one["peak"], one["allocations"]) for one in summary["devices"]]
        data = log.read_bytes()
        # All of a record but its time, its address and its thread.
        calls = [
            (data[at + 16 : at + 40], data[at + 48 : at + 56], data[at + 60 : at + 64])
            for at in range(0, len(data), 64)
        ]
        runs.append((kept, devices, calls))
    assert len(runs[0][2]) > 10
    assert runs[0] == runs[1]
