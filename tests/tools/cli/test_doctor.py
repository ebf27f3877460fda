"""cuptimem doctor, in environments that are really as they are said to be."""

import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from cuptimem.record import live_nodes
from tests import pythons
from tests.conftest import ROOT, clean_environment

STATES = {"ok", "note", "warning", "failed"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> str:
    """A Python with cuptimem and nothing else: no torch, no rich."""
    home = tmp_path_factory.mktemp("bare")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    site = next(home.glob("lib/python3.*/site-packages"))
    (site / "__paths.pth").write_text(f"{ROOT}\n")
    pythons.add_startup(site)
    return str(home / "bin" / "python")


def doctor(python, cwd, *options, env=None, shell="exec"):
    """The exit code and what --json said (text without it)."""
    words = [python, "-m", "cuptimem", "doctor", *(options or ("--json",))]
    environment = clean_environment()
    del environment["CUPTIMEM_RING_DIR"]
    done = subprocess.run(
        ["sh", "-c", f'{shell} "$@"', "sh", *words],
        env={**environment, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout) if not options or "--json" in options else done.stdout


def found(answer, name):
    checks = [check for check in answer["checks"] if check["name"] == name]
    assert len(checks) == 1, (name, [check["name"] for check in answer["checks"]])
    return checks[0]


@pytest.mark.torch
def test_where_everything_works(python, tmp_path):
    code, answer = doctor(python, tmp_path)
    assert code == 0 and answer["works"] and answer["schema"] == 1
    assert set(answer) == {"schema", "version", "works", "verdict", "checks", "slots", "offsets", "nodes"}
    for check in answer["checks"]:
        assert set(check) == {"group", "name", "state", "text", "cost", "fix"} and check["state"] in STATES
        assert check["text"] and "\n" not in "".join(check.values())
    for name in ("bytes", "stack", "nodes", "backward"):
        assert found(answer, name)["state"] == "ok"
    simulated = found(answer, "simulate")
    assert simulated["state"] in ("ok", "note") and "torch" in simulated["text"]
    assert (simulated["state"] == "ok") is (simulated["cost"] == "")
    assert found(answer, "bytes")["text"].startswith("20 tensors of 46964 bytes were alive, 20 of them recorded")
    assert found(answer, "autostart")["state"] == "ok" and found(answer, "trace folder")["state"] == "ok"
    by_name = {(slot["name"], slot["library"]): slot["patched"] for slot in answer["slots"]}
    assert by_name["c10::ProfiledCPUMemoryReporter::New", "libc10.so"] == 1
    assert by_name["torch::autograd::Engine::evaluate_function", "libtorch_cpu.so"] == 1
    assert {"torch::autograd::Node::sequence_nr_", "c10::StorageImpl::size_bytes_"} <= set(answer["offsets"])
    assert sum(name.startswith("_PyInterpreterFrame.") for name in answer["offsets"]) == 5
    assert answer["nodes"] == live_nodes.claim(importlib.metadata.version("torch"), None)
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
def test_the_text(python, tmp_path):
    code, text = doctor(python, tmp_path, "--all")
    lines = text.splitlines()
    assert code == 0 and lines[-1].startswith("Recording works")
    assert [line for line in lines if line and line[0] != " "][:-1] == [
        *("Installed", "Sources", "Self-test", "Places", "Settings", "Slots", "Offsets")
    ]
    assert any(
        "CPU allocations" in line and "c10::ProfiledCPUMemoryReporter::New in libc10.so (1)" in line for line in lines
    )


def test_without_torch(bare, tmp_path):
    code, answer = doctor(bare, tmp_path)
    assert code == 1 and not answer["works"]
    torch = found(answer, "torch")
    assert (torch["state"], torch["text"]) == ("failed", "not installed in this Python")
    assert "pip install torch" in torch["fix"] and "traces can be read" in torch["cost"]
    assert answer["verdict"] == "Recording does not work here: torch: not installed in this Python"
    assert found(answer, "recording")["state"] == "ok" and found(answer, "rich")["state"] == "warning"
    assert found(answer, "Python stacks")["state"] == "ok" and found(answer, "autostart")["state"] == "ok"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "raise ImportError('libcudart.so.12: cannot open\\nshared object file')",
            "ImportError: libcudart.so.12: cannot",
        ),
        ("import no_such_part", "ModuleNotFoundError: No module named 'no_such_part'"),
        pytest.param("import sys; sys.exit(3)", "SystemExit: 3", marks=pytest.mark.extended),
        pytest.param("1/0", "ZeroDivisionError: division by zero", marks=pytest.mark.extended),
    ],
)
def test_a_torch_that_cannot_be_imported(bare, tmp_path, source, text):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(source)
    code, answer = doctor(bare, "/", env={"PYTHONPATH": str(tmp_path)})
    assert code == 1 and found(answer, "torch")["text"].startswith(f"it cannot be imported: {text}")
    assert "PYTHONPATH" in found(answer, "torch")["fix"]


