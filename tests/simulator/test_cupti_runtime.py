"""A CUPTI client on the whole simulator: what callbacks and records tell of the runtime's and the driver's calls."""

import runpy
import subprocess
from pathlib import Path

import pytest

from tests.simulator.test_cupti import FLAGS, HERE, SOURCES, run

pytestmark = pytest.mark.torch  # needs none: but once is enough, with the main interpreter

# What lives as long as the process, by design: tables that are read without a lock.
KEPT = "leak:cm_sim_dictionary_put\n"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_every_allocation_and_kernel_is_told_twice(tmp_path: Path, sanitizer: str) -> None:
    (tmp_path / "entries.c").write_text(
        runpy.run_path(str(SOURCES / "tables" / "generate.py"))["generate"](SOURCES / "tables")
    )
    # All of it, quickly: what is checked is not speed.
    flags = [
        *FLAGS,
        "-O0",
        "-g1",
        "-Wno-unused-parameter",
        "-fPIC",
        "-fvisibility=hidden",
        f"-fsanitize={sanitizer}",
        f"-I{SOURCES}",
    ]
    core, client = tmp_path / "libcuptimem_sim.so", tmp_path / "client"
    sources = [*sorted(SOURCES.glob("*/*.c")), tmp_path / "entries.c"]
    for command in (
        ["gcc", *flags, "-shared", *sources, "-o", core, "-lpthread", "-ldl", "-lrt"],
        ["gcc", *flags, HERE / "subscriber.c", core, "-o", client, "-lpthread", "-ldl"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    (tmp_path / "kept").write_text(KEPT)
    options = f"suppressions={tmp_path / 'kept'}:print_suppressions=0"
    run(client, CUPTIMEM_SIM_DEVICES="2", LSAN_OPTIONS=options)
