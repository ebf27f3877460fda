"""Shared by the simulator's tests."""

from collections.abc import Callable

import pytest

from tests.simulator.objects import Objects


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Objects]:
    """The simulator's object files under a sanitizer."""
    made: dict[str, Objects] = {}

    def under(sanitizer: str) -> Objects:
        if sanitizer not in made:
            made[sanitizer] = Objects(sanitizer, tmp_path_factory.mktemp("objects"))
        return made[sanitizer]

    return under
