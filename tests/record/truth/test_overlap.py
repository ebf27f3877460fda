"""Beside other profilers, data loader workers, forks, and threads that never stop: the heap stays right."""

import pytest

SAME = {"missing": [], "extra": [], "sizes": []}


@pytest.mark.parametrize("case", ["torch_profiler_inside", "torch_profiler_around", "torch_profiler_crossing"])
def test_torch_profiler(child, tmp_path, case):
    found = child("overlap_child.py", case, tmp_path / "run.cmem")
    assert found == {"live": SAME, "lost": 0, "replaced": 0}


@pytest.mark.parametrize("case", ["loader_workers", "loader_workers_files"])
def test_data_loader_workers(child, tmp_path, case):
    found = child("overlap_child.py", case, tmp_path / "run.cmem")
    assert found["live"] == SAME
    assert (found["lost"], found["replaced"], found["unknown"]) == (0, 0, 0)
    assert found["shared_with_lines"] >= 6, "batches that arrive from workers have a line"
    assert found["devices"] == ["cpu"]


def test_forks(child, tmp_path):
    found = child("overlap_child.py", "forks", tmp_path / "run.cmem")
    assert found == {"live": SAME, "statuses": [0] * 10, "lost": 0, "replaced": 0}


@pytest.mark.scaled
def test_on_and_off_under_load(child, tmp_path, long):
    rounds = 30 if long else 6  # of each kind one
    found = child("overlap_child.py", "on_and_off_under_load", tmp_path / "run.cmem", rounds, timeout=1200)
    assert found["errors"] == []
    assert found["live"] == SAME
    assert (found["lost"], found["replaced"]) == (0, 0)
    assert found["patched"] == 0, "slots were left patched after stop"
