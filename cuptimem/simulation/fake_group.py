"""Torch's fake process group, where collectives give no result back: what the backend that it stands for would do.

A group without a result is enough for FSDP2. DistributedDataParallel reads each bucket's reduced gradients out of it,
and fails in the first backward. PyTorch's own hook that leaves a bucket as it is (`noop_hook`) takes the reduction's
place. Buckets, gradients and their copies stay as large as with the reduction that PyTorch does by default. It also
cuts what is gathered along the first dimension, where NCCL takes any shape (SyncBatchNorm has one row).

On CUDA devices the group stands for NCCL: each has a communicator on its rank's device as soon as CUDA is in use.
PyTorch makes one with a group's first collective, so a group without any is counted as if it had one.

Runs inside the simulated process, imports nothing that torch has not loaded before the first forward.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from types import ModuleType
from typing import Any


def install(torch: ModuleType) -> None:
    """Raises what torch raises where it has no such class or method."""
    _count_communicators(torch)
    _flatten_gathered(torch)
    parallel = torch.nn.parallel.DistributedDataParallel
    prepare = parallel._lazy_init  # before the first forward, when all hooks of the program's own are registered

    def _lazy_init(self: Any) -> None:
        prepare(self)
        if not self._comm_hooks and _is_fake(self.process_group):
            from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook

            with contextlib.suppress(RuntimeError):  # one of PyTorch's own in C++ is there, which that list has not
                self.register_comm_hook(None, noop_hook)

    parallel._lazy_init = _lazy_init


def _count_communicators(torch: ModuleType) -> None:
    if not torch.distributed.is_available():
        return
    groups = torch.distributed.distributed_c10d
    make, destroy = groups._new_process_group_helper, groups.destroy_process_group
    simulator = ctypes.CDLL(None)
    join, leave = simulator.cm_sim_nccl_join, simulator.cm_sim_nccl_leave
    join.argtypes, leave.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p), (ctypes.c_void_p,)
    joined: list[tuple[Any, int]] = []  # groups and their communicators

    def count(group: Any) -> None:
        if group not in groups._world.pg_map or not _stands_for_nccl(torch, group):
            return
        waits = not torch.cuda.is_initialized()

        def take() -> None:
            found = ctypes.c_void_p()
            if group not in groups._world.pg_map:
                return
            if join(group.size(), _device(torch, group, waits), ctypes.byref(found)):
                raise torch.cuda.OutOfMemoryError("CUDA out of memory: no room for a communicator of NCCL")
            joined.append((group, found.value or 0))

        torch.cuda._lazy_call(take)

    def helper(size: int, *arguments: Any, **keywords: Any) -> Any:
        before = set(groups._world.pg_map)
        made = make(size, *arguments, **keywords)
        if made[0] not in before:
            count(made[0])
        return made

    def registered(group: Any, *arguments: Any, **keywords: Any) -> None:
        register(group, *arguments, **keywords)
        count(group)

    def destroy_process_group(*arguments: Any, **keywords: Any) -> None:
        destroy(*arguments, **keywords)
        for one in [one for one in joined if one[0] not in groups._world.pg_map]:
            joined.remove(one)
            leave(one[1])

    register: Any = getattr(groups, "_register_pg_in_world", None)
    if register is not None:  # from torch 2.14 on, where groups are also made by splitting others
        groups._register_pg_in_world = registered
    else:
        groups._new_process_group_helper = helper
    groups.destroy_process_group = torch.distributed.destroy_process_group = destroy_process_group


def _device(torch: ModuleType, group: Any, waits: bool) -> int:
    """Where a rank's communicator lies; -1: on the current device.

    waits: CUDA was not in use when the group was made. set_device() may be what puts it in use, and has set nothing
    then: the device is taken to be that of torchrun's place in the machine.
    """
    if group.bound_device_id is not None:
        return int(group.bound_device_id.index)
    local = os.environ.get("LOCAL_RANK", "") if waits else ""
    return int(local) % torch.cuda.device_count() if local.isdecimal() else -1


def _flatten_gathered(torch: ModuleType) -> None:
    if not torch.distributed.is_available():
        return
    groups = torch.distributed.distributed_c10d
    name = "all_gather_single" if hasattr(groups, "all_gather_single") else "all_gather_into_tensor"  # before 2.14
    gather = getattr(groups, name)

    def gather_flat(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        is_member = not groups._rank_not_in_group(group)
        if is_member and output_tensor.is_contiguous() and _is_fake(group or groups._get_default_group()):
            output_tensor, input_tensor = output_tensor.view(-1), input_tensor.reshape(-1)
        return gather(output_tensor, input_tensor, group, async_op)

    setattr(groups, name, gather_flat)
    setattr(torch.distributed, name, gather_flat)


def _is_fake(group: Any) -> bool:
    """Also where it has the name of what it stands for (fake_world.py)."""
    return any(group._get_backend(one).name() == "fake" for one in group._device_types)


def _stands_for_nccl(torch: ModuleType, group: Any) -> bool:
    """Whether it is a fake one on CUDA devices, and no gloo's."""
    groups = torch.distributed.distributed_c10d
    devices = [one for one in group._device_types if one.type == "cuda"]
    if not devices or group._get_backend(devices[0]).name() != "fake":
        return False
    config = groups.BackendConfig(groups.Backend(groups._world.pg_map[group][0]))
    return bool(config.get_device_backend_map().get("cuda") != "gloo")
