"""CUPTI's activity records as the witness takes them, and totals of devices: with a CUPTI, a driver and an NVML that C
programs play (activity/play.h, fake.h), under sanitizers. No CUDA, no simulated device."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

pytestmark = pytest.mark.torch  # needs none: but once is enough, with the main interpreter

HERE = Path(__file__).parent / "activity"
CSRC = ROOT / "csrc"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"]
PARTS = ["sources/cupti_activity.c", "sources/cupti_records.c", "sources/cupti_clock.c", "capture/clock.c"]

if not CSRC.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)


def build(folder: Path, program: str, sanitizer: str, parts: list[str], *more: str) -> Path:
    words = ["gcc", *FLAGS, "-fno-sanitize-recover=all", f"-fsanitize={sanitizer}", *more]
    words += [f"-I{sysconfig.get_paths()['include']}", str(HERE / program), str(HERE / "doubles.c")]
    words += [str(CSRC / part) for part in parts]
    target = folder / Path(program).stem
    done = subprocess.run([*words, "-lpthread", "-ldl", "-o", str(target)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return target


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
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("records"), "records.c", "address,undefined", PARTS, str(HERE / "play.c"))


@pytest.mark.parametrize("case", cases("records.c"))
def test_records(records: Path, case: str) -> None:
    assert run(records, case) == "done\n"


@pytest.fixture(scope="module")
def buffers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("buffers"), "buffers.c", "address,undefined", PARTS, str(HERE / "play.c"))


@pytest.mark.parametrize("case", cases("buffers.c"))
def test_buffers(buffers: Path, case: str) -> None:
    assert run(buffers, case) == "done\n"


def test_many_threads_hand_over_without_a_race(tmp_path: Path) -> None:
    program = build(tmp_path, "buffers.c", "thread", PARTS, str(HERE / "play.c"))
    assert run(program, "many_threads") == "done\n"
    assert run(program, "the_end") == "done\n"


@pytest.fixture(scope="module")
def totals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("totals")
    for source, name in (("fake_cuda.c", "libcuda.so.1"), ("fake_nvml.c", "libnvidia-ml.so.1")):
        words = ["gcc", *FLAGS, "-shared", "-fPIC", str(HERE / source), f"-Wl,-soname,{name}", "-o", str(folder / name)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    parts = ["sources/device_totals.c", "capture/clock.c"]
    return build(folder, "totals.c", "address,undefined", parts, "-Wl,--wrap=clock_gettime")


@pytest.mark.parametrize("case", cases("totals.c"))
def test_totals(totals: Path, case: str) -> None:
    assert run(totals, case, LD_LIBRARY_PATH=str(totals.parent)) == "done\n"
