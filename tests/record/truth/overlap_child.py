"""Other tools, workers, forks and threads beside a recording. Prints JSON of what the trace and the oracle say.

python overlap_child.py CASE TRACE [ROUNDS]
"""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "programs"), str(HERE.parents[2])]

import replay  # noqa: E402
import torch  # noqa: E402
from live_child import differences  # noqa: E402
from oracle import Oracle  # noqa: E402
from torch import nn  # noqa: E402

import cuptimem  # noqa: E402
from cuptimem import _core  # noqa: E402


def train(steps: int = 5) -> None:
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
    KEEP.append((net, optimizer))


KEEP: list[Any] = []


def compare(path: str) -> dict[str, Any]:
    gc.disable()
    _core.capture_sync()
    found = differences(replay.live_set(path), ORACLE.live())
    gc.enable()
    return found


ORACLE = Oracle()


def torch_profiler_inside(path: str) -> dict[str, Any]:
    with cuptimem.profile(path) as prof:
        with torch.profiler.profile(profile_memory=True, with_stack=True):
            train()
        inside = compare(path)
    return {"live": inside, "lost": prof.report.lost.events, "replaced": prof.report.lost.replaced}


def torch_profiler_around(path: str) -> dict[str, Any]:
    with torch.profiler.profile(profile_memory=True, with_stack=True), cuptimem.profile(path) as prof:
        train()
        inside = compare(path)
    return {"live": inside, "lost": prof.report.lost.events, "replaced": prof.report.lost.replaced}


def torch_profiler_crossing(path: str) -> dict[str, Any]:
    other = torch.profiler.profile(profile_memory=True)
    prof = cuptimem.profile(path)
    other.start()
    train()
    prof.start()
    train()
    inside = compare(path)
    other.stop()
    train()
    prof.stop()
    return {"live": inside, "lost": prof.report.lost.events, "replaced": prof.report.lost.replaced}


def loader_workers(path: str, strategy: str = "file_descriptor") -> dict[str, Any]:
    import cnn

    torch.multiprocessing.set_sharing_strategy(strategy)
    seen = []
    with cuptimem.profile(path) as prof:
        batches = []
        for x, y in torch.utils.data.DataLoader(cnn.Pictures(48), batch_size=8, num_workers=2):
            batches.append((x, y))
        train()
        seen.append(compare(path))
        del batches, x, y
        seen.append(compare(path))
    rows = replay.rows(path)
    shared = [r for r in rows if r.kind == replay.ALLOC and r.size >= 8 * 3 * 24 * 24 * 4]
    return {
        "live": {k: seen[0][k] + seen[1][k] for k in seen[0]},
        "lost": prof.report.lost.events,
        "replaced": prof.report.lost.replaced,
        "unknown": prof.report.lost.unknown_frees,
        "shared_with_lines": sum(1 for r in shared if r.origin),
        "devices": [d.name for d in prof.report.devices],
    }


def loader_workers_files(path: str) -> dict[str, Any]:
    return loader_workers(path, "file_system")


def forks(path: str) -> dict[str, Any]:
    """Children train and die; the parent's heap is only its own. One child records for itself."""
    stop = threading.Event()

    def allocate() -> None:
        while not stop.is_set():
            torch.empty(100).add(1)
            time.sleep(0.0002)  # every event is replayed in Python later

    statuses = []
    with cuptimem.profile(path) as prof:
        train(1)  # torch looks operators up under locks that a child would find taken for ever
        torch.empty(100).add(1)
        thread = threading.Thread(target=allocate)
        thread.start()
        for number in range(10):
            pid = os.fork()
            if pid == 0:
                status = 3
                try:
                    if number == 5:
                        with cuptimem.profile(path + ".child") as own:
                            train(3)
                        status = 0 if len(own.report.steps) == 3 and own.report.complete else 4
                    else:
                        train(2)
                        status = 0 if not _core.capture_active() else 5
                finally:
                    os._exit(status)
            statuses.append(os.waitpid(pid, 0)[1])
        stop.set()
        thread.join()
        train()
        live = compare(path)
    return {"live": live, "statuses": statuses, "lost": prof.report.lost.events, "replaced": prof.report.lost.replaced}


def on_and_off_under_load(path: str, rounds: str) -> dict[str, Any]:
    """Profiles start and stop while four threads train; each trace's heap is right at its end."""
    stop = threading.Event()
    pause = threading.Barrier(5)
    asked = threading.Event()
    errors: list[str] = []

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("meant to")

    def work(number: int) -> None:
        try:
            net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
            while not stop.is_set():
                net(torch.randn(8, 16)).sum().backward()
                try:
                    Failing.apply(torch.ones(4, requires_grad=True)).sum().backward()
                except RuntimeError as error:
                    if "meant to" not in str(error):
                        raise
                time.sleep(0.0005)  # four that never wait leave the main thread a fifth of the time
                if asked.is_set():
                    pause.wait(1200)
                    pause.wait(1200)
        except BaseException as error:
            errors.append(repr(error))
            pause.abort()

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    live: dict[str, list[Any]] = {"missing": [], "extra": [], "sizes": []}
    replaced = lost = 0
    try:
        for number in range(int(rounds)):
            prof = cuptimem.profile(f"{path}.{number}")
            prof.start()
            for _ in range(number % 4):
                train(1)
            if number % 6 == 5:
                asked.set()
                pause.wait(1200)
                asked.clear()
                for key, value in compare(f"{path}.{number}").items():
                    live[key] += value
                pause.wait(1200)
            prof.stop()
            replaced += prof.report.lost.replaced
            lost += prof.report.lost.events
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    patched = sum(row[4] for row in _core.sources_rows())
    return {"live": live, "errors": errors, "replaced": replaced, "lost": lost, "patched": patched}


def main() -> None:
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
