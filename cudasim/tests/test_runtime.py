"""The CUDA runtime, called by C clients with their own declarations, under sanitizers. CUPTI is doubled
(runtime/doubles.c): it keeps what it is told."""

import re
import subprocess
from pathlib import Path

import pytest

from cudasim.tests.objects import SOURCES, client
from tests.conftest import clean_environment

HERE = Path(__file__).parent / "runtime"
# What stands beside the runtime and the driver on the same core, and is not needed here.
OTHERS = re.compile(r"cupti_|cublas|cudnn|cufft|cusolver|cusparse|libraries|nvml")
PROGRAMS = {"blocks": [HERE / "blocks.c"], "work": sorted((HERE / "work").glob("*.c"))}
CASES = {
    program: [name for path in sources for name in re.findall(r'\{"(\w+)", \w+\}', path.read_text())]
    for program, sources in PROGRAMS.items()
}


def build(program: str, sanitizer: str) -> Path:
    shared = [path for path in SOURCES.glob("*/*.c") if not OTHERS.match(path.name)]
    return client(program, sanitizer, [*shared, HERE / "doubles.c", *PROGRAMS[program]])


def run(program: Path, case: str, **environment: str) -> str:
    done = subprocess.run(
        [program, case],
        capture_output=True,
        text=True,
        env={**clean_environment(), "CUPTIMEM_SIM_DEVICE": "l4,h100", **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    return done.stderr


@pytest.fixture(scope="module")
def clients() -> dict[str, Path]:
    return {program: build(program, "address") for program in CASES}


ENVIRONMENT = {
    "no_device": {"CUPTIMEM_SIM_DEVICE": "none"},
    "pool_full": {"CUPTIMEM_SIM_MEMORY": "2GiB"},
    "lag": {"CUPTIMEM_SIM_EVENT_LAG": "3"},
    "polling": {"CUPTIMEM_SIM_EVENT_LAG": "3"},
    "shared_event": {"CUPTIMEM_SIM_EVENT_LAG": "3"},
}


def test_the_clients_have_cases() -> None:
    assert len(CASES["blocks"]) >= 13 and len(CASES["work"]) >= 13
    assert set(ENVIRONMENT) <= {*CASES["blocks"], *CASES["work"]}


@pytest.mark.parametrize(("program", "case"), [(program, case) for program, cases in CASES.items() for case in cases])
def test_calls(clients: dict[str, Path], program: str, case: str) -> None:
    said = run(clients[program], case, **ENVIRONMENT.get(case, {}))
    if case == "no_device":
        assert "CUPTIMEM_SIM_DEVICE=none" in said
    else:
        assert said == ""


def test_threads() -> None:
    """The same under ThreadSanitizer."""
    work = build("work", "thread")
    assert run(work, "threads") == ""
    assert run(work, "shared_event", **ENVIRONMENT["shared_event"]) == ""
