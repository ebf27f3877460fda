"""The command `cudasim`: a program runs on the device as it would run without the command."""

import subprocess
import sys
import tomllib
from pathlib import Path

import cudasim
from tests.conftest import ROOT, clean_environment

# It uses the device by CUDA's own functions.
PROGRAM = """
import ctypes, sys
runtime = ctypes.CDLL("libcudart.so.13")
address, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(8 << 20)) == 0
assert runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value, sys.argv[1:])
sys.exit(5)
"""


def run(*words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cudasim", *words],
        cwd=cwd,
        env={**clean_environment(), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_program_runs_on_the_device_and_is_reported(tmp_path: Path) -> None:
    options = ("--device", "l4", "--memory", "1GiB", "--report", "used")
    done = run(*options, sys.executable, "-c", PROGRAM, "--device", "x", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout == f"{1 << 30} ['--device', 'x']\n"
    shown = run("--read", "used", cwd=tmp_path)
    assert shown.returncode == 0
    assert "device 0, NVIDIA L4: at most " in shown.stdout and " of 1,073,741,824 bytes in use" in shown.stdout
    assert "; 1 allocations, 0 refused\n" in shown.stdout


def test_what_cannot_be_done_is_one_line(tmp_path: Path) -> None:
    done = run("--device", "h900", "true")
    assert done.returncode == 2 and "error: no card 'h900'; there are " in done.stderr
    done = run("no-such-program")
    assert (done.returncode, done.stderr) == (127, "cudasim: no-such-program: No such file or directory\n")
    (tmp_path / "other").write_text("something else")
    done = run("--read", "other", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "cudasim: other is no report of the simulated device\n")
    assert run().returncode == 2


def test_other_libraries_stay_preloaded() -> None:
    found = cudasim.variables("/lib/mine.so")["LD_PRELOAD"].split(":")
    assert found[0].endswith(f"/{cudasim.CORE}") and found[-1] == "/lib/mine.so"


def test_it_is_a_product_of_its_own() -> None:
    """Nothing of it knows cuptimem's code."""
    files = [*ROOT.glob("cudasim/*.py"), *ROOT.glob("cudasim/csrc/**/*.[ch]"), *ROOT.glob("cudasim/tables/*")]
    for file in files:
        if file.is_file():
            text = file.read_text()
            assert "import cuptimem" not in text and "from cuptimem" not in text and "../../csrc" not in text, file
    project = tomllib.loads((ROOT / "cudasim" / "pyproject.toml").read_text())["project"]
    assert project["version"] == cudasim.__version__