def test_a_torch_that_kills_its_process(bare, tmp_path):
    (tmp_path / "torch.py").write_text("import os, sys; sys.stderr.write('no luck\\n'); os.abort()")
    code, answer = doctor(bare, "/", env={"PYTHONPATH": str(tmp_path)})
    assert code == 1 and found(answer, "process")["text"] == "it was killed by signal 6: no luck"


def test_something_else_named_torch(bare, tmp_path):
    (tmp_path / "torch.py").write_text("brightness = 3")
    code, answer = doctor(bare, "/", env={"PYTHONPATH": str(tmp_path)})
    assert code == 1 and "is not PyTorch" in found(answer, "torch")["text"]


def test_a_folder_that_cannot_be_written_to(bare):
    code, answer = doctor(bare, "/proc/self")  # where not even root can
    check = found(answer, "trace folder")
    assert code == 1 and check["state"] == "failed" and "cannot be written to" in check["text"] and "-o" in check["fix"]


def test_a_chosen_place_for_rings_that_cannot_be_used(bare, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    settings = {"CUPTIMEM_RING_DIR": str(file / "rings"), "CUPTIMEM_OUPUT": "x.cmem", "CUPTIMEM_QUIET": "1"}
    settings["CUPTIMEM_SIM_DEVICE"] = "h100"  # of a simulated device, which is not there
    _, answer = doctor(bare, tmp_path, env=settings)
    rings = found(answer, "rings")
    assert rings["state"] == "warning" and f"CUPTIMEM_RING_DIR={file}/rings cannot be used" in rings["text"]
    unknown = found(answer, "CUPTIMEM_OUPUT")
    assert unknown["state"] == "warning" and unknown["fix"] == "did you mean CUPTIMEM_OUTPUT"
    unused = found(answer, "CUPTIMEM_SIM_DEVICE")
    assert unused["state"] == "note" and "which is not loaded here" in unused["text"]
    assert found(answer, "variables")["text"] == f"CUPTIMEM_QUIET=1, CUPTIMEM_RING_DIR={file}/rings"


def test_a_chosen_place_for_rings(bare, tmp_path):
    _, answer = doctor(bare, tmp_path, env={"CUPTIMEM_RING_DIR": str(tmp_path)})
    assert found(answer, "rings")["state"] == "ok"
    assert found(answer, "rings")["text"] == f"16.0 MiB in {tmp_path} (CUPTIMEM_RING_DIR)"


def test_limits_of_files(bare, tmp_path):
    """No ring fits: it is in private memory then, and said to be."""
    _, answer = doctor(bare, tmp_path, shell="ulimit -f 8192; exec")
    rings = found(answer, "rings")
    assert rings["state"] == "warning" and "private memory" in rings["text"] and "killed" in rings["cost"]
    assert found(answer, "ulimit -f")["text"].startswith("files end at ")


def test_rings_that_killed_processes_left(bare, tmp_path):
    rings, traces = tmp_path / "rings", tmp_path / "traces"
    rings.mkdir()
    traces.mkdir()
    program = (
        "import cuptimem, os, sys; cuptimem.profile(sys.argv[1]).__enter__(); "
        "from cuptimem import _core; _core.capture_share(); os.kill(os.getpid(), 9)"
    )
    environment = {**clean_environment(), "CUPTIMEM_RING_DIR": str(rings)}
    trace = traces / "run.cmem"
    died = subprocess.run([bare, "-c", program, str(trace)], env=environment)
    assert died.returncode == -signal.SIGKILL and len(list(rings.iterdir())) == 1
    _, answer = doctor(bare, tmp_path, env={"CUPTIMEM_RING_DIR": str(rings)})
    left = found(answer, "left rings")
    if left["state"] == "ok":
        assert left["text"].endswith(" of killed processes, brought home to their traces just now")
    else:  # this machine has others, whose traces are gone
        assert str(rings) not in left["fix"]
    assert list(rings.iterdir()) == []


def test_under_a_recording_of_its_own(bare, tmp_path):
    """cuptimem run -m cuptimem doctor is recorded itself, and lets go of nothing. CUPTIMEM=1 alone does not
    record the command itself."""
    trace = tmp_path / "doctor.cmem"
    _, answer = doctor(bare, tmp_path, env={"CUPTIMEM": "1", "CUPTIMEM_RUN": "1", "CUPTIMEM_OUTPUT": str(trace)})
    assert found(answer, "recording")["state"] == "ok" and trace.stat().st_size > 500
    assert found(answer, "left rings") == {**found(answer, "left rings"), "state": "ok", "text": "none"}


def test_started_without_site(bare, tmp_path):
    """python -S: nothing that .pth files add, so no autostart."""
    words = [bare, "-S", "-m", "cuptimem", "doctor", "--json"]
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and found(answer, "torch")["text"] == "not installed in this Python"
    assert found(answer, "autostart")["text"] == "this Python runs with -S"


def test_without_the_startup_files(bare, tmp_path):
    (site,) = Path(bare).parents[1].glob("lib/python3.*/site-packages")
    for name in pythons.STARTUP:
        (site / name).unlink()
    try:
        _, answer = doctor(bare, tmp_path)
    finally:
        pythons.add_startup(site)
    check = found(answer, "autostart")
    assert (
        check["state"] == "warning"
        and "in no folder that site looks into" in check["text"]
        and "install cuptimem again" in check["fix"]
    )


@pytest.mark.parametrize(("attribute", "value"), [("_is_gil_enabled", lambda: False)])
def test_a_free_threaded_python(monkeypatch, attribute, value):
    from cuptimem import doctor as module

    monkeypatch.setattr(sys, attribute, value, raising=False)
    diagnosis = module.examine()
    failed = {check.name: check for check in diagnosis.checks if check.state == "failed"}
    assert not diagnosis.works and set(failed) == {"Python", "C core"}
    assert "free-threaded" in failed["Python"].text and "has the GIL" in failed["Python"].fix
    assert diagnosis.slots == ()


@pytest.mark.parametrize(
    ("version", "name", "state", "said"),
    [
        ((3, 10, 9), "cpython", "failed", "nothing can be recorded"),
        ((3, 16, 0), "cpython", "warning", "stacks may be missing"),
        ((3, 11, 13), "pypy", "failed", "nothing can be recorded"),
    ],
)
def test_another_python(monkeypatch, version, name, state, said):
    from cuptimem.doctor import installed

    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys.implementation, "name", name)
    check = installed._python()
    assert check.state == state and said in check.cost and "3.11 to 3.15" in check.fix


