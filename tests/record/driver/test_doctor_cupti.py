"""What doctor says about the driver level."""

import re
from pathlib import Path
from typing import Any

import pytest

from cudasim import VARIABLES
from cuptimem.doctor import cupti
from cuptimem.doctor.cupti import Finding
from cuptimem.simulation import child
from tests.conftest import ROOT

STATE: dict[str, Any] = {
    "mode": "callbacks",
    "reason": "",
    "path": "/x/libcupti.so.13",
    "version": 130001,
    "v2": False,
    "activity": True,
}


def found(cuda: dict[str, Any], state: dict[str, Any], library: str = "", **environment: str) -> dict[str, Finding]:
    answer = {"asked": "", "died": "", "init": 0, "nvml": True, "state": state, **cuda}
    findings = list(cupti.findings(answer, library, environment))
    assert len({finding.name for finding in findings}) == len(findings)
    return {finding.name: finding for finding in findings}


def test_no_driver() -> None:
    missing = {"missing": "libcuda.so.1: cannot open shared object file"}
    one = found(missing, {}, "/x/libcupti.so.13")
    assert set(one) == {"CUPTI"} and one["CUPTI"].state == "note"
    assert one["CUPTI"].text.endswith("; libcupti would be /x/libcupti.so.13") and "--gpus all" in one["CUPTI"].fix
    assert found(missing, {})["CUPTI"].text == "no NVIDIA driver is here (libcuda.so.1)"


def test_the_version_of_a_file_is_its_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read off the wheel, for the file is not one that could be asked."""
    file = tmp_path / "nvidia/cu13/lib/libcupti.so.13"
    file.parent.mkdir(parents=True)
    file.write_text("")
    about = tmp_path / "nvidia_cuda_cupti-13.2.86.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cuda-cupti\nVersion: 13.2.86\n")
    (about / "RECORD").write_text("nvidia/cu13/lib/libcupti.so.13,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cupti.library_text(str(file)) == f"{file}, of nvidia-cuda-cupti 13.2.86"
    assert cupti.library_text("/usr/local/cuda/lib64/libcupti.so.13") == "/usr/local/cuda/lib64/libcupti.so.13"


def test_a_probe_that_died_says_what_it_asked_and_nothing_else() -> None:
    died = found({"asked": "CUPTI (by a recording)", "died": "was killed by signal 11"}, {})
    assert set(died) == {"CUPTI"} and died["CUPTI"].state == "warning"
    assert died["CUPTI"].text == "the process that asked CUPTI (by a recording) was killed by signal 11"
    assert "--no-driver" in died["CUPTI"].fix


def test_a_driver_that_cannot_be_used() -> None:
    for code, words, fix in (
        (100, "no device", "nvidia-smi"),
        (803, "different releases", "reboot"),
        (17, "17", "smi"),
    ):
        one = found({"init": code}, STATE)["CUPTI"]
        assert one.state == "warning" and words in one.text and fix in one.fix and one.cost


def test_callbacks() -> None:
    one = found({}, STATE)
    assert one["CUPTI"] == Finding("CUPTI", "ok", "/x/libcupti.so.13, CUPTI 13.0 (130001): callbacks, with records")
    assert one["NVML"].state == "ok"
    assert (
        "beside other profilers, without records" in found({}, {**STATE, "v2": True, "activity": False})["CUPTI"].text
    )
    assert "CUPTI 13.2 (130200)" in found({}, {**STATE, "version": 130200})["CUPTI"].text
    old = found({"nvml": False}, {**STATE, "version": 18})
    assert "interface 18" in old["CUPTI"].text and old["NVML"].state == "warning"


def test_a_refusal_is_cause_and_fix() -> None:
    reason = "another profiler, Nsight (2026), holds CUPTI: error 39 (run without it)"
    one = found({}, {**STATE, "mode": "slots", "reason": reason})["CUPTI"]
    assert (one.state, one.fix, one.cost) == ("warning", "run without it", cupti.SLOTS_COST)
    assert found({}, {**STATE, "mode": "none", "reason": reason})["CUPTI"].cost == cupti.COST
    assert one.text == "another profiler, Nsight (2026), holds CUPTI: error 39; /x/libcupti.so.13"
    assert found({}, {**STATE, "mode": "slots", "reason": reason, "path": ""})["CUPTI"].text.endswith("error 39")
    late = found({}, {**STATE, "mode": "starting", "reason": ""})["CUPTI"]
    assert late.state == "warning" and "did not answer" in late.text


def test_settings() -> None:
    set_ = found({}, STATE, CUDA_INJECTION64_PATH="/nsys.so", NVIDIA_DRIVER_CAPABILITIES="compute,video")
    assert "/nsys.so" in set_["injection"].text and "lacks utility" in set_["capabilities"].text
    assert "capabilities" not in found({}, STATE, NVIDIA_DRIVER_CAPABILITIES="all")
    assert "capabilities" not in found({}, STATE, NVIDIA_DRIVER_CAPABILITIES="utility, compute")


def test_the_devices_variables_are_known() -> None:
    """All that its sources read, and no others."""
    folders = (ROOT / "cudasim/csrc", ROOT / "cudasim", ROOT / "cuptimem")
    if not folders[0].is_dir():
        pytest.skip("not in a source tree")
    sources = [path for folder in folders for path in folder.rglob("*.[chp]*")]
    read = {
        name
        for path in sources
        if path.suffix in (".c", ".h", ".py")
        for name in re.findall(r"CUPTIMEM_SIM_[A-Z_]*[A-Z]", path.read_text())
    }
    assert read == {*VARIABLES, child.VARIABLE, child.OFF}
