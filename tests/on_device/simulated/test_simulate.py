"""`cuptimem simulate` and cuptimem.simulate() from end to end: the real PyTorch on the simulated device."""

import json
import subprocess

import pytest

from tests.conftest import clean_environment

pytestmark = pytest.mark.cuda_torch
MIB, GIB = 1 << 20, 1 << 30


TRAINING = """\
import torch
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
print("max", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


@pytest.mark.afresh
def test_it_fits(simulate, tmp_path):
    done = simulate(TRAINING, "--device", "RTX 4090", "-o", "run.cmem")
    assert done.code == 0, done.err
    answer = done.answer
    assert (answer["verdict"], answer["fits"], answer["card"]) == ("fits", True, "rtx4090")
    assert answer["memory"] == answer["devices"][0]["total"] == 25250627584
    said = next(line for line in done.err.splitlines() if line.startswith("max ")).split()
    (device,) = answer["devices"]
    assert device["allocated"] == {"low": int(said[1]), "high": int(said[1])}
    assert device["reserved"] == {"low": int(said[2]), "high": int(said[2])}
    assert (device["context"], device["context_range"]) == (512 * MIB, {"low": 400 * MIB, "high": 550 * MIB})
    beside = device["used"]["low"] - int(said[2]) - 400 * MIB  # libraries
    assert 0 <= beside == device["used"]["high"] - int(said[2]) - 550 * MIB
    assert done.err.count("loss ") == 3 and answer["attempts"] == []
    (read,) = answer["host_reads"]
    assert (read["line"]["line"], read["count"], read["bytes"]) == (9, 3, 12)
    peak = json.loads(simulate("", str(tmp_path / "run.cmem"), verb="peak").out)["peaks"][0]
    assert peak["bytes"] == int(said[1]) == sum(one["bytes"] for one in answer["peak"]["contributors"])
    shown = simulate("", str(tmp_path / "run.cmem"), verb="summary", json=False).out.splitlines()
    assert shown[0].startswith("program.py") and " · simulated rtx4090, 23.5 GiB · " in shown[0]
    assert shown[1].startswith("! 3 host reads of values that no kernel has computed")
    again = simulate(TRAINING, "-o", "run.cmem")
    assert again.code == 1 and "exists" in again.err and again.out == ""


MULTIPLIES = """\
import torch
a = torch.empty(1024, 1024, dtype=torch.float16, device="cuda")
b = a @ a
print("allocated", torch.cuda.memory_allocated())
"""


def test_the_cublas_workspace_is_of_the_cards_architecture(simulate, forked_on_device):
    """PyTorch's own choice, beside three matrices: cards.py has the same sizes."""
    matrices = 2 * 2 * 1024 * 1024
    for device, workspace in (("rtx5090", 32 * MIB), ("b200", 32 * MIB), ("a10g", 8320 << 10)):
        done = forked_on_device("-c", MULTIPLIES, device=device)
        assert done.code == 0 and f"allocated {matrices + workspace}\n" in done.out, done.err
    done = simulate(MULTIPLIES, "--memory", "24GiB")
    assert f"allocated {matrices + 32 * MIB}\n" in done.err
    (note,) = done.answer["notes"]
    assert "32.0 MiB for each handle and stream; it is 8.1 MiB with --device a10g, rtx3090, rtx4090 or l4" in note


NEAR = """\
import torch
kept = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for i in range(4)]
kept.pop()
last = torch.empty(120 << 20, dtype=torch.uint8, device="cuda")  # beside the cached 100 MiB, where there is room
"""


def test_a_context_that_decides(simulate):
    """Of a T4 between 100 and 160 MiB are the context's. 420 MiB are live at most, 520 MiB reserved."""
    flushed = simulate(NEAR, "--device", "t4", "--memory", "660MiB").answer  # reserved and 160 MiB are too much
    assert flushed["verdict"] == "fits" and flushed["attempts"][0]["with"] == "context of 160.0 MiB"
    assert flushed["smallest_memory"]["low"] == flushed["smallest_memory"]["high"] < 644 * MIB
    high = simulate(NEAR, "--device", "t4", "--memory", "570MiB").answer  # with 130 MiB: the cache goes
    assert high["verdict"] == "undecided" and "with one of 160.0 MiB" in high["reason"]
    for memory, verdict in (("530MiB", "undecided"), ("480MiB", "does not fit")):
        assert simulate(NEAR, "--device", "t4", "--memory", memory, "--no-retry").answer["verdict"] == verdict