@pytest.mark.parametrize(
    ("system", "machine", "state", "said"),
    [
        ("Darwin", "arm64", "failed", "nothing can be recorded"),
        ("Windows", "AMD64", "failed", "nothing can be recorded"),
        ("Linux", "aarch64", "warning", "in an emulator alone"),
        ("Linux", "x86_64", "ok", ""),
    ],
)
def test_another_system(monkeypatch, system, machine, state, said):
    from cuptimem.doctor import installed

    monkeypatch.setattr(installed.platform, "system", lambda: system)
    monkeypatch.setattr(installed.platform, "machine", lambda: machine)
    check = {check.name: check for check in installed.checks()}["system"]
    assert check.state == state and said in check.cost


def test_an_old_python(tmp_path):
    old = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.10.*/bin/python"))
    if not old:
        pytest.skip("no Python 3.10 here")
    code, answer = doctor(str(old[0]), tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert code == 1 and found(answer, "Python")["state"] == "failed" and "3.11" in found(answer, "Python")["fix"]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm", "c10::ProfiledCPUMemoryReporter::New"),
        ("_ZN5torch8autograd4NodeD2Ev", "torch::autograd::Node::~Node"),
        ("_ZNK2at14RecordFunction4nameEv", "at::RecordFunction::name"),
        (
            "St23_Sp_counted_ptr_inplaceIN5torch8autograd10CopySlicesESaIS2_ELN9__gnu_cxx12_Lock_policyE2EE",
            "std::make_shared<torch::autograd::CopySlices>",
        ),
        ("cudaMalloc", "cudaMalloc"),
    ],
)
def test_readable_names(symbol, name):
    from cuptimem.doctor.slots import readable

    assert readable(symbol) == name


