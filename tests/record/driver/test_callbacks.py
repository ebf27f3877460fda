"""CUPTI's callbacks, raised by a C program of our own, and the events that come of them; plain, and under sanitizers.
What the real PyTorch raises on the simulated device is compared elsewhere (test_driver_match.py)."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.build import SANITIZERS, build, generated, works
from tests.conftest import ROOT

HERE = Path(__file__).parent
SOURCES = ROOT / "csrc" / "sources"
if not SOURCES.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)

FLAGS = ["-std=gnu11", "-g", "-fexceptions", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-Wno-unused-parameter", "-Wno-missing-field-initializers"]
PARTS = [
    "cupti/callbacks",
    "cupti/calls",
    "cupti/calls_read",
    "libraries",
    "driver_events",
    "inflight",
    "emit",
    "loaded",
]
CASES = [
    name
    for name in re.findall(r'\{"(\w+)", \1\}', (HERE / "callbacks" / "main.c").read_text())
    if name != "threads"
]  # fmt: skip

# A driver, and libraries that call it: each function has a frame of its own.
DRIVER = 'void driver(void (*call)(void *), void *argument) { call(argument); __asm__ volatile(""); }\n'
LIBRARY = """void driver(void (*call)(void *), void *argument);
void allocate(void (*call)(void *), void *argument) { driver(call, argument); __asm__ volatile(""); }
"""


def libraries(folder: Path) -> None:
    shared = ("-shared", "-fPIC", "-O1")
    made = [build("libcuda.so.1", [generated("driver.c", DRIVER)], *shared, link=["-Wl,-soname,libcuda.so.1"])]
    for name in "abc":
        words = [made[0], "-Wl,-rpath,$ORIGIN"]
        made.append(build(f"lib{name}.so", [generated("library.c", LIBRARY)], *shared, link=words))
    for library in made:
        shutil.copy(library, folder)


def program(folder: Path, *flags: str) -> Path:
    parts = [SOURCES / f"{name}.c" for name in PARTS]
    ours = [*sorted((HERE / "callbacks").glob("*.c")), HERE / "ring_double.c", ROOT / "csrc/base/clock.c"]
    made = build("callbacks", [*parts, *ours], *FLAGS, *flags, link=["-lpthread", "-ldl"])
    return Path(shutil.copy(made, folder))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("callbacks")
    libraries(folder)
    return program(folder, "-O2")


def run(built: Path, case: str) -> str:
    done = subprocess.run([built, case, built.parent], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_there_are_cases() -> None:
    assert {"memory", "nested", "halves", "contexts", "libraries", "releases"} < set(CASES) and len(CASES) == 13


@pytest.mark.parametrize("case", CASES)
def test_case(built: Path, case: str) -> None:
    run(built, case)


@pytest.mark.parametrize("sanitizer", ["none", *(pytest.param(s, marks=pytest.mark.sanitizer) for s in SANITIZERS)])
def test_threads(built: Path, sanitizer: str, tmp_path: Path) -> None:
    """Callbacks on several threads while libraries come and go and are read by another."""
    if sanitizer != "none":
        if not works(sanitizer):
            pytest.skip(f"no {SANITIZERS[sanitizer]} here")
        libraries(tmp_path)
        built = program(tmp_path, SANITIZERS[sanitizer], "-O1", "-fno-sanitize-recover=all")
    calls, threads = map(int, run(built, "threads").split())
    assert calls == 3200 and threads == 5
    run(built, "moves")
    if sanitizer == "address":
        for case in ("descriptions", "nested", "halves", "contexts", "untold", "libraries"):
            run(built, case)
