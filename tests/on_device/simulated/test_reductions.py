"""Does a sum over rows have as much memory for itself as advice says?"""

import json
from collections.abc import Callable

import pytest

from cuptimem.advice.reductions import of_rows
from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

PROGRAM = """
import json
import torch
def requested(name):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{name}"]
found = {}
for rows, columns in json.loads(SHAPES):
    for dtype in torch.float32, torch.bfloat16:
        given = torch.empty(rows, columns, dtype=dtype, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = requested("current")
        made = given.sum(0)
        found[f"{rows} {columns} {dtype}"] = requested("peak") - before - made.nbytes
device = torch.cuda.get_device_properties(0)
print(json.dumps([device.multi_processor_count * device.max_threads_per_multi_processor, found]))
"""
SHAPES = (
    (1, 1), (63, 512), (64, 512), (600, 20000), (1200, 20000), (1024, 256), (1023, 256), (18000, 256), (4096, 1024),
    (16384, 768), (32768, 768), (5000, 6), (5000, 7), (100000, 1000), (300000, 64), (70000, 300000 // 4096), (9000, 1),
)  # fmt: skip


def test_as_the_allocator_has_it(forked_on_device: Callable[..., Result]) -> None:
    done = forked_on_device("-c", f"SHAPES = {json.dumps(SHAPES)!r}\n{PROGRAM}")
    assert done.code == 0, done.err[-3000:]
    threads, found = json.loads(done.out.splitlines()[-1])
    for case, size in found.items():
        rows, columns, _ = case.split(" ")
        told = of_rows(int(rows), int(columns), threads)
        assert told <= size <= told + 4 * int(columns), case  # a counter for each column at most
    assert sum(of_rows(*shape, threads) > 0 for shape in SHAPES) > len(SHAPES) // 2
