"""The other ranks of a distributed program, of which one runs: groups of NCCL and gloo are fake ones.

They keep their names, so that the program takes the way that it takes on NCCL. What a collective gives is what
PyTorch's fake group gives (fake_group.py). Objects are real: what a rank sends, broadcasts or scatters lies in a folder
that the runs of all ranks share, for sizes and layers hang on them. A rank that is to receive what no run has
sent ends, and says which rank has to run first.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import os
import pickle
import sys
from types import ModuleType
from typing import Any

from cuptimem.simulation import child, world

DEEPSPEED = "DeepSpeed's pipelines and inference are not simulated: their ranks tell each other sizes on the device"


def install(torch: ModuleType, folder: str, rank: int, size: int) -> None:
    """Raises AttributeError where torch has no such class or method, as of before 2.14."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    groups = distributed.distributed_c10d
    fake, store = torch._C._distributed_c10d.FakeProcessGroup, distributed.HashStore

    def creator(common: Any, options: Any) -> Any:
        return fake._create_internal(common.group_rank, common.group_size)

    def rendezvous(url: str, asked: int = -1, ranks: int = -1, **keywords: Any) -> Any:
        yield store(), rank if asked < 0 else asked, size if ranks < 0 else ranks

    for name in ("NCCL", "GLOO"):
        groups.Backend._plugins[name] = groups.Backend._BackendPlugin(creator, extended_api=True)
    groups.rendezvous = lambda url, rank=-1, world_size=-1, **keywords: rendezvous(url, rank, world_size)
    for name, function in _Objects(groups, folder).functions().items():
        setattr(groups, name, function)
        setattr(distributed, name, function)
    _note_mesh(distributed.device_mesh.DeviceMesh, folder, size)


def prepare_deepspeed(deepspeed: ModuleType) -> None:
    """ZeRO runs: it moves tensors by collectives alone. It asks rank 0 for its parameters' numbers only to compare them
    with its own, and those are taken to be equal."""

    def refuse(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError(DEEPSPEED)

    zero: Any = sys.modules["deepspeed.runtime.zero.utils"]
    zero.assert_lst_len_same_as_other_ranks = lambda numbers: None
    zero.get_lst_from_rank0 = lambda numbers: numbers
    # typeshed has no such attributes of a ModuleType.
    deepspeed.init_inference = refuse  # type: ignore[attr-defined]
    sys.modules["deepspeed.runtime.pipe.module"].PipelineModule.__init__ = refuse


def _note_mesh(mesh: Any, folder: str, size: int) -> None:
    """Notes the shape of the mesh of all ranks with the most dimensions."""
    make, noted = mesh.__init__, 0

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        nonlocal noted
        make(self, *arguments, **keywords)
        shape, ranks = self.mesh.shape, self.mesh.flatten().tolist()
        if ranks == list(range(size)) and len(shape) > noted:
            noted = len(shape)
            _write(os.path.join(folder, world.MESH), " ".join(map(str, shape)).encode())

    mesh.__init__ = __init__


class _Objects:
    """Collectives of objects. Each has the signature of torch's."""

    def __init__(self, groups: ModuleType, folder: str) -> None:
        self._groups: Any = groups
        self._folder = folder
        self._counts: dict[str, int] = {}
        self._originals = {name: getattr(groups, name) for name in self.functions()}

    def functions(self) -> dict[str, Any]:
        return {
            "send_object_list": self.send_object_list,
            "recv_object_list": self.recv_object_list,
            "broadcast_object_list": self.broadcast_object_list,
            "scatter_object_list": self.scatter_object_list,
        }

    def send_object_list(
        self,
        object_list: Any,
        dst: Any = None,
        group: Any = None,
        device: Any = None,
        group_dst: Any = None,
        **more: Any,
    ) -> None:
        self._originals["send_object_list"](object_list, dst, group, device, group_dst, **more)
        self._put(self._rank(), self._global(group, dst, group_dst), group, list(object_list))

    def recv_object_list(
        self,
        object_list: Any,
        src: Any = None,
        group: Any = None,
        device: Any = None,
        group_src: Any = None,
        **more: Any,
    ) -> int:
        source = self._global(group, src, group_src)
        if src is None and group_src is None:  # of any rank: here of the first one
            source = int(self._rank() == 0)
        object_list[:] = self._get(source, self._rank(), group)
        return source

    def broadcast_object_list(
        self,
        object_list: Any,
        src: Any = None,
        group: Any = None,
        device: Any = None,
        group_src: Any = None,
        **more: Any,
    ) -> None:
        source = self._global(group, src, group_src)
        if source == self._rank():
            self._originals["broadcast_object_list"](object_list, src, group, device, group_src, **more)
            self._put(source, None, group, list(object_list))
        elif not self._groups._rank_not_in_group(group):
            object_list[:] = self._get(source, None, group)

    def scatter_object_list(
        self, output: Any, objects: Any = None, src: Any = None, group: Any = None, group_src: Any = None, **more: Any
    ) -> None:
        source = self._global(group, src, group_src)
        if self._groups._rank_not_in_group(group):
            return
        if source == self._rank():
            self._put(source, None, group, list(objects))
            output[0] = objects[self._groups.get_rank(group)]
        else:
            output[0] = self._get(source, None, group)[self._groups.get_rank(group)]

    def _rank(self) -> int:
        return int(self._groups.get_rank())

    def _global(self, group: Any, rank: int | None, in_group: int | None) -> int:
        if in_group is not None:
            return int(self._groups.get_global_rank(group or self._groups._get_default_group(), in_group))
        return rank or 0

    def _next(self, source: int, target: int | None, group: Any) -> str:
        """The file for the next one of this kind: all ranks count alike."""
        group = group or self._groups._get_default_group()
        name = "".join(filter(str.isalnum, group.group_name))
        key = f"{world.OBJECTS}{name}-{source}-{'all' if target is None else target}"
        self._counts[key] = self._counts.get(key, -1) + 1
        return os.path.join(self._folder, f"{key}-{self._counts[key]}")

    def _put(self, source: int, target: int | None, group: Any, objects: list[Any]) -> None:
        _write(self._next(source, target, group), pickle.dumps(objects))

    def _get(self, source: int, target: int | None, group: Any) -> Any:
        path = self._next(source, target, group)
        if not os.path.exists(path):
            _write(os.path.join(self._folder, world.NEEDS), str(source).encode())
            raise RuntimeError(f"rank {source} has to send objects first: let it run, too")
        with open(child.own_file(path), "rb") as file:
            return pickle.load(file)


def _write(path: str, data: bytes) -> None:
    """Whole or not at all."""
    with open(child.made(f"{path}.new"), "wb") as file:
        file.write(data)
    os.replace(f"{path}.new", path)
