import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "analysis"))

import craft

if TYPE_CHECKING:
    from tests.tools.notebook.kernels import Kernel


@pytest.fixture(scope="session", autouse=True)
def _craft_library() -> None:
    craft.Trace.library = craft.encoder()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Kernel]":
    """One for the tests of a module, with torch and the extension loaded."""
    from tests.tools.notebook.kernels import started

    with started(tmp_path_factory.mktemp("kernel")) as one:
        outputs = one.run("import torch, gc, os\nimport cuptimem\n%load_ext cuptimem")
        assert not outputs, outputs
        yield one
