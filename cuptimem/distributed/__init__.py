"""Several ranks of one job: what each says in a few kilobytes, and why one needs more than the others."""

import os
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from cuptimem.distributed.comparison import Ranks
from cuptimem.report.model import Report

if TYPE_CHECKING:
    from cuptimem.record.profiler import Profile


def ranks(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    code: str | Iterable[str] | None = None,
) -> Ranks:
    """Compares the recordings of a job's ranks: cuptimem.ranks("run-*.cmem").

    paths: traces, folders of traces, patterns, or addresses that fsspec knows (s3://bucket/run-*.cmem). Each trace is
    read where a worker of the executor runs, and a few kilobytes come back; executor=None: so many processes here as
    jobs says (None: one for each core). An executor of another machine must see the same paths. code: as in open().
    A trace that cannot be read is in Ranks.failed. Raises Error, one line, where none can.
    """
    from cuptimem.distributed import reading

    return reading.ranks(paths, executor=executor, jobs=jobs, code=code)


def gather(recorded: "Report | Profile", *, timeout: float = 120.0) -> Ranks | None:
    """Compares the ranks of the running job without a shared file system: each rank calls it behind its profile.

        with cuptimem.profile() as prof:
            train()
        ranks = cuptimem.gather(prof)  # rank 0: print(ranks)

    A few kilobytes of each rank travel through the store of torch.distributed's process group, whatever its backend.
    recorded: a profile that has ended, or its report. timeout: seconds that rank 0 waits for the others in all; a rank
    that does not answer is in Ranks.missing. Returns None on the other ranks, which wait for rank 0 twice as long and
    then go on with one line on standard error. Raises Error, one line, where there is no process group.
    """
    from cuptimem.distributed import gathering

    return gathering.gather(lambda: recorded if isinstance(recorded, Report) else recorded.report, timeout)
