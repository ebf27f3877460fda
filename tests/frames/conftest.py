from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import support  # noqa: E402


@pytest.fixture
def core() -> Iterator[ModuleType]:
    """The extension under test with a new capture begun; no module code is set afterwards."""
    module = support.build()
    module.begin()
    yield module
    module.frames_module_call(None)
    module.log_room(-1)


@pytest.fixture
def small() -> ModuleType:
    """The same with small tables: 2,000 stacks remembered, modules folded after 300."""
    module = support.build("frames_testing_small", "-DCM_INTERN_MAX_STACKS=2000u", "-DCM_INTERN_FOLD_AFTER=300u")
    module.begin()
    return module
