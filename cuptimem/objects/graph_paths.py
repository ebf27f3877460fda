"""Paths through autograd's graph from living tensors to nodes and to what they have saved.

Runs inside the profiled process. How graphs are read without running the program's code: cuptimem/objects/seed.py.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from cuptimem.errors import own
from cuptimem.objects import living, seed

_MOST = 1 << 18  # nodes


class GraphWalk(seed._Walk):
    """One walk over the graphs of some tensors, the nearest nodes first."""

    def __init__(self, torch: Any, most: int = 0) -> None:
        """most: nodes that it visits; 0: very many."""
        super().__init__(torch)
        self._most = most or _MOST
        self.reached: dict[int, tuple[Any, Any]] = {}  # by id: a node, and the node or the tensor before it
        self.nodes_of: dict[int, int] = {}  # by id of a tensor (or node) that the walk began with
        self.saved_at: dict[int, Any] = {}  # address of a block -> the node that has saved it
        self._saving: Any = None

    @property
    def is_partial(self) -> bool:
        """Whether there was more than it has seen."""
        return self.skipped > 0 or len(self.reached) >= self._most

    def walk(self, *starts: tuple[Iterable[Any], Iterable[Any]]) -> None:
        """Walks from tensors, then from nodes, each time to what it has not reached yet. Call it while nothing can be
        collected."""
        try:
            self._still_until = seed._hold_still(self.torch, self._interval)
            with living.undisturbed(self.torch):
                for tensors, nodes in starts:
                    self._walk(tensors, nodes)
        except seed._MovingError:
            self.skipped += 1
        finally:
            sys.setswitchinterval(self._interval)

    def _walk(self, tensors: Iterable[Any], nodes: Iterable[Any]) -> None:
        pending: deque[tuple[Any, Any, int]] = deque()
        for tensor in tensors:
            try:
                pending.append((self._still(self.base.grad_fn.__get__, tensor), tensor, id(tensor)))
            except own(RuntimeError):  # inside torch.func
                continue
        self._spread(pending)
        for node in nodes:
            self._spread(deque([(node, None, id(node))]))

    def _spread(self, pending: deque[tuple[Any, Any, int]]) -> None:
        while pending and len(self.reached) < self._most:
            node, before, root = pending.popleft()
            if node is None or id(node) in self.reached:
                continue
            self.reached[id(node)] = node, before
            self.nodes_of[root] = self.nodes_of.get(root, 0) + 1
            pending.extend((following, node, root) for following, _ in self._still(getattr, node, "next_functions"))
            self._saving = node
            self._saved_by(node)

    def _storage(self, storage: Any) -> None:
        try:
            if storage.device.type != "meta":
                self.saved_at.setdefault(storage.data_ptr(), self._saving)
        except own(RuntimeError):  # functional and fake storages have no memory
            return

    def _parts(self, tensor: Any) -> None:
        return

    def chain(self, node: Any) -> tuple[Any, list[Any]]:
        """The tensor that leads to a node (None: nothing but the first node itself), and the nodes on the way."""
        nodes: list[Any] = []
        before = node
        while before is not None and id(before) in self.reached:
            nodes.append(before)
            before = self.reached[id(before)][1]
        return before, nodes[::-1]
