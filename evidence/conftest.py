"""The tests of evidence have the interpreters that those of tests/ have."""

from tests.conftest import python, state_home
from tests.on_device.simulated.conftest import sim_python

__all__ = ["python", "sim_python", "state_home"]