def test_slots_that_are_not_there():
    """What a torch that cannot be intercepted costs, and that bytes without frees are no recording."""
    from cuptimem import doctor as module
    from cuptimem.doctor.slots import slot_checks

    slots = [
        module.Slot("allocator", "_ZN1a1bEv", "a::b", "CPU allocation", "", 0),
        module.Slot("allocator", "_ZN1a1cEv", "a::c", "CPU free", "libx.so", 0),
        module.Slot("autograd", "_ZN1a1dEv", "a::d", "autograd node destroyed (before torch 2.13)", "liby.so", 2),
    ]
    checks = {check.name: check for check in slot_checks(slots)}
    assert checks["CPU allocations"].state == checks["CPU frees"].state == "failed"
    assert checks["CPU allocations"].text == "no loaded library calls a::b in a way that can be intercepted"
    assert checks["CPU frees"].text == "a::c in libx.so could not be intercepted"
    assert (checks["nodes destroyed"].state, checks["nodes destroyed"].text) == ("ok", "a::d in liby.so (2)")
    assert all(check.cost and check.fix for check in checks.values() if check.state != "ok")


def test_a_bundle_has_no_name_of_a_user_or_of_a_folder(bare, tmp_path):
    work = tmp_path / "secret-project"
    work.mkdir()
    settings = {
        "HOME": "/home/CORP/jane.doe",
        "CUPTIMEM_RING_DIR": "/home/CORP/jane.doe/rings",
        "CUDA_HOME": "/data/secret-project/cuda-13",
        "PYTHONPATH": f"{ROOT}:/mnt/secret-project/jane.doe/lib:/home/CORP/jane.doe/work/secret-project/src",
        "PYTHONUSERBASE": f"{work}/secret-project/base",
        "TORCHELASTIC_RUN_ID": "secret-project-17",
        "AWS_SECRET_ACCESS_KEY": "secret-project",
        "NVIDIA_API_KEY": "nvapi-secret-project",
        "TORCH_INDEX": "https://user:secret-project@example.com/simple",
    }
    code, said = doctor(bare, work, "--bundle", env=settings)
    file = work / "cuptimem-doctor.json"
    text, answer = file.read_text(), json.loads(file.read_text())
    for hidden in ("secret-project", "jane", str(ROOT), bare, str(tmp_path)):
        assert hidden not in text, hidden
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    _, shown = doctor(bare, work)
    assert [one["name"] for one in answer["checks"]] == [one["name"] for one in shown["checks"]]
    assert answer["variables"]["NVIDIA_API_KEY"] == answer["variables"]["TORCH_INDEX"] == "<set>"
    assert answer["works"] is (code == 0) and f"wrote {file.name}" in said
    assert answer["variables"]["CUDA_HOME"] == ".../cuda-13" and answer["variables"]["CUPTIMEM_RING_DIR"] == "~/rings"
    assert answer["variables"]["PYTHONPATH"].endswith(":.../lib:~/.../src")
    assert answer["python"]["version"] and answer["system"]["libc"]
    done = subprocess.run(
        [bare, "-m", "cuptimem", "doctor", "--bundle"],
        cwd=work,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "exists; choose another name, or replace it with --force" in done.stderr
