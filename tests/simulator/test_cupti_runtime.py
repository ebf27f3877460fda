"""A CUPTI client on the whole simulator: what callbacks and records tell of the runtime's and the driver's calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulator.objects import Objects
from tests.simulator.test_cupti import HERE, run

pytestmark = pytest.mark.torch  # needs none: but once is enough, with the main interpreter

# What lives as long as the process, by design: tables that are read without a lock.
KEPT = "leak:cm_sim_dictionary_put\n"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_every_allocation_and_kernel_is_told_twice(
    tmp_path: Path, objects: Callable[[str], Objects], sanitizer: str
) -> None:
    compiled = objects(sanitizer)
    core = compiled.link(tmp_path / "libcuptimem_sim.so", compiled.all(), "-shared")
    client = compiled.link(tmp_path / "client", [core], HERE / "subscriber.c")
    (tmp_path / "kept").write_text(KEPT)
    options = f"suppressions={tmp_path / 'kept'}:print_suppressions=0"
    run(client, CUPTIMEM_SIM_DEVICES="2", LSAN_OPTIONS=options)