@pytest.mark.extended
def test_a_context_that_decides_by_further_runs(simulate):
    fits = simulate(NEAR, "--device", "t4", "--memory", "1GiB").answer
    assert (fits["verdict"], fits["attempts"]) == ("fits", [])
    assert fits["devices"][0]["used"] == {"low": 620 * MIB, "high": 680 * MIB}
    assert fits["smallest_memory"] == {"device": "cuda:0", "low": 580 * MIB, "high": 680 * MIB}
    low = simulate(NEAR, "--device", "t4", "--memory", "530MiB").answer
    assert low["verdict"] == "undecided" and "with one of 100.0 MiB" in low["reason"]
    assert simulate(NEAR, "--device", "t4", "--memory", "515MiB").answer["verdict"] == "does not fit"


@pytest.mark.afresh
def test_the_programs_output_stays_what_it_is(simulate, tmp_path):
    program = "import sys, torch\nprint('out')\nprint('err', file=sys.stderr)\ntorch.ones(5, device='cuda')\n"
    done = simulate(program, "--memory", "2GiB", json=False)
    assert done.code == 0 and done.out == "out\n"
    assert done.err.startswith("err\n\nsimulated on h100, 2.0 GiB · program.py")
    assert "FITS in 2.0 GiB" in done.err and "The program read no value" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


TOO_LARGE = """\
import torch
blocks = []
for i in range(20):
    blocks.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
print("all of it")
"""


def test_it_does_not_fit(simulate):
    done = simulate(TOO_LARGE, "--device", "T4", "--memory", "1GiB", "--context", "100MiB")
    assert done.code == 3, done.err
    answer = done.answer
    assert (answer["verdict"], answer["setting"], answer["smallest_card"]) == ("does not fit", None, "rtx3060")
    assert answer["reason"].endswith("program.py:4") and "all of it" not in done.err
    assert answer["need"] == {
        "device": "cuda:0",
        "low": 2100 * MIB,
        "high": 2100 * MIB,
        "takes_everything": False,
    }
    assert answer["peak"]["bytes"] == 2000 * MIB and answer["peak"]["contributors"][0]["line"]["line"] == 4
    assert answer["devices"][0]["refused"] > 0 and answer["devices"][0]["used"]["low"] == 1000 * MIB
    assert [one["with"] for one in answer["attempts"]] == ["no limit", "on rtx3060"]
    told = [line for line in done.err.splitlines() if "running it again" in line]
    assert told == ["cuptimem: running it again: no limit", "cuptimem: running it again: on rtx3060"]


UNTRAINED = """\
import torch
net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Tanh()) for _ in range(8))).cuda()
with torch.no_grad():
    net(torch.ones(1, 4096, device="cuda"))
for _ in range(9):
    net(torch.ones(4096, 4096, device="cuda"))
"""


def test_what_would_lower_the_peak_of_what_does_not_fit(simulate):
    """Of eight outputs of 64 MiB forward needs two at a time."""
    done = simulate(UNTRAINED, "--device", "T4", "--memory", "1GiB", "--context", "100MiB")
    assert done.answer["verdict"] == "does not fit", done.err
    saved = {one["technique"]: one["saved"] for one in done.answer["proposals"] if one["free"]}
    assert saved["no_grad"] == 384 * MIB


FRAGMENTED = """\
import torch
def block(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
kept, pads = [], []
for i in range(20):
    whole = block(40)
    del whole
    kept.append(block(2))
    pads.append(block(38))
pads.clear()
last = block(300)
print(torch.cuda.max_memory_allocated() >> 20)
"""


def test_it_fits_with_a_setting(simulate):
    done = simulate(FRAGMENTED, "--memory", "1GiB", "--context", "100MiB")
    assert done.code == 3, done.err
    answer = done.answer
    assert answer["verdict"] == "fits with settings" and answer["fits"] is False
    assert answer["setting"] == "PYTORCH_ALLOC_CONF=expandable_segments:True"
    assert [one["outcome"] for one in answer["attempts"][:2]] == ["ran", "ran"]
    assert answer["need"]["low"] == 900 * MIB and answer["need"]["high"] > GIB


