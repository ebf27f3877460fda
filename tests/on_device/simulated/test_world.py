"""`cuptimem fits --world-size`: is each rank of a program as torchrun starts it what hand arithmetic says of it?"""

import subprocess
from pathlib import Path

import pytest

from cuptimem.simulation import api, ranks
from cuptimem.simulation.fitting import Case, Row
from cuptimem.simulation.ranks import MOST, in_words, of_all
from cuptimem.simulation.result import Interval
from cuptimem.simulation.world import NEEDS
from tests.conftest import clean_environment

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]

MIB = 1 << 20
START = """\
import os, sys, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
local, rank, size = (int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))
torch.cuda.set_device(local)
"""
FINISH = """\
assert dist.get_rank() == rank and dist.get_world_size() == size and dist.get_backend() == "nccl"
dist.barrier()
dist.destroy_process_group()
"""

# Four linear layers of 4 MiB, a shard of each, and two of its gradients' size for Adam.
SHARDED = (
    START
    + """\
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
mesh = init_device_mesh("cuda", (size,))
with torch.device("meta"):
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(4)])
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
assert torch.cuda.memory_allocated() == (4 << 22) // size
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(8, 1024, device="cuda")).sum().backward()
optimizer.step()
"""
    + FINISH
)


def test_one_of_many_ranks(simulate):
    done = simulate(SHARDED, "--world-size", "1024", "--ranks", "1023", "--gate", verb="fits")
    assert done.code == 0, done.err
    (row,) = done.answer["rows"]
    assert row["run"] == row["ranks"] == [1023]
    assert row["takes"]["high"] - row["takes"]["low"] >= 1024 * MIB, "a communicator"


@pytest.mark.parametrize(
    "set_up", ["dist.init_process_group('nccl'); {}(local)", "{}(2 * local); dist.init_process_group('nccl')"]
)
def test_a_communicator_lies_on_the_device_of_its_rank(simulate, set_up):
    """Also where set_device() puts CUDA in use, and where it is another device than torchrun's."""
    program = START.replace("torch.cuda.set_device(local)", set_up.format("torch.cuda.set_device"))
    words = ("--devices", "4", "--world-size", "2", "--ranks", "1")
    done = simulate(program + "kept = torch.ones(1 << 29, device='cuda')\n" + FINISH, *words, verb="fits")
    assert done.code == 0, done.err
    (row,) = done.answer["rows"]
    assert row["takes"]["low"] >= 2048 * MIB
    assert row["takes"]["high"] - row["takes"]["low"] >= 1024 * MIB


