"""Shared by the fuzzers' tests."""

from pathlib import Path

import pytest

from tests.tools.fuzz import fuzz


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of seeds.py."""
    return fuzz.write_seeds(tmp_path_factory.mktemp("seeds"))