CYCLES = """\
import sys
import torch
class Node:
    def __init__(self, tensor):
        self.tensor, self.itself = tensor, self
weight = torch.zeros(1 << 18, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight])
kept = []
for i in range(30):
    node = Node(torch.empty(50 << 20, dtype=torch.uint8, device="cuda"))
    if "keep" in sys.argv:
        kept.append(node)
    weight.sum().backward()
    optimizer.step()
"""


def test_it_fits_if_garbage_is_collected(simulate):
    done = simulate(CYCLES, "--memory", "1GiB", "--context", "100MiB")
    answer = done.answer
    assert (done.code, answer["verdict"], answer["fits"]) == (3, "fits with settings", False), done.err
    assert answer["setting"].startswith("gc.collect() every ") and answer["smallest_card"] is None
    every = int(answer["setting"].split()[2])
    assert 12 <= every <= 18  # 924 MiB beside the context, less what is alive and the share that is waited for
    assert [(one["with"], one["outcome"]) for one in answer["attempts"]] == [
        ("gc.collect() at each 16th of the memory", "ran")
    ]


@pytest.mark.extended
def test_what_is_alive_does_not_fit_though_garbage_is_collected(simulate):
    done = simulate(CYCLES, "--memory", "1GiB", "--context", "100MiB", behind=("keep",))
    assert (done.code, done.answer["verdict"], done.answer["setting"]) == (3, "does not fit", None), done.err


ROUTED = """\
import torch
mask = torch.empty(100 << 20, dtype=torch.bool, device="cuda")
chosen = mask.nonzero()
print(tuple(chosen.shape))
"""


def test_a_size_that_depends_on_data(simulate):
    options = ("--memory", "800MiB", "--context", "100MiB")
    done = simulate(ROUTED, *options)
    assert done.code == 4, done.err
    answer = done.answer
    assert answer["verdict"] == "undecided" and answer["hints"] == ["say what you know: --assume nonzero=SHARE"]
    (one,) = answer["assumptions"]
    assert (one["operator"], one["share"], one["given"], one["count"], one["line"]) == ("nonzero", 0.5, False, 1, 3)
    assert answer["devices"][0]["allocated"] == {"low": 500 * MIB, "high": 900 * MIB}
    assert f"({50 << 20}, 1)" in done.err and answer["host_reads"] == []
    done = simulate(ROUTED, *options, "--assume", "nonzero=0.25")
    assert done.code == 0 and f"({25 << 20}, 1)" in done.err and done.answer["assumptions"][0]["given"] is True
    assert done.answer["devices"][0]["allocated"] == {"low": 300 * MIB, "high": 300 * MIB}


SIZES = """\
import torch
def shapes(*values):
    return [tuple(value.shape) for value in values]
x = (torch.randn(10, 8, device="cuda") @ torch.randn(8, 20, device="cuda")).requires_grad_()  # of a kernel: unknown
chosen = x[x > 0]
chosen.sum().backward()
print(shapes(chosen, x.grad, x.masked_select(x > 0), *torch.where(x > 0), torch.argwhere(x)))
print(shapes(*torch.unique(x, return_inverse=True, return_counts=True), torch.unique(x)))
consecutive = torch.unique_consecutive(x), torch.unique_consecutive(x, dim=0)
print(shapes(*torch.unique(x, dim=1, return_inverse=True), *consecutive))
print(shapes(torch.repeat_interleave(x, (x[:, 0] > 0).long(), dim=0)))
out = torch.empty(0, dtype=torch.long, device="cuda")
print(shapes(torch.nonzero(x, out=out), out), x.detach().cpu().nonzero().shape[1])
compiled = torch.compile(lambda v: v[v > 1] * 2, backend="aot_eager")
print(shapes(compiled(x)))
x[x > 0] = 1.0 if not x.requires_grad else x.detach()[x.detach() > 0]
"""


def test_every_operator_has_its_size_and_backward_works(simulate):
    given = "nonzero=0.1,unique=0.2,repeat_interleave=1"
    done = simulate(SIZES.replace("x[x > 0] =", "x.data[x > 0] ="), "--assume", given)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if line.startswith("[")]
    assert lines == [
        "[(20,), (10, 20), (20,), (20,), (20,), (20, 2)]",
        "[(40,), (10, 20), (40,), (40,)]",
        "[(10, 4), (20,), (40,), (2, 20)]",
        "[(10, 20)]",
        "[(20, 2), (20, 2)] 2",
        "[(20,)]",
    ]
    found = {one["operator"] for one in done.answer["assumptions"]}
    assert found == {"nonzero", "unique", "repeat_interleave"}
    assert {one["share"] for one in done.answer["assumptions"] if one["operator"] == "unique"} == {0.2}


