from tests.forkserver.fixtures import forked, forks

__all__ = ["forked", "forks"]
