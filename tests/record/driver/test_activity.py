"""CUPTI's activity records as the CUPTI thread takes them, and totals of devices: with a CUPTI, a driver and an NVML
that C programs play (activity/play.h, fake.h), under sanitizers. No CUDA, no simulated device."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.build import SANITIZERS, build
from tests.conftest import ROOT, clean_environment

HERE = Path(__file__).parent / "activity"
CSRC = ROOT / "csrc"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"]
PARTS = [
    "sources/cupti/activity.c",
    "sources/cupti/activity_records.c",
    "sources/cupti/activity_clock.c",
    "base/clock.c",
]
PARTS += [str(HERE / "play.c")]

if not CSRC.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)


def compiled(program: str, sanitizer: str, parts: list[str], *more: str) -> Path:
    flags = [*FLAGS, "-fno-sanitize-recover=all", SANITIZERS[sanitizer], f"-I{sysconfig.get_paths()['include']}"]
    sources = [*(HERE / name for name in (f"{program}.c", "doubles.c")), *(CSRC / part for part in parts)]
    return build(program, sources, *flags, link=["-lpthread", "-ldl", *more])


def run(program: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, env={**clean_environment(), **environment}, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout


def cases(program: str) -> list[str]:
    return re.findall(r'^    \{"(\w+)", \w+\},$', (HERE / program).read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def records() -> Path:
    return compiled("records", "address", PARTS)


@pytest.mark.parametrize("case", cases("records.c"))
def test_records(records: Path, case: str) -> None:
    assert run(records, case) == "done\n"


@pytest.fixture(scope="module")
def buffers() -> Path:
    return compiled("buffers", "address", PARTS, "-Wl,--wrap=nanosleep")


@pytest.mark.parametrize("case", cases("buffers.c"))
def test_buffers(buffers: Path, case: str) -> None:
    assert run(buffers, case) == "done\n"


def test_many_threads_hand_over_without_a_race() -> None:
    program = compiled("buffers", "thread", PARTS, "-Wl,--wrap=nanosleep")
    assert run(program, "many_threads") == "done\n"
    assert run(program, "the_end") == "done\n"


@pytest.fixture(scope="module")
def totals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("totals")
    for source, name in (("fake_cuda.c", "libcuda.so.1"), ("fake_nvml.c", "libnvidia-ml.so.1")):
        shutil.copy(build(name, [HERE / source], *FLAGS, "-shared", "-fPIC", link=[f"-Wl,-soname,{name}"]), folder)
    parts = ["sources/device_totals.c", "base/clock.c", "capture/statm.c"]
    return Path(shutil.copy(compiled("totals", "address", parts, "-Wl,--wrap=clock_gettime"), folder))


@pytest.mark.parametrize("case", cases("totals.c"))
def test_totals(totals: Path, case: str) -> None:
    assert run(totals, case, LD_LIBRARY_PATH=str(totals.parent)) == "done\n"
