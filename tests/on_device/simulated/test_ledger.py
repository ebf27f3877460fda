"""The ledger, fragmentation and kernels of one program on a simulated device, against what PyTorch and the device tell
that program themselves."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import cli
from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

MIB = 1 << 20

NATIVE = """\
#include <stddef.h>
extern int cudaMalloc(void **pointer, size_t size);
void *take(size_t size)
{
    void *pointer = NULL;
    return cudaMalloc(&pointer, size) == 0 ? pointer : NULL;
}
"""

PROGRAM = """\
import ctypes, json, sys, time
import torch
from cuptimem import _core

native = ctypes.CDLL("./libnative.so")
native.take.restype, native.take.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
told = {}


def make_table():
    assert native.take(96 << 20)


def main():
    first = torch.empty(1, device="cuda")
    while _core.cupti_state()["mode"] != "callbacks":  # until then launches are not seen
        time.sleep(0.02)
    x = torch.ones(1000, 1024, device="cuda")
    time.sleep(0.5)
    early = torch.empty(48 << 20, dtype=torch.uint8, device="cuda")
    time.sleep(0.3)
    make_table()
    blocks = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (24, 8) * 12]
    y = (x @ x.T).relu_()
    pinned = torch.empty(16 << 20, dtype=torch.uint8, pin_memory=True)
    time.sleep(0.5)
    del blocks[::2]
    asked = torch.cuda.mem_get_info()[0] + (24 << 20) * 12 + (2 << 20)
    try:
        torch.empty(asked, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        told["asked"] = asked
    statistics = torch.cuda.memory_stats()
    told["free"], told["total"] = torch.cuda.mem_get_info()
    told["reserved"] = statistics["reserved_bytes.all.current"]
    told["allocated"] = statistics["allocated_bytes.all.current"]
    told["requested"] = statistics["requested_bytes.all.current"]
    time.sleep(0.5)
    print(json.dumps(told))
    return first, x, y, early, pinned, blocks


kept = main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture
def told(on_device: Callable[..., Result], folder: Path) -> dict[str, Any]:
    """What the program was told, by itself; its recording is run.cmem."""
    answer = folder / "told.json"
    if not answer.exists():
        (folder / "native.c").write_text(NATIVE)
        (folder / "program.py").write_text(PROGRAM)
        build = ["gcc", "-shared", "-fPIC", "-o", folder / "libnative.so", folder / "native.c"]
        subprocess.run(build, check=True, timeout=300)
        script = f"import os; os.chdir({str(folder)!r}); os.execv({{}}, {{}})"
        words = ["-m", "cuptimem", "run", "--kernels", "-q", "-o", "run.cmem", "program.py"]
        inside = script.format("sys.executable", f"[sys.executable, *{words!r}]")
        done = on_device("-c", f"import sys; {inside}", memory="2GiB")
        assert done.code == 0, done.err
        answer.write_text(done.out)
    return dict(json.loads(answer.read_text()))


@pytest.fixture
def report(told: dict[str, Any], folder: Path) -> cuptimem.Report:
    return cuptimem.open(folder / "run.cmem")


def test_the_ledger_has_what_the_program_was_told(report: cuptimem.Report, told: dict[str, Any]) -> None:
    one = report.ledger("cuda", "end")
    assert (one.total, one.used) == (told["total"], told["total"] - told["free"])
    assert one.tensors == told["requested"]
    assert one.tensors + one.rounding == told["allocated"]
    assert one.tensors + one.rounding + one.cached == told["reserved"]
    assert (one.residual, one.context, one.others) == (0, 512 * MIB, 0)
    native = next(line for line in one.driver if line.library == "libnative.so")
    assert (native.bytes, native.count, native.kind) == (96 * MIB, 1, "device")
    assert native.frame is not None and native.frame.function == "make_table"
    assert native.frame.source == "assert native.take(96 << 20)"
    handle = next(line for line in one.driver if line.name == "cuBLAS")
    assert handle.frame is not None and handle.frame.source == "y = (x @ x.T).relu_()"
    assert {line.name for line in one.driver} == {"libnative.so", "cuBLAS"}
    assert report.driver.record_check.agrees and report.driver.mode == "callbacks"


UNIFIED = """\
import json, sys, time, torch
x = torch.ones(40 << 20, dtype=torch.uint8, device="cuda")
torch.zeros(1 << 13, dtype=torch.long, device="cuda").sort()  # by CUB, which asks for which card its kernels are
time.sleep(1)
lines = open("/proc/meminfo").read().splitlines()
rows = {name: int(words.split()[0]) << 10 for name, _, words in (line.partition(":") for line in lines)}
free, total = torch.cuda.mem_get_info()
device = torch.cuda.get_device_properties(0)
print(json.dumps({"free": free, "total": total, "integrated": device.is_integrated, **rows}))
time.sleep(1)
"""


def test_a_device_whose_memory_is_the_hosts(on_device: Callable[..., Result], tmp_path: Path) -> None:
    """CUDA's totals and the machine's, which the program reads itself while other programs go on."""
    (tmp_path / "program.py").write_text(UNIFIED)
    words = ["-m", "cuptimem", "run", "-q", "-o", "run.cmem", "program.py"]
    inside = f"import os, sys; os.chdir({str(tmp_path)!r}); os.execv(sys.executable, [sys.executable, *{words!r}])"
    done = on_device("-c", inside, device="gb10")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["integrated"] == 1 and told["total"] == 130663055360
    used = told["total"] - told["free"]
    in_use = told["MemTotal"] - told["MemFree"]
    assert abs(used - in_use - 552 * MIB) < 2048 * MIB  # the context, the tensor, and what moved in between
    one = cuptimem.open(tmp_path / "run.cmem").ledger("cuda", "end")
    assert one.is_host_memory and one.total == told["total"] and one.tensors == 40 * MIB
    assert one.host is not None and one.page_cache is not None and sum(line.bytes for line in one.lines) == one.used
    # What other programs have by then is not what they had: of the host's parts only the order of magnitude is known.
    least = sum(told[key] for key in ("AnonPages", "Shmem", "SUnreclaim", "KernelStack", "PageTables")) // 8
    assert least < one.host < told["MemTotal"] and 0 <= one.page_cache < told["MemTotal"]
    assert one.driver_reserved is None and one.context is not None


def test_the_peak_is_before_the_refusal(report: cuptimem.Report) -> None:
    peak, end = report.ledger(), report.ledger(at="end")
    assert peak.used - end.used == 12 * 24 * MIB == peak.tensors - end.tensors
    assert report.ledger(at=peak.time_ns / 1e9).used == peak.used
    first = report.ledger(at=0.0)
    assert first.used < end.used and first.what == "asked" and first.residual == 0


def test_fragmentation_is_of_the_moment_of_refusal(report: cuptimem.Report, told: dict[str, Any]) -> None:
    one = report.fragmentation()
    assert (one.what, one.asked) == ("oom", told["asked"])
    assert (one.reserved, one.allocated, one.requested) == (told["reserved"], told["allocated"], told["requested"])
    assert one.free_on_device == told["free"]  # though nobody asked the driver after PyTorch emptied its cache
    assert one.largest_request is not None and one.asked is not None
    assert one.largest_request < one.asked <= one.unused + told["free"]
    assert one.pins[0].frame is not None and "for size in (24, 8)" in one.pins[0].frame.source


def test_page_locked_memory(report: cuptimem.Report) -> None:
    host = report.driver.host
    assert host is not None and host.bytes == sum(part.bytes for part in host.live) >= 16 * MIB
    largest = host.live[0]
    assert largest.frame is not None and "pin_memory=True" in largest.frame.source


def test_kernels(report: cuptimem.Report) -> None:
    kernels = report.kernels
    assert kernels is not None
    assert kernels.launches == kernels.ran > 0 and kernels.dropped == 0
    early = [use for use in kernels.early if use.frame is not None and "early = " in use.frame.source]
    assert [(use.bytes, use.count) for use in early] == [(48 * MIB, 1)]
    assert early[0].wait_ns >= kernels.wait_least_ns


@pytest.mark.parametrize("verb", ["ledger", "fragmentation", "kernels", "summary"])
def test_verbs(report: cuptimem.Report, verb: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / "run.cmem")
    assert cli.main([verb, path]) == 0
    shown = capsys.readouterr().out
    assert "cuda:0" in shown or verb == "kernels"
    assert not any(line.startswith("! ") and "host read" not in line and "refused" not in line
                   for line in shown.splitlines())  # fmt: skip
    assert cli.main([verb, path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 3 and document["complete"] is True
    if verb == "ledger":
        assert sum(line["bytes"] for line in document["ledgers"][0]["lines"]) == document["ledgers"][0]["used"]
