"""A CUPTI client on the whole simulator: what callbacks and records tell of the runtime's and the driver's calls."""

from pathlib import Path

import pytest

from cudasim.tests import objects
from cudasim.tests.test_cupti import HERE, run
from tests.build import SANITIZERS

# What lives as long as the process, by design: tables that are read without a lock.
KEPT = "leak:cm_sim_dictionary_put\n"


@pytest.mark.parametrize(
    "sanitizer", [pytest.param(one, marks=pytest.mark.extended) if one == "thread" else one for one in SANITIZERS]
)
def test_every_allocation_and_kernel_is_told_twice(tmp_path: Path, sanitizer: str) -> None:
    core = objects.client("libcuptimem_sim.so", sanitizer, objects.everything(), ["-shared"])
    client = objects.client("client", sanitizer, [HERE / "subscriber.c"], [core])
    (tmp_path / "kept").write_text(KEPT)
    options = f"suppressions={tmp_path / 'kept'}:print_suppressions=0"
    run(client, CUPTIMEM_SIM_DEVICES="2", LSAN_OPTIONS=options)
