"""PyTorch's data loaders: tracebacks, workers, signals."""

from evidence.fidelity.case import torch_program

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        {body}
"""


CASES = [
    torch_program(
        "loader whose data set raises",
        LOADER.format(body="raise ValueError(i)") + "for b in DataLoader(D()): pass",
        code=1,
        shows="ValueError",
        fixed=True,
    ),
    *(
        torch_program(
            f"loader whose data set raises in a worker by {how}",
            LOADER.format(body="raise ValueError(i)")
            + "if __name__ == '__main__':\n"
            + f"    for b in DataLoader(D(), num_workers=2, multiprocessing_context='{how}'): pass",
            code=1,
            shows="Original Traceback",
            normal=((r"^Caught ValueError in DataLoader worker process \d", "Caught"),),
        )
        for how in ("fork", "spawn", "forkserver")
    ),
    torch_program(
        "loader whose worker dies",
        LOADER.format(body="import os; os._exit(3)") + "for b in DataLoader(D(), num_workers=1): pass",
        code=1,
        shows="exited unexpectedly",
        normal=((r"\(pids? \(?[\d, ]+\)?|pid\(s\) [\d, ]+", "PIDS"),),
    ),
    torch_program(
        "loader whose worker is killed",
        LOADER.format(body="import os; os.kill(os.getpid(), 9)") + "for b in DataLoader(D(), num_workers=1): pass",
        code=1,
        shows="killed by signal",
        normal=((r"\(pids? \(?[\d, ]+\)?|pid\(s\) [\d, ]+|\(pid \d+\)", "PIDS"),),
    ),
    torch_program(
        "loader that times out",
        LOADER.format(body="import time; time.sleep(30)") + "for b in DataLoader(D(), num_workers=1, timeout=1): pass",
        code=1,
        shows="timed out",
    ),
    torch_program(
        "loader used up",
        """
        it = iter(DataLoader(D(), batch_size=8))
        print(next(it))
        next(it)
        """,
        before=LOADER.format(body="return i"),
        code=1,
        shows="StopIteration",
    ),
    torch_program(
        "loader's order with a seed",
        """
        torch.manual_seed(3)
        print([b.tolist() for b in DataLoader(D(), batch_size=3, shuffle=True)])
        """,
        before=LOADER.format(body="return i"),
    ),
    torch_program(
        "loader with workers kept",
        """
        l = DataLoader(D(), num_workers=2, persistent_workers=True)
        for _ in range(3): print([int(b) for b in l])
        """,
        before=LOADER.format(body="return i"),
        shows="[0, 1, 2",
    ),
    torch_program(
        "loader left in the middle",
        LOADER.format(body="return i") + "for b in DataLoader(D(), num_workers=2): print(b); break",
    ),
    torch_program(
        "loader interrupted",
        """
        it = iter(DataLoader(D(), num_workers=2)); next(it)
        raise KeyboardInterrupt
        """,
        before=LOADER.format(body="return i"),
        code=-2,
        normal=((r"(?m)^tmp/pymp-NAME/\n?", ""),),  # removed in time, or not
    ),
    torch_program(
        "loader that collates badly",
        LOADER.format(body="return object()") + "for b in DataLoader(D()): pass",
        code=1,
        shows="default_collate",
    ),
    torch_program(
        "loader's workers followed",
        """
        if __name__ == '__main__':
            print([int(b) for b in DataLoader(D(), num_workers=2)])
        """,
        before=LOADER.format(body="return i"),
        options="--follow",
        traces=3,
        shows="[0, 1",
    ),
    torch_program(
        "loader's workers report warnings",
        LOADER.format(body="return i") + "print([int(b) for b in DataLoader(D(), num_workers=2)])",
        command="python -W always @ s.py",
    ),
    torch_program(
        "loader's workers under warnings as errors",
        LOADER.format(body="return i") + "print([int(b) for b in DataLoader(D(), num_workers=2)])",
        command="python -W error::DeprecationWarning @ s.py",
        code=0,
        traces=1,
    ),
    torch_program(
        "loader's step on an iterator that raises",
        """
        from torch.utils.data import DataLoader, IterableDataset
        class D(IterableDataset):
            def __iter__(self):
                yield 1
                raise OSError('gone')
        for b in DataLoader(D()): print(b)
        """,
        code=1,
        shows="gone",
    ),
    torch_program(
        "loader beside dill",
        """
        import dill, torch
        from torch.utils.data import DataLoader
        print(len(list(DataLoader(torch.ones(4), num_workers=1))))
        keep = dill
        """,
        needs=("dill",),
        shows="4",
    ),
]
