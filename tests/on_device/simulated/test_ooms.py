"""A request that a device of known size refuses: the account against what PyTorch says at that moment."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from tests.conftest import ROOT, Result
from tests.forkserver import recorded

pytestmark = pytest.mark.cuda_torch
MIB = 1 << 20
MEMORY, ASKED = 1152, 600 * MIB - 5
PROGRAM = str(ROOT / "tests" / "on_device" / "simulated" / "refused_program.py")
OnDevice = Callable[..., Result]


@pytest.fixture
def refused(forked_on_device: OnDevice, tmp_path: Path) -> Callable[..., tuple[Result, dict[str, Any]]]:
    def call(mebibytes: int) -> tuple[Result, dict[str, Any]]:
        (tmp_path / "x.cmem").unlink(missing_ok=True)
        # Without workspaces of cuBLAS, which come into being inside of modules and of backward nodes.
        env = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", **recorded("x.cmem")}
        done = forked_on_device(PROGRAM, str(ASKED), memory=f"{mebibytes}MiB", env=env)
        return done, json.loads(done.out) if done.out else {}

    return call


def test_the_account_is_pytorchs(refused: Callable[..., tuple[Result, dict[str, Any]]], tmp_path: Path) -> None:
    done, said = refused(MEMORY)
    assert done.code == 1 and done.err.count("Out of memory on cuda:0: 600.0 MiB refused") == 1, done.err
    report = cuptimem.open(tmp_path / "x.cmem")
    oom = report.oom_left
    assert oom is not None and oom.memory is not None and report.ooms == (oom,)
    assert oom.frame is not None and oom.frame.function == "block"
    assert oom.requested == 600 * MIB  # as PyTorch rounds it
    assert (oom.allocated, oom.reserved, oom.cached) == (
        said["allocated"],
        said["reserved"],
        said["reserved"] - said["allocated"],
    )
    assert (oom.memory.reserved, oom.memory.allocated) == (said["reserved"], said["allocated"])
    assert oom.memory.too_small == oom.cached and oom.memory.empty_cache_returns == 0
    assert oom.memory.free_on_device == said["free"]
    assert oom.unknown == 0 and sum(c.bytes for c in oom.contributors) == said["allocated"]

    by_category: dict[str, int] = {}
    for c in oom.contributors:
        by_category[c.category] = by_category.get(c.category, 0) + c.bytes
    parameters = [one for one in oom.tensors if one.category == "parameter"]
    assert sum(one.bytes for one in parameters) == by_category["parameter"] > 0
    assert all(one.name and one.dtype == "float32" and one.shape for one in parameters)
    assert f"tensors {parameters[0].name} float32[" in done.err
    for category in ("optimizer state", "gradient"):
        assert by_category[category] == said[category], by_category
    assert by_category.get("parameter", 0) in (0, said["parameter"])  # without a walk they are unknown

    lacked = oom.memory.lacked
    assert lacked == 600 * MIB - said["free"] > 0
    assert f"- freeing {lacked / MIB:.1f} MiB more on the device" in done.err
    # As much more is enough, and less is not.
    done, said = refused(MEMORY + lacked // MIB)
    assert done.code == 0 and "Out of memory" not in done.err, done.err
    done, said = refused(MEMORY + lacked // MIB - 2)
    assert done.code == 1 and "- freeing 2.0 MiB more on the device" in done.err, done.err


GARBAGE = """\
import gc
import torch

gc.set_threshold(1 << 20)  # on, but none comes


class Node:
    def __init__(self, data):
        self.data, self.other = data, self


def main():
    kept = [Node(torch.empty(200 << 20, dtype=torch.uint8, device="cuda"))]
    Node(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")


main()
"""


def test_garbage_at_the_refusal_is_named(on_device: OnDevice, tmp_path: Path) -> None:
    """What a frame of the traceback holds is none, though it is a cycle, too."""
    (tmp_path / "nodes.py").write_text(GARBAGE)
    done = on_device("-m", "cuptimem", "run", "-f", "-o", "x.cmem", "nodes.py", memory="1GiB")
    garbage = cuptimem.open(tmp_path / "x.cmem").device("cuda").garbage
    assert garbage is not None and (garbage.collections, garbage.after_oom) == (0, 100 * MIB)
    said = (
        "100.0 MiB (33 %) of what was alive was garbage: only reference cycles held it (cycles of Node, most of it "
        "made at nodes.py:14), and a collection behind the failure freed it"
    )
    assert said in " ".join(done.err.split())
