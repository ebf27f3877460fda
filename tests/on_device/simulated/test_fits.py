"""`cuptimem fits`: does each row of its tables say what `cuptimem simulate` says of that card or setting?"""

import subprocess

import pytest

from cuptimem.cli import fits
from tests.conftest import ROOT, clean_environment
from tests.on_device.simulated.test_simulate import FRAGMENTED

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]

# Between the a10g and the rtx3060, which have one architecture.
BETWEEN = """\
import torch
kept = torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
weight = torch.ones(1024, 1024, device="cuda")
print("result", (weight @ weight).shape)
"""


def test_arithmetic_says_what_runs_say(simulate):
    done = simulate(BETWEEN, "--gate", "--device", "a6000,RTX3060,a10g", verb="fits")
    small, middle, large = done.answer["rows"]
    assert done.code == done.answer["exit_code"] == 3, done.err
    assert [one["name"] for one in (small, middle, large)] == ["rtx3060", "a10g", "a6000"]
    assert [one["by"] for one in (small, middle, large)] == ["arithmetic", "arithmetic", "run"]
    assert [one["verdict"] for one in (small, middle, large)] == ["does not fit", "fits", "fits"]
    run = simulate(BETWEEN, "--device", "a10g").answer
    assert run["verdict"] == "fits"
    assert middle["takes"] == run["devices"][0]["used"]
    assert middle["free"] == run["memory"] - run["devices"][0]["used"]["high"]
    run = simulate(BETWEEN, "--device", "rtx3060").answer
    assert run["verdict"] == "does not fit"
    assert small["takes"]["low"] == run["need"]["low"] and small["free"] == run["memory"] - run["need"]["low"]


def test_a_card_that_is_near_is_run(simulate):
    """22.06 GiB: less than 5 % stay free."""
    done = simulate(BETWEEN.replace("15 << 30", "21 << 30"), "--device", "a10g,a40", verb="fits")
    assert done.code == 0, done.err
    assert [(one["verdict"], one["by"]) for one in done.answer["rows"]] == [("fits", "run"), ("fits", "run")]


# Each layer takes 1 GiB: 67,108,864 parameters with gradients and two moments, 16 bytes each.
LAYERS = """\
import sys
import torch
net = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(int(sys.argv[1])))).cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
for _ in range(2):
    net(torch.ones(1, 8192, device="cuda")).sum().backward()
    optimizer.step()
"""
CARDS = ("rtx3060", "l4", "a10g", "rtx4090", "rtx3090", "l40s", "a40", "a6000")  # 11.6 to 47.4 GiB


# 32 questions. Where it fits was written down from the cards' sizes and contexts, before any was asked.
@pytest.mark.extended
@pytest.mark.parametrize(("layers", "fits_from"), [(11, "rtx3060"), (22, "rtx4090"), (43, "l40s"), (46, "a6000")])
def test_cards_that_a_sum_can_tell(simulate, layers, fits_from):
    done = simulate(LAYERS, "--device", ",".join(CARDS), verb="fits", behind=(str(layers),))
    told = {one["name"]: one["verdict"] for one in done.answer["rows"]}
    first = CARDS.index(fits_from)
    assert told == {name: "fits" if at >= first else "does not fit" for at, name in enumerate(CARDS)}, done.err


def test_each_setting_is_a_case():
    asked = fits.parser().parse_args(["--compare-settings", "--memory", "1GiB", "train.py"])
    as_it_is, *others = fits._cases(asked)
    assert (as_it_is.name, as_it_is.setup.alloc_conf) == ("as it is", None)
    assert {one.name for one in others} > {
        *("expandable_segments:True", "max_split_size_mb:128"),
        *("backend:cudaMallocAsync", "roundup_power2_divisions:8"),
    }
    assert all(one.setup.alloc_conf == one.name for one in others)
    assert {one.setup.memory for one in (as_it_is, *others)} == {1 << 30}


@pytest.mark.extended
def test_settings_are_compared(simulate):
    options = ("--compare-settings", "--memory", "1GiB", "--context", "100MiB")
    done = simulate(FRAGMENTED, *options, "--gate", verb="fits")
    assert done.code == 3, done.err
    rows = {one["name"]: one for one in done.answer["rows"]}
    native, expandable = rows["as it is"], rows["expandable_segments:True"]
    assert native["verdict"] == "does not fit" and native["reserved"] is None
    assert native["takes"]["low"] == 900 << 20 and native["takes"]["high"] > 1 << 30
    # What it had mapped when the device was full is in what it takes, and PyTorch does not count that as reserved.
    assert (
        expandable["verdict"] == "fits"
        and 0 <= expandable["free"] < (1024 - 100 << 20) - expandable["reserved"]["high"]
    )
    assert {"max_split_size_mb:128", "backend:cudaMallocAsync", "roundup_power2_divisions:8"} < set(rows)


def test_a_program_that_fails_ends_the_table(simulate):
    done = simulate("import torch\ntorch.ones(1, device='cuda')\nraise SystemExit(7)\n", verb="fits", json=False)
    assert done.code == 5 and done.err.count("running it") == 1
    assert "the program failed" in done.out


@pytest.mark.extended
@pytest.mark.parametrize(("memory", "code"), [("1GiB", 0), ("500MiB", 3)])
def test_the_gate_of_the_example(sim_python, memory, code):
    command = [
        sim_python,
        "-m",
        "cuptimem",
        "fits",
        "--gate",
        "--memory",
        memory,
        ROOT / "examples" / "ci" / "train.py",
    ]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
