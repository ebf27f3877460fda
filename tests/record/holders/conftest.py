"""Programs whose searches for holders go through all that PyTorch has imported, as users' do."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.conftest import Result


@pytest.fixture
def forked(forked: Callable[..., Result]) -> Callable[..., Result]:
    def call(*words: str, env: Mapping[str, str] | None = None, **how: Any) -> Result:
        return forked(*words, env={**(env or {}), "FORKS_SEE_ALL": "1"}, **how)

    return call
