"""Nothing is allocated, locked or printed while the dynamic loader's lock is held: an allocator that is intercepted may
wait for that lock with its own in hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# Everything that asks the loader: slots of libraries that are there and that come, callers, CUPTI, the collector.
PROGRAM = """
import sys
sys.path[:0] = [{here!r}, {root!r}]
from child import *
core.sources_install()
core.sources_driver(True)
core.capture_record(True)
{body}
for _ in range(3): core.sources_rescan()
core.cupti_start(False, True, 0, 0, None)
core.cupti_stop()
core.capture_record(False)
core.sources_remove()
core.capture_stop()
"""
LIBRARIES = "import ctypes, decimal, sqlite3, ssl, xml.parsers.expat\n"


def callbacks_and_calls(tmp_path: Path, body: str) -> tuple[int, list[str]]:
    guard, out, script = tmp_path / "guard.so", tmp_path / "out", tmp_path / "program.py"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", HERE / "loader_guard.c", "-ldl", "-o", guard], check=True
    )
    script.write_text(PROGRAM.format(here=str(HERE), root=str(ROOT), body=body))
    environment = {
        "LD_PRELOAD": str(guard),
        "GUARDED": "/cuptimem/_core",
        "GUARD_OUT": str(out),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, **environment}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, *calls = out.read_text().splitlines()
    return int(first), calls


def test_without_torch(tmp_path: Path) -> None:
    callbacks, calls = callbacks_and_calls(tmp_path, LIBRARIES)
    assert callbacks > 100 and calls == []


@pytest.mark.torch
def test_with_torch(tmp_path: Path) -> None:
    body = "import torch\n" + LIBRARIES + "torch.ones(100, requires_grad=True).sum().backward()\n"
    callbacks, calls = callbacks_and_calls(tmp_path, body)
    assert callbacks > 100 and calls == []


def test_the_guard_notices(tmp_path: Path) -> None:
    """A callback that allocates, in a library with a name like ours."""
    source = tmp_path / "careless.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <link.h>\n#include <stdlib.h>\n"
        "static int see(struct dl_phdr_info *i, size_t s, void *c) { free(malloc(s)); return 1; }\n"
        "int careless(void) { return dl_iterate_phdr(see, 0); }\n"
    )
    (tmp_path / "cuptimem").mkdir()
    library = tmp_path / "cuptimem/_core_careless.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O0", source, "-o", library], check=True)
    body = f"import ctypes\nassert ctypes.CDLL({str(library)!r}).careless() == 1\n"
    _, calls = callbacks_and_calls(tmp_path, body)
    assert calls == ["malloc 1", "free 1"]