CAUGHT = """\
import torch
for size in (2000, 900, 100):
    try:
        torch.empty(size << 20, dtype=torch.uint8, device="cuda")
        break
    except torch.OutOfMemoryError:
        print("too large", size)
"""


def test_an_out_of_memory_that_the_program_catches(simulate):
    done = simulate(CAUGHT, "--memory", "1GiB", "--context", "100MiB")
    assert done.code == 4 and done.answer["verdict"] == "undecided", done.err
    assert done.answer["caught_ooms"] == 1 and "caught 1 OutOfMemoryError" in done.answer["reason"]
    done = simulate(CAUGHT, "--memory", "1GiB", "--context", "100MiB", "--allow-oom")
    assert done.code == 0 and done.answer["verdict"] == "fits" and done.answer["caught_ooms"] == 1


CONVOLUTIONS = """\
import sys
import torch
torch.backends.cudnn.benchmark = sys.argv[1] == "benchmark"
net = torch.nn.Sequential(*(torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))).cuda()
kept = []
for size in (32, 16) if sys.argv[1] == "search" else (16,):
    try:
        for _ in range(2):
            net(torch.randn(size, 64, 112, 112, device="cuda")).mean().backward()
            if sys.argv[1] == "later" and not kept:
                kept.append(torch.empty(130 << 20, dtype=torch.uint8, device="cuda"))
        break
    except torch.OutOfMemoryError:
        net.zero_grad()
"""


@pytest.mark.parametrize(
    "how, memory, refused, caught",
    [("plain", 770, True, 0), ("later", 900, True, 0), ("benchmark", 770, True, 0), ("search", 770, True, 1)],
)
def test_convolutions_that_find_no_room_for_their_workspace(simulate, how, memory, refused, caught):
    """PyTorch goes on with an engine that takes less. A program sees nothing of that, only what it caught itself."""
    limits = ("--memory", f"{memory}MiB", "--context", "512MiB", "--conv-workspace", "100MiB")
    answer = simulate(CONVOLUTIONS, *limits, "--no-retry", behind=(how,)).answer
    assert (answer["devices"][0]["refused"] > 0, answer["caught_ooms"]) == (refused, caught), answer
    assert answer["verdict"] == ("undecided" if caught else "fits"), answer


COUNTED = """\
import torch
torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
count = (torch.randn(8, 8, device="cuda") @ torch.randn(8, 8, device="cuda")).argmax().item()
kept = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(count)]
"""


def test_a_size_that_matters_away_from_the_peak(simulate):
    """With few of them the peak stands where it stood."""
    answer = simulate(COUNTED).answer
    assert answer["verdict"] == "undecided", answer
    assert "64 instead of 0 changes its peak from 256.0 MiB to " in answer["reason"]


CHECKED = """\
import torch
def train():
    loss = (torch.randn(4, 4, device="cuda") @ torch.randn(4, 4, device="cuda")).sum()
    value = loss.item()
    assert value != 0, "the loss is dead"
train()
"""


def test_a_program_that_needs_a_real_value(simulate):
    """Its check holds the other way: then that run counts."""
    done = simulate(CHECKED, "--no-retry")
    assert done.code == 5, done.err
    answer = done.answer
    assert answer["verdict"] == "script failed" and "checks a value that no kernel has computed" in answer["reason"]
    assert "the loss is dead" in answer["reason"] and "program.py:5" in answer["reason"]
    assert answer["program"]["exit_code"] == 1 and answer["attempts"] == []
    answer = simulate(CHECKED).answer
    assert answer["verdict"] == "fits" and answer["program"]["exit_code"] == 1
    assert "the loss is dead" in answer["notes"][0] and "ran, and that run counts" in answer["notes"][0]


@pytest.mark.afresh
def test_a_crash_is_named_with_its_line(simulate):
    done = simulate("import ctypes, torch\nx = torch.ones(5, device='cuda')\nctypes.string_at(1)\n")
    assert done.code == 5, done.err
    assert "SIGSEGV" in done.answer["reason"] and "program.py:3" in done.answer["reason"]
    assert done.answer["program"] == {**done.answer["program"], "exit_code": None, "signal": 11}


