"""A command line in this process, and programs that record themselves as forks of one that has imported PyTorch."""

from collections.abc import Callable

import pytest

from cuptimem.cli import main
from tests.conftest import Result
from tests.forkserver.fixtures import forked, forks

__all__ = ["forked", "forks"]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A command line after `python -m cuptimem`, in this process: for tables of many, of which some are also run."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*words: str) -> Result:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        return Result(code, *capfd.readouterr())

    return call
