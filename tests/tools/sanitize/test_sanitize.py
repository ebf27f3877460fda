"""The stress programs under both sanitizers, briefly: any report fails the run. `make sanitize` runs them for long."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import sanitize
from sanitize import CASES, Case, Finding, Programs

from tests.build import SANITIZERS, build, generated, works

pytestmark = pytest.mark.sanitizer


@pytest.fixture(scope="module", params=list(SANITIZERS))
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    if not works(request.param):
        pytest.skip(f"no {SANITIZERS[request.param]} here")
    programs = Programs(request.param, tmp_path_factory.mktemp(request.param))
    programs.build()
    return programs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_no_report(programs: Programs, case: Case) -> None:
    numbers = programs.run(case, long=False, seed=1, timeout=120)
    events, threads = sanitize.events_and_threads(case, case.short, numbers)
    assert events > 100 and threads >= 1
    if case.program == "slots":
        assert numbers[3] > 0  # a hook was called
    elif case.program == "control":
        assert numbers[3] > 20 and numbers[4] >= 1  # controls; captures that a full disk ended
    elif case.program == "frames":
        assert numbers[3] > 1000 and numbers[4] > 50 and numbers[5] > 0  # stacks, epochs, lost for want of room


def test_recovery_without_report(programs: Programs, tmp_path: Path) -> None:
    programs.run_killed(tmp_path)


BROKEN = {
    "thread": "static int n; static void *add(void *x) { for (int i = 0; i < 100000; i++) n++; return x; }",
    "address": "static void *add(void *x) { char *p = malloc(4); p[4] = 1; free(p); return x; }",
}


def test_a_race_and_an_overflow_are_found(programs: Programs, tmp_path: Path) -> None:
    """A program with a fault of the kind that this sanitizer is for."""
    main = "int main(void) { pthread_t t; pthread_create(&t, 0, add, 0); add(0); pthread_join(t, 0); return 0; }"
    text = f"#include <pthread.h>\n#include <stdlib.h>\n{BROKEN[programs.sanitizer]}\n{main}\n"
    flags = ("-g", "-O0", "-w", SANITIZERS[programs.sanitizer])
    shutil.copy(build("broken", [generated("b.c", text)], *flags, link=["-lpthread"]), programs.folder)
    with pytest.raises(Finding, match="data race|heap-buffer-overflow"):
        programs.run(Case("none", "broken", ("FOLDER",), ()), long=False, seed=1)