ARGUMENTS = """\
import argparse
argparse.ArgumentParser().parse_args()
"""


def test_options_behind_the_script_are_named(simulate):
    code = f"import sys\nsys.argv.extend(['--memory', '1GiB'])\n{ARGUMENTS}"
    assert simulate(code).answer["hints"] == []  # nobody gave them to us
    done = simulate(ARGUMENTS, "--no-retry", behind=("--memory", "1GiB"))
    assert done.code == 5 and done.answer["program"]["exit_code"] == 2, done.err
    assert "options of simulate go before the script; the program got --memory" in done.answer["hints"]


POLLING = """\
import torch
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    torch.ones(8, device="cuda")
event = stream.record_event()
while not event.query():
    pass
torch.ones(8, device="cuda")
while not (torch.cuda.current_stream().query() and stream.query()):
    pass
print("through")
"""


def test_a_loop_that_polls_ends_at_the_high_end_too(simulate):
    done = simulate(POLLING)
    assert done.code == 0, done.err
    assert [one["outcome"] for one in done.answer["attempts"]] == ["ran"]


CACHES = """\
import os, torch
torch.ones(8, device="cuda")
print(os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"])
"""


def test_what_compilers_keep_is_not_the_users(simulate, tmp_path):
    done = simulate(CACHES, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0 and str(tmp_path) not in done.err and "/0/inductor " in done.err, done.err


ENDLESS = """\
import time, torch
scores = torch.randn(8, 8, device="cuda") @ torch.randn(8, 8, device="cuda")
while scores.argmax().item() != 2:
    time.sleep(0.002)
"""


def test_a_loop_that_waits_for_a_token(simulate, tmp_path):
    rings = tmp_path / "rings"
    rings.mkdir()
    for seconds in ("8", "40", "150"):  # a busy machine may take the first to import PyTorch
        done = simulate(ENDLESS, "--timeout", seconds, CUPTIMEM_RING_DIR=str(rings))
        assert list(rings.iterdir()) == []  # of the killed program
        assert done.code == 4, done.err
        answer = done.answer
        if answer["host_reads"] and answer["host_reads"][0]["count"] > 300:
            break
    assert answer["verdict"] == "undecided" and f"after {seconds} s" in answer["reason"]
    assert "program.py:3" in answer["reason"] and answer["host_reads"][0]["count"] > 300
    assert answer["host_reads"][0]["line"]["line"] == 3


def test_a_program_that_never_used_cuda(simulate):
    done = simulate("import torch\nprint(torch.ones(5).sum().item(), torch.cuda.is_available())\n")
    assert done.code == 4 and "never used CUDA" in done.answer["reason"] and "5.0 True" in done.err


@pytest.mark.afresh
def test_a_program_without_pytorch(simulate):
    done = simulate("print('no torch at all')\n")
    assert done.code == 4 and done.answer["devices"] == []


TWO = """\
import torch
a = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:0")
b = torch.empty(300 << 20, dtype=torch.uint8, device="cuda:1")
a2 = b[: 100 << 20].to("cuda:0")
print(torch.cuda.device_count())
"""


def test_two_devices(simulate):
    done = simulate(TWO, "--devices", "2", "--memory", "1GiB", "--context", "100MiB")
    assert done.code == 0 and "2\n" in done.err, done.err
    first, second = done.answer["devices"]
    assert (first["device"], first["allocated"]["low"], first["used"]["low"]) == ("cuda:0", 200 * MIB, 300 * MIB)
    assert (second["device"], second["allocated"]["low"], second["used"]["low"]) == ("cuda:1", 300 * MIB, 400 * MIB)
    assert done.answer["peak"]["device"] == "cuda:1"
    done = simulate(TWO, "--devices", "1", "--no-retry")
    assert done.code == 5 and "invalid device ordinal" in done.answer["reason"]


API = """\
import pickle, sys
import cuptimem

def train(width, note="x"):
    import torch
    weights = torch.empty(width, 1 << 20, dtype=torch.uint8, device="cuda")
    print("width", width, torch.cuda.get_device_name(0))

def fail(width):
    raise RuntimeError("on purpose")

if __name__ == "__main__":
    found = cuptimem.simulate(train, 300, device="l4", memory="1GiB", context="100MiB")
    assert pickle.loads(pickle.dumps(found)) == found and str(found)
    print(found.verdict, found.devices[0].used.low >> 20, found.contributors[0].frame.line, found.output.strip())
    found = cuptimem.simulate(lambda: train(1500), memory="1GiB", context=100 << 20, retry=False)
    print(found.verdict, found.fits, len(found.report.ooms))
    found = cuptimem.simulate(fail, 3000)
    print(found.verdict, found.reason)
    for wrong in (dict(device="h1000"), dict(memory="lots"), dict(output=__file__)):
        try:
            cuptimem.simulate(train, 1, **wrong)
        except (cuptimem.Error, ValueError) as error:
            print(type(error).__name__, str(error)[:40])
    try:
        cuptimem.simulate(train, sys._getframe())
    except cuptimem.Error as error:
        print("Error", str(error)[:40])
"""


def has_cloudpickle(python: str) -> bool:
    return subprocess.run([python, "-c", "import cloudpickle"], capture_output=True, check=False).returncode == 0


def test_a_function_through_the_api(sim_python, tmp_path):
    if not has_cloudpickle(sim_python):
        pytest.skip("cloudpickle is not installed beside the CUDA build of PyTorch")
    (tmp_path / "program.py").write_text(API)
    done = subprocess.run(
        [sim_python, "program.py"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=200
    )
    assert done.stdout.splitlines() == [
        "fits 400 6 width 300 NVIDIA L4",
        "does not fit False 1",
        "script failed RuntimeError: on purpose at program.py:10",
        "Error no device 'h1000' to simulate; did you m",
        "ValueError a size is written like 24GiB or 512MiB, ",
        f"Error {tmp_path}/program.py exists"[:46],
        "Error train or its arguments cannot be pickled",
    ], done.stderr


def test_a_function_without_cloudpickle(sim_python, tmp_path):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('none')\n")
    code = "import cuptimem\ntry:\n    cuptimem.simulate(print)\nexcept cuptimem.Error as error:\n    print(error)"
    done = subprocess.run(
        [sim_python, "-c", code], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=300
    )
    assert "-m pip install cloudpickle" in done.stdout and done.stderr == ""


WORKERS = """\
import torch, torch.multiprocessing as mp
def work(rank):
    torch.empty(200 << 20, dtype=torch.uint8, device="cuda")
if __name__ == "__main__":
    torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    mp.spawn(work, nprocs=1)
"""


@pytest.mark.afresh
def test_processes_that_share_a_device(simulate):
    done = simulate(WORKERS, "--memory", "350MiB", "--context", "50MiB")
    assert done.code == 4 and "2 processes used cuda:0" in done.answer["reason"], done.err
    assert done.answer["devices"][0]["used"]["low"] == (2 * 50 + 300) * MIB
    assert any("2 processes used the device" in note for note in done.answer["notes"])


# As a CUDA runtime does that is linked into another library: without the driver's tables there is no device.
OWN_RUNTIME = """\
int cuInit(unsigned);
int cuGetExportTable(const void **, const unsigned char *);
int own_devices(void)
{
    const void *table = 0;
    return cuInit(0) || cuGetExportTable(&table, (const unsigned char *)"0123456789abcdef") ? 0 : 1;
}
"""
FALLS_BACK = """\
import ctypes, os, torch
x = torch.ones(8, device="cuda")
print("by files", all(os.path.exists(f"/dev/nvidia{name}") for name in ("0", "ctl")), os.path.exists("/dev/nvidia1"))
print("by runtime", ctypes.CDLL("./libown.so").own_devices())
"""


@pytest.mark.parametrize("program", [FALLS_BACK, FALLS_BACK.replace("x = torch", "# x = torch")])
def test_a_library_that_finds_no_device_is_named(simulate, tmp_path, program):
    """The program goes on with the CPU, as CuPy may: beside PyTorch on the device, and where nothing else is on it."""
    source = tmp_path / "own.c"
    source.write_text(OWN_RUNTIME)
    words = ["gcc", "-shared", "-fPIC", "-O1", str(source), "-o", str(tmp_path / "libown.so")]
    subprocess.run(words, check=True, timeout=60)
    done = simulate(program)
    assert done.code == 4, done.err
    assert "by files True False" in done.err and "by runtime 0" in done.err
    assert "cuGetExportTable for libown.so" in done.answer["reason"]
    assert "may take the CPU" in done.answer["hints"][0]
