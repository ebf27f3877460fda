from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import tracelib  # noqa: E402


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tracelib.compile_library(tmp_path_factory.mktemp("trace"))


@pytest.fixture(autouse=True)
def no_ring_file(request: pytest.FixtureRequest) -> None:
    """Every test starts without a ring file left behind."""
    if "lib" in request.fixturenames:
        request.getfixturevalue("lib").double_orphan(tracelib.TAIL_NONE, b"", 0)
