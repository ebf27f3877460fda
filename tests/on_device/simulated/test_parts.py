"""What a simulated program has beside its device: ranks of NCCL and of the fake group, nvidia-smi, its environment."""

import subprocess
import venv
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.cuda_torch
MIB, GIB = 1 << 20, 1 << 30


PARALLEL = """\
import torch
from torch import nn
model = nn.DataParallel(nn.Sequential(nn.Linear(1024, 4096, bias=False), nn.BatchNorm1d(4096)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(torch.cuda.device_count(), model.module[0].weight.device)
print("elsewhere", torch.cuda.max_memory_allocated(1))
"""


def test_data_parallel_on_two_devices(simulate):
    done = simulate(PARALLEL, "--devices", "2")
    assert done.code == 0 and "2 cuda:0\n" in done.err, done.err
    assert done.answer["refused"] == [] and done.answer["undescribed"] == []
    (part,) = [row for row in done.answer["modelled"] if row["name"] == "NCCL communicators"]
    assert (part["bytes"], part["high_bytes"]) == (0, 2 * GIB)  # 1 GiB of each device
    low, high = ([device["used"][end] for device in done.answer["devices"]] for end in ("low", "high"))
    assert len(low) == 2 and all(b >= a + GIB for a, b in zip(low, high, strict=True))
    # The second device has a copy of the parameters, their gradients and what is sent of them, while it works.
    weight, workspace = 4 * 1024 * 4096, 32 * MIB
    assert 2 * weight + workspace < done.answer["devices"][1]["allocated"]["low"] < 4 * weight + workspace


ONE_RANK = """\
import os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
world = int(sys.argv[1])
dist.init_process_group("nccl", world_size=world, rank=0, store=dist.HashStore())
if world > 1:
    dist.all_reduce(torch.ones(8, device="cuda"))
before = torch.cuda.memory_allocated()
net = torch.nn.Linear(1024, 4096, bias=False).cuda()
model = DistributedDataParallel(net, device_ids=[0])
print("takes", torch.cuda.memory_allocated() - before)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
told = torch.tensor([3, 4], device="cuda")
dist.all_reduce(told)
print("told", told.tolist())
dist.destroy_process_group()
"""


def test_one_rank_of_nccl(simulate):
    """A rank that is alone has what it gave: what the host wrote comes back."""
    done = simulate(ONE_RANK, "--no-retry", behind=("1",))
    assert done.code in (0, 4) and f"takes {2 * 16 * MIB}\n" in done.err, done.err  # parameters, and their bucket
    assert "told [3, 4]\n" in done.err
    assert done.answer["refused"] == [] and done.answer["undescribed"] == []


def test_ranks_of_other_processes_are_refused_by_name(simulate):
    done = simulate(ONE_RANK, "--no-retry", behind=("2",))
    assert done.code == 5, done.err
    assert "the program uses NCCL between processes, which is not simulated" in done.answer["reason"]
    assert "fake process group" in done.answer["hints"][0]


FAKE_GROUP = """\
import sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
net = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 2).cuda()
parameters = sum(4 * one.numel() for one in net.parameters())
before = torch.cuda.memory_allocated()
model = DistributedDataParallel(net, device_ids=[0])
if "own" in sys.argv:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    model.register_comm_hook(None, bf16_compress_hook)
assert torch.cuda.memory_allocated() - before == parameters, "buckets"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    model(torch.randn(2, 64, 256, device="cuda")).square().mean().backward()
    if step == 0:
        # Parameters, buckets, and the gradients.
        gradients = sum(one.grad.untyped_storage().nbytes() for one in net.parameters())
        assert gradients == parameters, "gradients"
    optimizer.step()
    optimizer.zero_grad()
norm = DistributedDataParallel(nn.SyncBatchNorm(8).cuda())  # gathers into a single row
norm(torch.randn(4, 8, 16, 16, device="cuda")).sum().backward()
print("trained")
"""


def test_distributed_data_parallel_on_the_fake_group(simulate):
    """One of eight ranks runs: buckets take the parameters' bytes once more."""
    done = simulate(FAKE_GROUP, "--no-retry")
    assert done.code in (0, 4) and "trained\n" in done.err, done.err
    assert done.answer["refused"] == []


FROM_META = """\
import torch
from torch import nn
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.BatchNorm1d(1024, affine=False))
model.register_buffer("seen", torch.empty(2048, 1024, device="meta"))
model.to_empty(device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model(torch.ones(8, 1024, device="cuda")).sum().backward()
optimizer.step()
"""


def test_parameters_from_the_meta_device_have_their_category(simulate):
    """4 MiB of a parameter and as much of its gradient, 8 MiB of a buffer."""
    of: Counter[str] = Counter()
    for row in simulate(FROM_META, "--no-retry").answer["peak"]["contributors"]:
        of[row["category"]] += row["bytes"]
    assert of["parameter"] == of["gradient"] == 4 * MIB
    assert 8 * MIB <= of["buffer"] < 9 * MIB


