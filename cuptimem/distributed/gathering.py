"""Ranks compared inside of the running job, through the key-value store behind torch.distributed's process group.

Not by collectives: one dead rank would hold all of them until the group's own timeout, which ends the job. Each rank
puts its summary under its key; rank 0 waits for the keys, compares, asks single ranks for one of their steps, and lets
all go.
"""

import itertools
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cuptimem.distributed import summary
from cuptimem.distributed.comparison import Ranks, compare
from cuptimem.distributed.summary import Held, RankSummary
from cuptimem.errors import Error
from cuptimem.report.model import Report

_LEAST = 0.05  # seconds to wait for a key, when the time is over
_DONE = b"done"

_calls = itertools.count()  # every rank counts alike


def gather(recorded: Callable[[], Report], timeout: float) -> Ranks | None:
    """See cuptimem.gather."""
    import torch.distributed

    dist: Any = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        raise Error("gather() needs torch.distributed's process group: call it before destroy_process_group()")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore(f"cuptimem.gather.{next(_calls)}", dist.distributed_c10d._get_default_store())
    try:
        report = recorded()
        own = summary.of_report(report, report.path or f"rank {rank}", rank, world)
    except BaseException:
        _set(store, f"summary/{rank}", pickle.dumps(None))  # so that rank 0 does not wait for this one
        raise
    if rank == 0:
        return _lead(store, report, own, world, time.monotonic() + timeout)
    if _set(store, f"summary/{rank}", pickle.dumps(own)):
        _serve(store, report, rank, timeout)
    return None


def _lead(store: Any, report: Report, own: RankSummary, world: int, end: float) -> Ranks:
    found, asked = [own], dict.fromkeys(range(world), 0)
    answers = (_wait(store, f"summary/{rank}", end) for rank in range(1, world))
    # Pickles of this job's own processes, as torch.distributed's objects are.
    found += [one for answer in answers if answer is not None and (one := pickle.loads(answer)) is not None]

    def held_at(one: RankSummary, step: int) -> Held | None:
        if one.own is None or one.rank is None:
            return None
        if one.rank == 0:
            return summary.held_at(report, step, one.own.name)
        number = asked[one.rank]
        asked[one.rank] += 1
        _set(store, f"ask/{one.rank}/{number}", pickle.dumps((step, one.own.name)))
        answer = _wait(store, f"answer/{one.rank}/{number}", end)
        return None if answer is None else pickle.loads(answer)

    try:
        return compare(found, (), held_at)
    finally:
        for rank in range(1, world):
            _set(store, f"ask/{rank}/{asked[rank]}", _DONE)
        # The store may live in this process: the last key is read before it ends.
        for one in found[1:]:
            _wait(store, f"left/{one.rank}", end)


def _serve(store: Any, report: Report, rank: int, timeout: float) -> None:
    for number in itertools.count():
        question = _wait(store, f"ask/{rank}/{number}", time.monotonic() + 2 * timeout)  # rank 0 waits for others first
        if question is None:
            from cuptimem.record.recorder import say  # in the program there is one

            say(f"gather(): rank 0 did not answer rank {rank} within {2 * timeout:g} s")
            return
        if question == _DONE:
            _set(store, f"left/{rank}", _DONE)
            return
        step, device = pickle.loads(question)
        try:
            held = summary.held_at(report, step, device)
        except Error:  # its temporary trace is gone: rank 0 compares the peaks
            held = None
        _set(store, f"answer/{rank}/{number}", pickle.dumps(held))


def _set(store: Any, key: str, value: bytes) -> bool:
    """False: the process that has the store is gone."""
    try:
        store.set(key, value)
    except RuntimeError:
        return False
    return True


def _wait(store: Any, key: str, end: float) -> bytes | None:
    """The value of a key; None: it was not set in time."""
    left = timedelta(seconds=max(_LEAST, end - time.monotonic()))
    try:
        store.wait([key], left)
        return bytes(store.get(key))
    except RuntimeError:  # DistStoreError and DistNetworkError: not there in time, or the store's process has gone
        return None
