"""The driver and NVML, as a C client with its own declarations sees them, under sanitizers."""

import subprocess
from pathlib import Path

import pytest

from cudasim.tests.driver import clients
from tests.conftest import clean_environment

DEVICES = {"CUPTIMEM_SIM_DEVICE": "h100", "CUPTIMEM_SIM_DEVICES": "2", "CUPTIMEM_SIM_MEMORY": "4GiB"}


def run(client: Path, case: str, **environment: str) -> None:
    done = subprocess.run(
        [client, case],
        capture_output=True,
        text=True,
        env={**clean_environment(), **DEVICES, **environment},
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.fixture(scope="module")
def client() -> Path:
    return clients.build("address")


@pytest.mark.parametrize("case", clients.cases())
def test_case(client: Path, tmp_path: Path, case: str) -> None:
    # The objects of the shared tables lie in mappings, where LeakSanitizer does not look for what they point to.
    suppressed = tmp_path / "suppressed"
    suppressed.write_text("leak:cm_sim_dictionary_put\n")
    run(client, case, LSAN_OPTIONS=f"suppressions={suppressed}:print_suppressions=0")


def test_nvml_counts_devices_that_the_program_may_not_see(client: Path) -> None:
    run(client, "nvml", CUDA_VISIBLE_DEVICES="1")


def test_threads_without_races() -> None:
    run(clients.build("thread"), "threads")
