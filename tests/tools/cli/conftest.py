"""Programs that record themselves, as forks of a process that has imported PyTorch."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Result, clean_environment
from tests.forkserver import Forks


def _environment() -> dict[str, str]:
    return {**clean_environment(), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def forks(state_home: None) -> Iterator[Forks]:
    servers = Forks(sys.executable, _environment())
    yield servers
    servers.close()


@pytest.fixture
def run_forked(needs_torch: None, forks: Forks, tmp_path: Path) -> Callable[[str], Result]:
    """Runs a script of the test's folder there. Not for what `cuptimem run` or the startup file has to do."""

    def call(script: str) -> Result:
        path = tmp_path / script
        return forks.of(path.read_text()).run(path, environment=_environment(), cwd=tmp_path)

    return call
