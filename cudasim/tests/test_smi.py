"""The nvidia-smi of a simulated run, over devices made by hand; tests/on_device/simulated asks it in a run."""

import subprocess
import sys
import xml.etree.ElementTree as tree

import pytest

from cudasim import smi

MIB = 1 << 20


@pytest.fixture
def gpus() -> list[smi.Gpu]:
    first = smi.Gpu(
        0, "NVIDIA L4", "GPU-a", "00000000:01:00.0", 22563 * MIB, "8.9", 4321, "/usr/bin/python3", 400 * MIB
    )
    return [first, smi.Gpu(1, "NVIDIA <L4>", "GPU-b", "00000000:02:00.0", 22563 * MIB, "8.9")]


def test_fields_with_units_and_without(gpus):
    fields = smi._fields("name, memory.used,memory.free,utilization.gpu,compute_cap,pstate,count", "580")
    heading = "name, memory.used [MiB], memory.free [MiB], utilization.gpu [%], compute_cap, pstate, count\n"
    rows = "NVIDIA L4, 400 MiB, 22163 MiB, 0 %, 8.9, [N/A], 2\nNVIDIA <L4>, 0 MiB, 22563 MiB, 0 %, 8.9, [N/A], 2\n"
    assert smi._csv(gpus, fields, ["csv"], "580", 2) == heading + rows
    bare = "NVIDIA L4, 400, 22163, 0, 8.9, [N/A], 2\n"
    assert smi._csv(gpus[:1], fields, ["csv", "noheader", "nounits"], "580", 2) == bare


def test_memory_that_is_the_hosts(gpus):
    """NVML does not support the question, as of a GB10; what a process has is known."""
    gpus[0].total = None
    fields = smi._fields("name,memory.used,memory.total,memory.free", "580")
    assert smi._csv(gpus[:1], fields, ["csv", "noheader"], "580", 1) == "NVIDIA L4, [N/A], [N/A], [N/A]\n"
    table = smi._table(gpus, "580", "13.0")
    assert "|          Not Supported |" in table and "0MiB / 22563MiB" in table and "400MiB |" in table
    of_first = tree.fromstring(smi._xml(gpus, "580", "13.0", 2)).find("gpu/fb_memory_usage")
    assert {one.tag: one.text for one in of_first} == dict.fromkeys(("total", "reserved", "used", "free"), "[N/A]")


@pytest.mark.parametrize("form", [[""], ["csv", "pretty"], ["noheader"]])
def test_only_csv(gpus, form):
    with pytest.raises(smi.Refused) as refused:
        smi._csv(gpus, ["name"], form, "580", 2)
    assert refused.value.code == 2


@pytest.mark.parametrize("field", ["colour", "", "pid", "used_memory"])
def test_a_field_that_is_none(field):
    with pytest.raises(smi.Refused, match="is not a valid field to query") as refused:
        smi._fields(f"name,{field}", "580")
    assert refused.value.code == 2


def test_fields_of_processes():
    assert smi._fields("pid,used_memory,gpu_uuid", "580", smi._APPLICATION) == ["pid", "used_memory", "gpu_uuid"]
    with pytest.raises(smi.Refused):
        smi._fields("memory.total", "580", smi._APPLICATION)


@pytest.mark.parametrize("words", [["--query-gpu", "name", "-i", "0"], ["--query-gpu=name", "--id=0"]])
def test_options(words):
    assert smi._parsed(words) == {"--query-gpu": "name", "--id": "0"}
    assert smi._parsed(["-q", "-x"]) == smi._parsed(["-qx"]) == {"--query": "", "--xml-format": ""}


@pytest.mark.parametrize("words", [["topo", "-m"], ["-pm", "1"], ["dmon"], ["-l", "1"]])
def test_what_it_does_not_answer(words):
    with pytest.raises(smi.Refused, match="is not simulated") as refused:
        smi._parsed(words)
    assert refused.value.code == 3


def test_the_table(gpus):
    lines = smi._table(gpus, "580.65.06", "13.0").splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert "| NVIDIA-SMI 580.65.06" in lines[2] and "CUDA Version: 13.0" in lines[2]
    assert any("400MiB / 22563MiB" in line for line in lines) and any("0MiB / 22563MiB" in line for line in lines)
    assert any("4321      C   /usr/bin/python3" in line and "400MiB |" in line for line in lines)
    assert "No running processes found" in smi._table(gpus[1:], "580.65.06", "13.0")


def test_the_xml_is_one(gpus):
    root = tree.fromstring(smi._xml(gpus, "580.65.06", "13.0", 2))
    assert [gpu.findtext("product_name") for gpu in root.iter("gpu")] == ["NVIDIA L4", "NVIDIA <L4>"]
    assert [gpu.findtext("fb_memory_usage/used") for gpu in root.iter("gpu")] == ["400 MiB", "0 MiB"]
    assert root.findtext("gpu/processes/process_info/pid") == "4321" and root.findtext("attached_gpus") == "2"


def test_without_a_simulated_device():
    """A real NVML, or none: it never speaks of a real device."""
    done = subprocess.run([sys.executable, "-I", "-S", smi.__file__, "-L"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (9, "")
    assert done.stdout == "this nvidia-smi answers for a simulated device, and there is none\n"
