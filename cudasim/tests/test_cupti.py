"""The CUPTI surface alone, as a client with its own declarations sees it, under sanitizers: the rest of the simulator
is doubled (cupti/doubles.c)."""

import re
import subprocess
from pathlib import Path

import pytest

from cudasim.tests.objects import SOURCES, client
from tests.build import SANITIZERS
from tests.conftest import clean_environment

HERE = Path(__file__).parent / "cupti"


def units_of(program: str) -> list[str]:
    return re.findall(r'\{"(\w+)", \w+\}', (HERE / f"{program}.c").read_text())


UNITS = {unit: program for program in ("callbacks", "records", "buffers", "clock") for unit in units_of(program)}
SECOND = units_of("second")
# What is asked for, of which release, and which unit of hostile.c looks at it.
HOSTILE = [
    ("drop=5", "", "drop"),
    ("reorder", "", "reorder"),
    ("wrap", "", "wrap"),
    ("foreign", "", "foreign"),
    ("late", "", "late"),
    ("taken=Some Tool", "", "taken"),
    ("refuse=35", "", "refuse"),
    ("nodriver", "", "nodriver"),
    ("nodriver", "13.3", "nodriver"),
    ("olddriver", "13.3", "olddriver"),
    ("slow=20", "", "slow"),
    ("timebase=20", "", "timebase"),
    ("nullbuffer", "12.8", "nullbuffer"),
    ("crash", "13.2", "crash"),
    ("wrap,drop=5", "", "drop"),
]
GENERATIONS = [line.split() for line in (HERE / "generations.txt").read_text().splitlines() if not line.startswith("#")]


# What the surface is made of, and what it asks of the rest of the simulator.
SURFACE, DOUBLES = sorted(SOURCES.glob("cupti/*.c")), HERE / "doubles.c"


def build(program: str, sanitizer: str) -> Path:
    return client(program, sanitizer, [*SURFACE, DOUBLES, HERE / f"{program}.c"])


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


@pytest.fixture(scope="module", params=SANITIZERS)
def units(request: pytest.FixtureRequest) -> dict[str, Path]:
    """The programs that have units."""
    return {program: build(program, request.param) for program in sorted(set(UNITS.values()))}


@pytest.mark.parametrize("unit", UNITS)
def test_unit(units: dict[str, Path], unit: str) -> None:
    run(units[UNITS[unit]], unit)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_clients_come_and_go_while_threads_call(sanitizer: str) -> None:
    run(build("fire", sanitizer))


@pytest.fixture(scope="module")
def records() -> Path:
    return build("records", "address")


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda row: row[0])
def test_records_are_as_long_as_that_release_writes_them(records: Path, generation: list[str]) -> None:
    name, version, *sizes = generation
    assert run(records, "generation", CUPTIMEM_SIM_CUPTI=name).split() == ["version", version, *sizes]


def test_unknown_generation_is_the_default_one(records: Path) -> None:
    default = run(records, "generation")
    assert default.split()[:2] == ["version", "130001"]
    assert run(records, "generation", CUPTIMEM_SIM_CUPTI="99.9") == default
    assert run(records, "generation", CUPTIMEM_SIM_CUPTI="") == default


@pytest.fixture(scope="module", params=SANITIZERS)
def second(request: pytest.FixtureRequest) -> Path:
    return build("second", request.param)


@pytest.mark.parametrize("unit", SECOND)
def test_second_interface(second: Path, unit: str) -> None:
    run(second, unit, CUPTIMEM_SIM_CUPTI="13.3")


@pytest.fixture(scope="module")
def hostile() -> Path:
    return build("hostile", "address")


@pytest.mark.parametrize(("words", "generation", "unit"), HOSTILE, ids=lambda value: value or "13.0")
def test_hostile(hostile: Path, words: str, generation: str, unit: str) -> None:
    imitated = {"CUPTIMEM_SIM_CUPTI": generation} if generation else {}
    run(hostile, unit, CUPTIMEM_SIM_HOSTILE=words, **imitated)


def test_every_hostile_behaviour_is_described_and_tried() -> None:
    text = (SOURCES / "cupti" / "cupti_hostile.c").read_text()
    described = re.findall(r"^ \*   (\w+)(?:\[?=\w+\]?)? +\S", text, re.M)
    assert {words.split("=")[0] for words, _, _ in HOSTILE if "," not in words} == set(described) - {"arrays"}


def test_a_behaviour_that_does_not_exist_is_said(hostile: Path) -> None:
    done = subprocess.run(
        [hostile, "refuse"],
        capture_output=True,
        text=True,
        env={**clean_environment(), "CUPTIMEM_SIM_HOSTILE": "refuse=35,drop,unkind"},
        timeout=120,
    )
    assert done.returncode == 0
    said = [f"cuptimem: CUPTIMEM_SIM_HOSTILE: not understood: {word}" for word in ("drop", "unkind")]
    assert done.stderr.splitlines() == said
