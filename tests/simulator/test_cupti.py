"""The CUPTI surface alone, as a client with its own declarations sees it, under sanitizers: the rest of the simulator
is doubled (cupti/doubles.c)."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

pytestmark = pytest.mark.torch  # needs none: but once is enough, with the main interpreter

SOURCES = ROOT / "csrc" / "simulator"
HERE = Path(__file__).parent / "cupti"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all"]
UNITS = re.findall(r'\{"(\w+)", \w+\}', (HERE / "units.c").read_text())
GENERATIONS = [line.split() for line in (HERE / "generations.txt").read_text().splitlines() if not line.startswith("#")]

if not SOURCES.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)


def surface() -> list[Path]:
    """What the surface is made of, and the doubles."""
    return [*sorted(SOURCES.glob("cupti/*.c")), HERE / "doubles.c"]


def build(folder: Path, program: str, sanitizer: str) -> Path:
    done = subprocess.run(
        ["gcc", *FLAGS, f"-fsanitize={sanitizer}", f"-I{SOURCES}", HERE / program, *surface()]
        + ["-o", folder / "client", "-lpthread", "-ldl"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder / "client"


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        # A child of a program with threads makes its own; ThreadSanitizer refuses that unless told otherwise.
        env={**clean_environment(), "TSAN_OPTIONS": "die_after_fork=0", **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def units(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("units"), "units.c", request.param)


@pytest.mark.parametrize("unit", UNITS)
def test_unit(units: Path, unit: str) -> None:
    run(units, unit)


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_clients_come_and_go_while_threads_call(tmp_path: Path, sanitizer: str) -> None:
    run(build(tmp_path, "fire.c", sanitizer))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("generations"), "units.c", "address,undefined")


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda row: row[0])
def test_records_are_as_long_as_that_release_writes_them(client: Path, generation: list[str]) -> None:
    name, version, *sizes = generation
    assert run(client, "generation", CUPTIMEM_SIM_CUPTI=name).split() == ["version", version, *sizes]


def test_unknown_generation_is_the_default_one(client: Path) -> None:
    default = run(client, "generation")
    assert default.split()[:2] == ["version", "130001"]
    assert run(client, "generation", CUPTIMEM_SIM_CUPTI="99.9") == default
    assert run(client, "generation", CUPTIMEM_SIM_CUPTI="") == default