# Prints the KiB that the largest process had at its peak: cuptimem, or the rank that it runs.
LARGEST = """\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.extended
def test_a_rank_of_many_takes_no_more_of_the_host(sim_python, tmp_path):
    """Importing PyTorch takes half a GiB; 32 MiB would be 32 KiB for each of the ranks."""
    (tmp_path / "program.py").write_text(SHARDED)

    def largest(size):
        fits = [sim_python, "-m", "cuptimem", "fits", "--world-size", str(size), "--ranks", str(size - 1), "program.py"]
        done = subprocess.run(
            [sim_python, "-c", LARGEST, *fits], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout) << 10

    of_two = largest(2)
    assert of_two > 100 * MIB and largest(1024) < of_two + 32 * MIB


# The first stage has one layer, the second two. Each gets from the other what it cannot know: what comes in, and what
# gradient comes back.
STAGES = (
    START
    + """\
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
dist.init_process_group("cpu:gloo,cuda:nccl")
device = torch.device("cuda", local)
names, mine, everybody = ["of rank 0"] if rank == 0 else [None], [None], [None] * size
dist.broadcast_object_list(names, src=0)
dist.scatter_object_list(mine, ["first", "second"] if rank == 0 else None, src=0)
dist.all_gather_object(everybody, names)
assert everybody == [["of rank 0"]] * size and mine == ["second" if rank else "first"]
layers = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(rank + 1)]).to(device)
assert torch.cuda.memory_allocated() == (rank + 1) * 16 << 20
schedule = ScheduleGPipe(PipelineStage(layers, rank, 2, device), 2, loss_fn=lambda output, target: output.sum())
batch = torch.ones(16, 2048, device=device)
schedule.step(target=batch) if rank else schedule.step(batch)
assert all(one.grad is not None for one in layers.parameters())
"""
    + FINISH.replace('"nccl"', '"cpu:gloo,cuda:nccl"')
)


@pytest.mark.extended
def test_stages_are_ranks_of_their_own(simulate):
    done = simulate(STAGES, "--world-size", "2", verb="fits")
    assert done.code == 0, done.err
    first, second = done.answer["rows"]
    assert (first["ranks"], second["ranks"]) == ([0], [1])
    # The weights and the gradients of a layer.
    assert 0 <= second["allocated"]["low"] - first["allocated"]["low"] - 32 * MIB < MIB


# Rows of the first matrix and columns of the second: a half of each, the whole input and half of what lies between.
SPLIT = (
    START
    + """\
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replica", "part"))
model = nn.Sequential(nn.Linear(1024, 4096, bias=False), nn.ReLU(), nn.Linear(4096, 1024, bias=False)).cuda()
before = torch.cuda.memory_allocated()
model = parallelize_module(model, mesh["part"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
assert before - torch.cuda.memory_allocated() == before // 2
model(torch.ones(64, 1024, device="cuda")).sum().backward()
beside = nn.Linear(1024, 1024, bias=False).cuda()
DistributedDataParallel(beside, device_ids=[local], process_group=mesh.get_group("replica"))(
    torch.ones(8, 1024, device="cuda")
).sum().backward()
"""
    + FINISH.replace('"nccl"', '"undefined"')
)


@pytest.mark.extended
def test_parts_of_tensors_and_replicas_of_them(simulate):
    done = simulate(SPLIT, "--world-size", "4", "--ranks", "1", verb="fits")
    assert done.code == 0, done.err
    (row,) = done.answer["rows"]
    assert row["ranks"] == row["run"] == [1]
    assert row["takes"]["high"] - row["takes"]["low"] >= 3 * 1024 * MIB, (
        "the communicators of all ranks and two of axes"
    )


@pytest.mark.extended
def test_a_rank_that_fails_is_named(simulate):
    failing = START + "dist.init_process_group()\ntorch.ones(1, device='cuda')\nassert rank != 2, 'of rank 2'\n"
    done = simulate(failing, "--world-size", "4", verb="fits")
    assert done.code == 5
    assert done.answer["rows"][-1]["name"] == "rank 2" and "of rank 2" in done.answer["rows"][-1]["reason"]


def test_other_options_are_refused(simulate):
    for options in (("--ranks", "0"), ("--world-size", "4", "--ranks", "4"), ("--world-size", "0")):
        assert simulate("pass", *options, verb="fits").code == 2


def row(rank, used):
    return Row(Case(str(rank), None), "fits", "", Interval(used, used), "run", None)


@pytest.mark.parametrize(
    ("size", "shape", "used", "most"),
    [
        (1, (), lambda rank: 1, 1),
        (1024, (), lambda rank: 1, 6),
        (8, (), lambda rank: rank in (0, 7), 8),
        (8, (), lambda rank: rank, 8),
        (64, (8, 8), lambda rank: (rank % 8, rank // 8 == 7), 64),
        (512, (64, 8), lambda rank: rank % 8, 14),
        (48, (), lambda rank: min(rank, 7), 20),
    ],
)
def test_every_rank_that_is_known_is_right(size, shape, used, most):
    asked = []

    def ask(rank):
        asked.append(rank)
        return row(rank, used(rank))

    found = of_all(size, ask, lambda: shape)
    assert sorted(rank for one in found for rank in one.ranks) == list(range(size))
    assert len(asked) == len(set(asked)) <= most
    assert all(one.row is not None and one.row.takes.low == used(rank) for one in found for rank in one.ranks)


@pytest.mark.parametrize(("size", "shape"), [(64, ()), (64, (64,)), (64, (2, 32)), (64, (32, 2))])
@pytest.mark.parametrize("used", [lambda rank: rank % 8 == 0, lambda rank: rank % 2, lambda rank: rank % 8 // 4])
def test_places_in_a_machine_are_an_axis(size, shape, used):
    asked = []

    def ask(rank):
        asked.append(rank)
        return row(rank, used(rank))

    found = of_all(size, ask, lambda: shape, devices=8)
    assert all(one.row is not None and one.row.takes.low == used(rank) for one in found for rank in one.ranks)
    assert len(asked) <= 24


def asked_with(sends, monkeypatch):
    """What of_program says of rank 0 of two, where a run of each rank does what `sends` says."""
    runs = []

    def ask(case):
        world = case.setup.world
        runs.append(world.rank)
        return sends(world, len(runs))

    monkeypatch.setattr(ranks.fitting, "asked", lambda case, answer: answer)
    setup = api.make_setup("l4", None, 2, None, None, None)
    return ranks.of_program(setup, 2, [0], ask), runs


def failed(rank, reason="failed"):
    return Row(Case(str(rank), None), "script failed", reason, None, "run", None)


def needs(world, rank):
    (Path(world.folder) / NEEDS).write_text(str(rank))
    return failed(world.rank, f"rank {rank} has to send objects first")


def test_ranks_that_wait_for_what_is_not_sent_end(monkeypatch):
    def never_sends(world, _):
        return needs(world, 1) if world.rank == 0 else row(1, 1)

    def each_waits(world, _):
        return needs(world, 1 - world.rank)

    def crashes(world, _):
        return needs(world, 1) if world.rank == 0 else failed(1, "ValueError: of rank 1")

    for what in (never_sends, each_waits, crashes):
        (one,), runs = asked_with(what, monkeypatch)
        assert one.row.verdict == "script failed" and len(runs) <= 4
    assert "ValueError: of rank 1" in one.row.reason


def test_what_axes_do_not_say_is_not_known():
    """The last rank has more than its column and its row have."""
    found = of_all(64, lambda rank: row(rank, rank == 63), lambda: (8, 8))
    assert [len(one.ranks) for one in found if one.row is None] == [
        64 - len({rank for one in found for rank in one.run})
    ]


def test_too_many_ranks_that_differ_are_not_known():
    found = of_all(4096, lambda rank: row(rank, rank), tuple)
    assert sum(len(one.run) for one in found) <= MOST + 1
    assert sum(len(one.ranks) for one in found if one.row is None) > 3000


def test_ranks_in_words():
    assert in_words([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert in_words([]) == ""
