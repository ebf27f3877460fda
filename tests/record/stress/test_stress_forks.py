"""A recorded process that forks, and forks, and forks."""

import pytest


@pytest.mark.torch
def test_forks_of_a_recorded_process(forked, scale, keep, tmp_path):
    total = scale(60, 1000)
    answer = forked(
        """
import torch
total = int(sys.argv[1])
kept, bad = [], 0
with cuptimem.profile("run.cmem"):
    for i in range(total):
        if i % 10 == 0: kept.append(torch.empty(100 + i))
        if i % 30 == 29: kept.pop(0)
        pid = os.fork()
        if pid == 0:
            try:
                x = [torch.empty(1000) for _ in range(3)]
                ok = not core.capture_active() and not recorder.active() and tasks().count("cuptimem") == 0
                if i % 25 == 3:
                    with cuptimem.profile(f"child.{i}.cmem"):
                        y = torch.empty(77)
                    ok = ok and heap(f"child.{i}.cmem")["live"] == dict([storage(y)])
                    os.unlink(f"child.{i}.cmem")
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                ok = False
            if i % 12: os._exit(0 if ok else 3)       # leaving by sys.exit takes torch a second
            sys.exit(0 if ok else 3)
        bad += os.waitpid(pid, 0)[1] != 0
        torch.empty(50)
    core.capture_sync()  # answered by the collector: after the last fork it runs again, under its name
    during = ours(1)
    found, counts = heap("run.cmem"), core.capture_counts()
truth = dict(storage(y) for y in kept)
say(bad=bad, same=found["live"] == truth, kept=len(truth), during=during, tasks=tasks(), counts=counts,
    complete=cuptimem.open("run.cmem").complete,
    **{k: found[k] for k in ("allocations", "unknown", "duplicates", "lost")})
""",
        total,
    )
    assert answer["bad"] == 0 and answer["same"] and answer["complete"]
    assert (answer["lost"], answer["unknown"], answer["duplicates"], answer["counts"]["lost_events"]) == (0, 0, 0, 0)
    assert answer["allocations"] == total + -(-total // 10)
    assert answer["during"] == 1 and "cuptimem" not in answer["tasks"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py", "rings", "run.cmem"]
    assert list((tmp_path / "rings").iterdir()) == []
    keep(forks=total, events=answer["counts"]["events"], lost=answer["lost"], live_blocks=answer["kept"])


def test_forks_of_a_process_without_torch(child, scale, keep, tmp_path):
    total = scale(60, 1000)
    answer = child(
        """
total = int(sys.argv[1])
bad = published = 0
with cuptimem.profile("run.cmem"):
    for i in range(total):
        published += core.capture_emit(1, 2, first=i + 1)
        pid = os.fork()
        if pid == 0:
            ok = not core.capture_active() and core.capture_emit(1, 1) == 0
            if i % 2: os._exit(0 if ok else 3)
            sys.exit(0 if ok else 3)
        bad += os.waitpid(pid, 0)[1] != 0
    core.capture_sync()
    during = ours(1)
found = heap("run.cmem")
say(bad=bad, published=published, during=during, tasks=tasks(),
    **{k: found[k] for k in ("allocations", "frees", "unknown", "duplicates", "lost")})
""",
        total,
    )
    assert answer["bad"] == 0 and answer["published"] == 4 * total
    assert (answer["allocations"], answer["frees"]) == (2 * total, 2 * total)
    assert (answer["lost"], answer["unknown"], answer["duplicates"]) == (0, 0, 0)
    assert answer["during"] == 1 and "cuptimem" not in answer["tasks"]
    assert list((tmp_path / "rings").iterdir()) == []
    keep(forks=total, lost=answer["lost"])


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.extended)])
def test_pools_and_data_loaders(child, tmp_path, method):
    answer = child(
        """
import multiprocessing, torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 24
    def __getitem__(self, i): return torch.full((50,), float(i))
def square(i): return float((torch.full((10,), float(i)) ** 2).sum())
if __name__ == "__main__":
    method = sys.argv[1]
    kept = []
    with cuptimem.profile("run.cmem"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            sums = pool.map(square, range(8))
        for _ in range(1 + (method == "fork")):  # a spawned worker imports PyTorch
            for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method):
                kept = [batch + 1]
        core.capture_sync()
        found = heap("run.cmem")
    address, size = storage(kept[0])
    say(sums=sums, has=found["live"].get(address) == size, tasks=tasks().count("cuptimem"), lost=found["lost"],
        duplicates=found["duplicates"], complete=cuptimem.open("run.cmem").complete)
""",
        method,
        timeout=180,
    )
    assert answer["sums"] == [10.0 * i * i for i in range(8)]
    assert answer["has"] and answer["complete"]
    assert (answer["tasks"], answer["lost"], answer["duplicates"]) == (0, 0, 0)
    assert list((tmp_path / "rings").iterdir()) == []


@pytest.mark.torch
@pytest.mark.parametrize("leave", ["_exit", "exit"])
def test_children_that_are_followed(child, tmp_path, leave):
    """CUPTIMEM_FOLLOW: every child has a trace of its own, readable whichever way it left."""
    answer = child(
        """
from cuptimem.record import autostart
os.environ.update(CUPTIMEM="1", CUPTIMEM_FOLLOW="1", CUPTIMEM_QUIET="1", CUPTIMEM_OUTPUT="follow.cmem")
autostart.start()
import torch
pids, kept = [], torch.empty(11)
for i in range(4):
    pid = os.fork()
    if pid == 0:
        y = torch.empty(1000 + i)
        if sys.argv[1] == "_exit": os._exit(0)
        sys.exit(0)
    pids.append(pid)
for pid in pids: assert os.waitpid(pid, 0)[1] == 0
sizes = {}
for i, pid in enumerate(pids):
    found = heap(f"follow.{pid}.cmem")
    sizes[i] = (4 * (1000 + i) in [b for b in found["live"].values()] or found["frees"] > 0, found["lost"])
recorder.close_all()
address, size = storage(kept)
say(sizes=sizes, parent=heap("follow.cmem")["live"].get(address) == size)
""",
        leave,
    )
    assert answer["parent"] and all(value == [True, 0] for value in answer["sizes"].values()), answer
