"""Programs that record themselves as forks of one that has imported PyTorch."""

from tests.forkserver.fixtures import forked, forks

__all__ = ["forked", "forks"]
