from collections.abc import Iterator
from types import ModuleType

import frames_support
import pytest


@pytest.fixture
def core() -> Iterator[ModuleType]:
    """The extension under test with a new capture begun; no module code is set afterwards."""
    module: ModuleType = frames_support.build()
    module.begin()
    yield module
    module.frames_module_call(None)
    module.log_room(-1)


@pytest.fixture
def small() -> ModuleType:
    """The same with small tables: 2,000 stacks remembered, modules collapsed after 300, 512 answers at hand."""
    limits = [
        "CM_INTERN_MAX_STACKS=2000u",
        "CM_INTERN_COLLAPSE_AFTER=300u",
        "CM_FLAT_SETS_AT_START=32",
        "CM_FLAT_SETS_MAX=64",
    ]
    module: ModuleType = frames_support.build("frames_testing_small", *(f"-D{limit}" for limit in limits))
    module.begin()
    return module
