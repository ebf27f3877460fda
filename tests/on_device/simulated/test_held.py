"""Blocks that record_stream keeps from being used again: told before their free, and no others."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import _core
from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

PROGRAM = textwrap.dedent("""
    import sys, threading
    import torch
    import cuptimem

    MIB = 1 << 20
    side, third = torch.cuda.Stream(), torch.cuda.Stream()
    print("streams", side.cuda_stream, third.cuda_stream)

    def block(mib):
        return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")

    def work():
        event = torch.Event("cuda")
        for _ in range(3):
            free, one, two = block(30), block(40), block(50)
            one.record_stream(side)
            two.record_stream(third)
            two.record_stream(side)
            two.record_stream(torch.cuda.current_stream())  # its own: no wait
            event.record()  # from the same library, with the same function, just before
            del free
            event.record(side)
            del one
            event.record()
            del two
            torch.cuda.synchronize()
            other = block(60)  # looks whether the streams have come
            event.record(third)
            del other

    with cuptimem.profile("t.cmem", kernels=sys.argv[1] == "kernels"):
        work()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        # Freed while a graph is captured: its events are recorded after its free was told.
        torch.cuda.synchronize()
        late = block(70)
        late.record_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            del late
        for _ in range(3):
            plain = block(80)
            del plain
        torch.cuda.empty_cache()
    """)


@pytest.mark.parametrize("kernels", ["kernels", "none"])
def test_held(forked_on_device: Callable[..., Result], tmp_path: Path, kernels: str) -> None:
    Path(tmp_path, "program.py").write_text(PROGRAM)
    done = forked_on_device("program.py", kernels)
    assert done.code == 0, done.err
    side, third = (int(word) for word in done.out.split()[1:])
    held: dict[int, list[int]] = {}
    seen: list[tuple[int, list[int]]] = []
    for kind, _, thread, address, size, *_ in _core.trace_dump(str(tmp_path / "t.cmem"))[:-1]:
        if kind == "deferred_free":
            held.setdefault(thread, []).append(address)
        elif kind == "free":
            if size >= 30 << 20:
                seen.append((size >> 20, sorted(held.get(thread, []))))
            held[thread] = []
    assert not any(held.values())
    both = kernels == "kernels"
    one, two = ([side], sorted([side, third])) if both else ([], [])
    assert seen == 2 * 3 * [(30, []), (40, one), (50, two), (60, [])] + [(70, [])] + 3 * [(80, [])]
