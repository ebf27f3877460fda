"""DistributedDataParallel on torch's fake process group, where collectives give no result back.

A group without a result is enough for FSDP2. DistributedDataParallel reads each bucket's reduced gradients out of it,
and fails in the first backward. PyTorch's own hook that leaves a bucket as it is (`noop_hook`) takes the reduction's
place. Buckets, gradients and their copies stay as large as with the reduction that PyTorch does by default.

Runs inside the simulated process, imports nothing that torch has not loaded before the first forward.
"""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any


def install(torch: ModuleType) -> None:
    """Raises what torch raises where it has no such class or method."""
    parallel = torch.nn.parallel.DistributedDataParallel
    prepare = parallel._lazy_init  # before the first forward, when all hooks of the program's own are registered

    def _lazy_init(self: Any) -> None:
        prepare(self)
        if not self._comm_hooks and torch.distributed.get_backend(self.process_group) == "fake":
            from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

            with contextlib.suppress(RuntimeError):  # one of PyTorch's own in C++ is there, which that list has not
                self.register_comm_hook(None, noop_hook)

    parallel._lazy_init = _lazy_init
