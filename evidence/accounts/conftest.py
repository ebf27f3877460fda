"""Shared by the tests of accounts: where programs run."""

from collections.abc import Iterator

import pytest

from evidence.accounts.runs import Runs, on_cpu, on_device


@pytest.fixture(scope="session")
def cpu(needs_torch: None) -> Iterator[Runs]:
    found = on_cpu()
    yield found
    found.close()


@pytest.fixture(scope="session")
def cuda(sim_python: str) -> Iterator[Runs]:
    found = on_device(sim_python)
    yield found
    found.close()