FAKE_GROUPS = """\
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
pair, host = dist.new_group([0, 1]), dist.new_group([0, 1], backend="cpu:fake")
kept = torch.empty(1 << 20, device="cuda")
late = dist.new_group([0, 2])
dist.destroy_process_group(pair)
last = dist.new_group([0, 3])
"""


def test_each_fake_group_on_cuda_counts_as_nccl(simulate):
    """Four, of which three are there at a time; the one of the host takes nothing."""
    done = simulate(FAKE_GROUPS, "--memory", "3GiB")
    assert done.code == 4 and "high end" in done.answer["reason"], done.answer["reason"]
    (part,) = [row for row in done.answer["modelled"] if row["name"] == "NCCL communicators"]
    assert (part["bytes"], part["high_bytes"]) == (0, 3 * GIB)


def test_an_own_hook_on_the_fake_group_is_named(simulate):
    done = simulate(FAKE_GROUP, "--no-retry", behind=("own",))
    assert done.code == 5 and "a result of the fake process group" in done.answer["reason"]
    assert "leave out the hook" in done.answer["hints"][0]


SMI = """\
import os, subprocess, torch
def ask(*words):
    done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True)
    print(done.returncode, done.stdout, sep="|", end="|\\n")
ask("-L")
kept = torch.empty(300 << 20, dtype=torch.uint8, device="cuda:1")
free = torch.cuda.mem_get_info(1)[0]
ask("--query-gpu=index,name,memory.used,memory.total,utilization.gpu,temperature.gpu", "--format=csv")
ask("--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "1")
ask("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
ask("topo", "-m")
ask("--query-gpu=colour", "--format=csv")
print("free", free >> 20, "of", os.getpid())
"""


def test_nvidia_smi_answers(simulate):
    """What subprocesses are told is what the program's own device has."""
    done = simulate(SMI, "--devices", "2", "--device", "l4", "--memory", "20GiB", "--context", "100MiB", "--no-retry")
    assert done.code == 0, done.err
    said = done.err
    assert said.startswith("0|GPU 0: NVIDIA L4 (UUID: GPU-") and "\nGPU 1: NVIDIA L4 (UUID: GPU-" in said
    head = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%], temperature.gpu"
    assert f"0|{head}\n0, NVIDIA L4, 0 MiB, 20480 MiB, 0 %, [N/A]\n1, NVIDIA L4, 400 MiB, 20480 MiB, 0 %" in said
    pid = said.rpartition("of ")[2].split()[0]
    assert "0|20080\n|" in said and "free 20080 of" in said
    assert f"0|{pid}, 400 MiB\n|" in said
    assert "3|topo is not simulated" in said and '2|Field "colour" is not a valid field to query.' in said
    assert len(done.answer["devices"]) == 1


def test_an_environment_laid_over_another(sim_python, simulate, tmp_path):
    """A .pth that calls site.addsitedir, a plain line of one, PYTHONPATH: torch and the startup file are there."""
    site = next(Path(sim_python).parents[1].glob("lib/python3.*/site-packages"))
    ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    seen = subprocess.run([sim_python, "-c", ask], check=True, capture_output=True, text=True).stdout.split()
    program = "import torch\ntorch.nonzero(torch.randn(4 << 20, device='cuda'))\n"
    for name, line in (
        ("added", f"import site; site.addsitedir({str(site)!r})\n"),
        ("plain", "\n".join([str(ROOT), *seen]) + "\n"),
    ):
        home = tmp_path / name
        venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
        (next(home.glob("lib/python3.*/site-packages")) / "overlay.pth").write_text(line)
        done = simulate(program, "--no-retry", python=str(home / "bin/python"))
        assert done.code in (0, 4), done.err
        assert [row["operator"] for row in done.answer["assumptions"]] == ["nonzero"]  # the child started
        assert done.answer["peak"]["contributors"] and done.answer["notes"] == []


LENGTHS = """\
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Text(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return {"ids": torch.ones((i * 7) % 40 + 1, dtype=torch.long), "label": i}
class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.ones(3)] * 5)
def padded(rows):
    return {"ids": torch.nn.utils.rnn.pad_sequence([row["ids"] for row in rows], batch_first=True)}
torch.manual_seed(3)
for workers in (0, 2):
    loader = DataLoader(Text(), 1, shuffle=True, collate_fn=padded, num_workers=workers)
    for epoch in range(2):
        print([batch["ids"].cuda().shape[1] for batch in loader], len(loader))
print(len([one.cuda() for one in DataLoader(Stream(), 1)]))
"""


def test_only_the_largest_batches_of_a_loader_run(simulate):
    done = simulate(LENGTHS, "--longest", "3", "--no-retry")
    assert done.code == 0, done.err
    assert done.err.count("[40, 39, 38] 3\n") == 4 and "\n5\n" in done.err, done.err
    notes = [note for note in done.answer["notes"] if note.startswith("DataLoader of")]
    assert notes == [
        "DataLoader of Text, batch size 1: 3 of 40 batches ran, the largest: 320 B where half have at most 168 B; "
        "those between may leave more in PyTorch's cache",
        "DataLoader of Stream, batch size 1: is a stream: its batches come as they are",
    ]
