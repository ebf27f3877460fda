"""The tests of evidence have the interpreter that those of tests/ have."""

from tests.conftest import python, state_home

__all__ = ["python", "state_home"]
