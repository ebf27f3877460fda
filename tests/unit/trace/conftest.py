from typing import Any

import pytest
import tracelib


@pytest.fixture(scope="session")
def lib() -> Any:
    return tracelib.compile_library()


@pytest.fixture(autouse=True)
def no_ring_file(request: pytest.FixtureRequest) -> None:
    """Every test starts without a ring file left behind."""
    if "lib" in request.fixturenames:
        request.getfixturevalue("lib").double_orphan(tracelib.TAIL_NONE, b"", 0)
