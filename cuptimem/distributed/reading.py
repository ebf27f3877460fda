"""Reads the traces of many ranks, each where a worker of an executor runs.

What travels is a path and back a RankSummary. A trace is read by a pure function, so one that a killed worker had is
read once more, and none counts twice: answers are kept by path.
"""

import glob
import os
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from cuptimem.distributed import summary
from cuptimem.distributed.comparison import Ranks, compare
from cuptimem.distributed.summary import Held, RankSummary
from cuptimem.errors import Error
from cuptimem.report import own_code
from cuptimem.report.load import analyze

_ATTEMPTS = 3  # a worker that was killed may have been killed by another trace
_KINDS = ("*.cmem", "*.pickle", "*.pickle.gz")  # of a folder
_AHEAD = 64  # traces that wait in an executor's queue

AnyPath = str | os.PathLike[str]


def ranks(
    paths: AnyPath | Iterable[AnyPath],
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    code: str | Iterable[str] | None = None,
) -> Ranks:
    """See cuptimem.ranks."""
    packages = None if code is None else own_code.names(code)
    found, failed = summaries(paths, executor=executor, jobs=jobs, packages=packages)

    def held_at(rank: RankSummary, step: int) -> Held | None:
        device = rank.own
        if device is None:
            return None
        if executor is not None:
            return executor.submit(_held_at, rank.path, step, device.name, packages).result()
        return _held_at(rank.path, step, device.name, packages)

    return compare(found, failed, held_at)


def summaries(
    paths: AnyPath | Iterable[AnyPath],
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    packages: Sequence[str] | None = None,
) -> tuple[list[RankSummary], list[tuple[str, str]]]:
    """What each trace says, and those that cannot be read. Raises Error where none can."""
    asked = [os.fspath(one) for one in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    names = expand(asked)
    if not names:
        raise Error(
            f"no trace of any rank{' at ' if asked else ''}{', '.join(asked)}: name files, a folder or a pattern"
        )
    found, failed = _summaries(names, executor, min(jobs or os.cpu_count() or 1, len(names)), packages)
    if not found:
        path, why = failed[0]
        raise Error(f"none of {len(names)} traces can be read; {path}: {why}" if len(names) > 1 else why)
    return found, failed


def is_set(path: str) -> bool:
    """A folder, a pattern or an address: what may be several traces."""
    return "://" in path or os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path))


def expand(paths: Iterable[AnyPath]) -> list[str]:
    """Traces of folders and patterns, each once, in the order of their names."""
    found: dict[str, None] = {}
    for path in (os.fspath(one) for one in paths):
        if "://" in path:
            names = _remote(path)
        elif os.path.isdir(path):
            names = sorted(str(one) for kind in _KINDS for one in Path(path).glob(kind))
        elif glob.has_magic(path) and not os.path.exists(path):
            names = sorted(glob.glob(path))
        else:
            names = [path]
        found.update(dict.fromkeys(names))
    return list(found)


def _remote(address: str) -> list[str]:
    with _file_system(address) as (files, path):
        scheme = address.split("://", 1)[0]
        if files.isdir(path):
            patterns = [f"{path.rstrip('/')}/{kind}" for kind in _KINDS]
        elif glob.has_magic(path):
            patterns = [path]
        else:
            return [address]
        return [f"{scheme}://{name}" for name in sorted(name for one in patterns for name in files.glob(one))]


@contextmanager
def _file_system(address: str) -> Iterator[tuple[Any, str]]:
    """The file system of an address, and the path there. What goes wrong inside is Error, with the address: each file
    system has exceptions of its own."""
    try:
        import fsspec
    except ImportError:
        raise Error(f"{address}: reading it needs fsspec: pip install fsspec, and its part for this address") from None
    try:
        yield fsspec.core.url_to_fs(address)
    except FileNotFoundError as error:  # its text may be the path alone
        raise Error(f"{address}: there is no such file, folder or bucket") from error
    except Exception as error:
        raise Error(f"{address}: {' '.join(str(error).split()) or type(error).__name__}") from error


@contextmanager
def _local(path: str) -> Iterator[str]:
    """The trace as a file here; of an address a copy, as long as it is read."""
    if "://" not in path:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="cuptimem-") as folder:
        with _file_system(path) as (files, name):
            copy = os.path.join(folder, os.path.basename(name))
            files.get_file(name, copy)
        yield copy


class _Worker(SpawnProcess):
    """A spawned process that does not run the user's script again: it needs nothing of `__main__`."""

    @staticmethod
    def _Popen(process: Any) -> Any:
        main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process)
        finally:
            sys.modules["__main__"] = main


class _Workers(SpawnContext):
    Process = _Worker


def _summarize(path: str, code: Sequence[str] | None) -> RankSummary | str:
    """Or why it cannot be read: a value, for an executor may put an exception into one of its own."""
    try:
        with _local(path) as file:
            return replace(summary.summarize(file, code), path=path)
    except Error as error:
        return str(error)


def _held_at(path: str, step: int, device: str, code: Sequence[str] | None) -> Held | None:
    try:
        with _local(path) as file:
            return summary.held_at(analyze(file, code=code), step, device)
    except Error:  # removed since: its first reading stands
        return None


def _summaries(
    names: Sequence[str], executor: Executor | None, jobs: int, code: Sequence[str] | None
) -> tuple[list[RankSummary], list[tuple[str, str]]]:
    found: dict[str, RankSummary] = {}
    failed: dict[str, str] = {}
    lost = dict.fromkeys(names, "its worker ended each time that it was read")
    for attempt in range(_ATTEMPTS):
        if executor is not None:
            _submit(executor, list(lost), code, found, failed, lost)
            continue
        # A spawned worker has none of this process's locks and threads. In the last attempt each trace has a worker of
        # its own: then it is known which one ends it.
        last = attempt == _ATTEMPTS - 1
        for part in [[name] for name in lost] if last else [list(lost)] if lost else []:
            with ProcessPoolExecutor(1 if last else jobs, mp_context=_Workers()) as pool:
                _submit(pool, part, code, found, failed, lost)
    failed.update(lost)
    return list(found.values()), [(name, failed[name]) for name in names if name in failed]


def _submit(
    executor: Executor,
    names: Sequence[str],
    code: Sequence[str] | None,
    found: dict[str, RankSummary],
    failed: dict[str, str],
    lost: dict[str, str],
) -> None:
    """Moves names out of lost. What a worker took with it stays there, with the executor's own words."""
    for begin in range(0, len(names), _AHEAD):
        futures: dict[Future[RankSummary | str], str] = {}
        try:
            for name in names[begin : begin + _AHEAD]:
                futures[executor.submit(_summarize, name, code)] = name
        except BrokenExecutor:  # by a trace before; what was submitted says so, too
            pass
        for future in as_completed(futures):
            name = futures[future]
            try:
                answer = future.result()
            except Exception as error:  # each executor has its own for a worker that is gone
                lost[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
                continue
            if isinstance(answer, str):
                failed[name] = answer
            else:
                found[name] = answer
            del lost[name]
