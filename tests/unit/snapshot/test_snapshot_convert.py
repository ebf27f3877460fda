"""What a memory snapshot becomes: figures are PyTorch's to the byte, and what it does not say is said to be unknown."""

import ast
import gzip
import importlib.util
import pickle
from pathlib import Path
from typing import Any

import pytest

from cuptimem.report.load import analyze
from cuptimem.report.model import Device, Report
from tests.unit.snapshot.made import (
    SEGMENT,
    MiB,
    block,
    event,
    frame,
    freed,
    segment,
    settings,
    snapshot,
    training,
)

OPTIMIZER = "/site-packages/torch/optim/optimizer.py"


def opened(data: Any, folder: Path, tables: tuple[str, ...] = ()) -> Report:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(data, 4))
    return analyze(str(path), tables=tables)


def only(report: Report) -> Device:
    (device,) = report.devices
    return device


def lines(report: Report, device: str = "cuda:0") -> dict[str, int]:
    """Bytes at the peak by line; "" for those without one."""
    found: dict[str, int] = {}
    for one in report.device(device).peak.contributors:
        where = f"{one.stack[0].function}:{one.stack[0].line}" if one.stack else ""
        found[where] = found.get(where, 0) + one.bytes
    return found


def test_a_training(tmp_path: Path) -> None:
    report = opened(training(4), tmp_path)
    device = only(report)
    assert (device.name, device.start, device.end) == ("cuda:0", 0, 4096 + 1024 + 4 * 1024)
    assert device.peak.bytes == 4096 + 1024 + 4 * 1024 + 8192
    assert lines(report) == {"build:3": 5120, "build:8": 4096, "build:7": 8192}
    assert device.reserved_peak == 2 * MiB
    assert [step.end for step in report.steps] == [6144, 7168, 8192, 9216]
    assert report.environment["snapshot"] == "events and blocks"


def test_steps_are_those_that_were_noted(tmp_path: Path) -> None:
    data = training(4)
    name = "Optimizer.step#SGD.step"
    data["external_annotations"] = [
        {"stage": stage, "name": name, "device": 0, "time_us": 1_001_000 + 1000 * index + late}
        for index in range(4)
        for stage, late in (("START", 3), ("END", 500))
    ]
    assert len(opened(data, tmp_path).steps) == 4
    for trace in data["device_traces"][0]:  # an optimizer that allocates nothing is in no stack
        trace["frames"] = [one for one in trace["frames"] if one["filename"] != OPTIMIZER]
    assert len(opened(data, tmp_path).steps) == 4
    data["external_annotations"] = []
    assert len(opened(data, tmp_path).steps) == 0


def test_a_request_that_was_refused_in_a_step_ends_none(tmp_path: Path) -> None:
    data = training(3)
    step = data["device_traces"][0][7]["frames"]
    data["device_traces"][0].append(event("oom", 0, 1 << 40, 2_000_000, step))
    assert len(opened(data, tmp_path).steps.ended) == 2


def test_a_ring_that_lost_its_beginning(tmp_path: Path) -> None:
    whole = training(4)
    part = training(4)
    part["device_traces"] = [part["device_traces"][0][10:]]
    report, full = opened(part, tmp_path), opened(whole, tmp_path)
    assert only(report).end == only(full).end
    assert only(report).peak.bytes == only(full).peak.bytes
    assert only(report).start == 4096 + 1024 + 1024
    assert lines(report)["build:3"] == 5120  # what is alive at the end has its line


def test_blocks_alone_are_a_state(tmp_path: Path) -> None:
    data = training(2)
    data["device_traces"] = [[]]
    report = opened(data, tmp_path)
    assert (only(report).start, only(report).peak.bytes, only(report).end) == (7168, 7168, 7168)
    assert lines(report) == {"build:3": 5120, "build:8": 2048}
    assert not report.steps
    assert report.environment["snapshot"] == "blocks"
    assert lines(opened(data["segments"], tmp_path)) == lines(report)  # torch.cuda.memory_snapshot()


def test_pending_frees_are_not_alive(tmp_path: Path) -> None:
    trace = [
        event("segment_alloc", SEGMENT, 2 * MiB, 1),
        event("alloc", SEGMENT, 512, 2),
        event("alloc", SEGMENT + 512, 512, 3),
        event("free_requested", SEGMENT, 512, 4),
    ]
    blocks = [
        block(SEGMENT, 512, 512, "active_pending_free"),
        block(SEGMENT + 512, 512, 512),
        block(SEGMENT + 1024, 2 * MiB - 1024, 0, "inactive"),
    ]
    device = only(opened(snapshot([segment(SEGMENT, blocks)], [trace]), tmp_path))
    assert (device.start, device.peak.bytes, device.end) == (0, 1024, 512)


def large(*sizes: int, total: int = 20, first: int = 2) -> list[Any]:
    """A segment of so many MiB, and allocations one after the other: (offset, asked for)."""
    trace = [event("segment_alloc", SEGMENT, total * MiB, 1)]
    at = 0
    for index, size in enumerate(sizes):
        trace.append(event("alloc", SEGMENT + at, size, first + index))
        at += -(-size // 512) * 512
    return trace


def sizes_of(data: Any, folder: Path) -> int:
    return only(opened(data, folder)).peak.bytes


def test_sizes_follow_the_allocator(tmp_path: Path) -> None:
    """All of a gap is taken where a megabyte or less would be left of it."""
    assert sizes_of(snapshot([], [large(10 * MiB + 1)]), tmp_path) == 10 * MiB + 512
    assert sizes_of(snapshot([], [large(19 * MiB)]), tmp_path) == 20 * MiB
    assert sizes_of(snapshot([], [large(19 * MiB - 512)]), tmp_path) == 19 * MiB - 512
    assert sizes_of(snapshot([], [large(9 * MiB, 10 * MiB)]), tmp_path) == 20 * MiB
    between = large(4 * MiB, 5 * MiB, 6 * MiB) + freed(SEGMENT + 4 * MiB, 5 * MiB, 8)
    between.append(event("alloc", SEGMENT + 4 * MiB, 4 * MiB + 100, 9))
    assert sizes_of(snapshot([], [between]), tmp_path) == 15 * MiB


def test_sizes_follow_the_settings(tmp_path: Path) -> None:
    rounding = {str(1 << power): 4 for power in range(16)}
    data = snapshot([], [large(9 * MiB)], allocator_settings=settings(roundup_power2_divisions=rounding))
    assert sizes_of(data, tmp_path) == 10 * MiB
    data = snapshot([], [large(9 * MiB)], allocator_settings=settings(max_split_size=8 * MiB))
    assert sizes_of(data, tmp_path) == 20 * MiB


def test_expandable_segments_grow_and_shrink(tmp_path: Path) -> None:
    trace = [
        event("segment_map", SEGMENT, 20 * MiB, 1),
        event("alloc", SEGMENT, 19 * MiB + 512, 2),
        event("segment_map", SEGMENT + 20 * MiB, 20 * MiB, 3),
        event("alloc", SEGMENT + 19 * MiB + 512, 2 * MiB, 4),
        *freed(SEGMENT + 19 * MiB + 512, 2 * MiB, 5),
        event("segment_unmap", SEGMENT + 20 * MiB, 20 * MiB, 6),
    ]
    blocks = [block(SEGMENT, 19 * MiB + 512, 19 * MiB + 512), block(SEGMENT + 19 * MiB + 512, MiB - 512, 0, "inactive")]
    data = snapshot([segment(SEGMENT, blocks, is_expandable=True)], [trace])
    report = opened(data, tmp_path)
    assert (only(report).peak.bytes, only(report).reserved_peak) == (21 * MiB + 512, 40 * MiB)
    assert report.fragmentation(at="end").reserved == 20 * MiB


def test_devices_and_host_memory(tmp_path: Path) -> None:
    one = [event("alloc", SEGMENT, 512, 5, [frame(1)])]
    two = [event("alloc", SEGMENT, 1024, 3, [frame(2)])]
    pinned = [event("alloc", 4096, 4096, 4, [frame(3)])]
    report = opened(snapshot([], [one, [], two], host_traces=pinned, host_segments=[]), tmp_path)
    assert {device.name: device.end for device in report.devices} == {"cuda:0": 512, "cuda:2": 1024, "pinned": 4096}
    xpu = settings()
    xpu["PYTORCH_XPU_ALLOC_CONF"] = xpu.pop("PYTORCH_CUDA_ALLOC_CONF")
    assert only(opened(snapshot([], [one], allocator_settings=xpu), tmp_path)).name == "xpu:0"


def test_frames_of_cpp_name_the_node_and_are_in_no_stack(tmp_path: Path) -> None:
    native = [
        frame(0, "c10::cuda::CUDACachingAllocator::malloc(int)", "??"),
        frame(0, "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>)", "Functions.cpp"),
        frame(0, "torch::autograd::Engine::thread_main(int)", ""),
        frame(869538, "??", "/usr/lib/libstdc++.so.6"),
        frame(0, "start_thread", "pthread_create.c"),
        frame(1234, "_start", "/usr/bin/python3.11"),
    ]
    workspace = [frame(0, "at::cuda::setWorkspaceForHandle(int)", ""), frame(5)]
    trace = [event("alloc", SEGMENT, 512, 1, native), event("alloc", SEGMENT + 512, 1024, 2, workspace)]
    report = opened(snapshot([], [trace]), tmp_path)
    (backward,) = (one for one in only(report).peak.contributors if one.phase == "backward")
    (other,) = (one for one in only(report).peak.contributors if one.phase != "backward")
    assert (backward.bytes, backward.operator, backward.stack) == (512, "MulBackward0", ())
    assert (other.bytes, other.category) == (1024, "workspace")


def test_what_grows_may_be_garbage_for_all_that_a_snapshot_says(tmp_path: Path) -> None:
    report = opened(training(40), tmp_path)
    assert [(one.reason, one.undecided) for one in (*report.leaks, *report.suspects)] == [("collections unknown", True)]


MODULE = "/site-packages/torch/nn/modules/module.py"
NATIVE = frame(0, "at::native::empty_strided_cuda(c10::ArrayRef<long>)", "??")


def category_of_moved(folder: Path, line: int, caller: int, *between: Any, mover: str = "convert") -> str:
    """Of a block that Module._apply has made in this line, called from another line of the same file."""
    stack = [NATIVE, frame(1, mover, MODULE), frame(line, "_apply", MODULE), *between]
    stack += [frame(caller, "to", MODULE), frame(3)]
    (one,) = only(opened(snapshot([], [[event("alloc", SEGMENT, 512, 1, stack)]]), folder)).peak.contributors
    assert [each.line for each in one.stack] == [each["line"] for each in stack[1:]]
    return one.category


def test_parameters_that_were_moved_are_told_by_their_frames(tmp_path: Path) -> None:
    assert category_of_moved(tmp_path, 805, 1174) == "parameter"  # of 2.4: Module.to
    assert category_of_moved(tmp_path, 805, 780, mover="<lambda>") == "parameter"  # of a submodule
    assert category_of_moved(tmp_path, 854, 916) == "buffer"  # Module.cuda
    assert category_of_moved(tmp_path, 836, 1174) == "unknown"  # a gradient
    assert category_of_moved(tmp_path, 805, 1384) == "unknown"  # lines of two versions
    assert category_of_moved(tmp_path, 805, 1174, mover="share") == "unknown"
    # 2.5 moves gradients in the line in which 2.10 moves parameters.
    assert (category_of_moved(tmp_path, 964, 900), category_of_moved(tmp_path, 964, 933)) == ("unknown", "parameter")
    own = frame(215, "_apply", "/site-packages/torch/nn/modules/rnn.py")
    assert category_of_moved(tmp_path, 805, 780, own) == "parameter"


def calls_in(function: ast.FunctionDef) -> dict[str, int]:
    return {ast.unparse(one): one.lineno for one in ast.walk(function) if isinstance(one, ast.Call)}


@pytest.mark.torch
def test_lines_of_the_installed_pytorch_are_known(tmp_path: Path) -> None:
    """Else csrc/snapshot/moved.c lacks this version."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    source = (Path(found.origin).parent / "nn" / "modules" / "module.py").read_text()
    functions = {one.name: calls_in(one) for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef)}
    apply = functions["_apply"]
    callers = [
        functions["to"]["self._apply(convert)"],
        functions["cuda"]["self._apply(lambda t: t.cuda(device))"],
        apply["module._apply(fn)"],
    ]
    for caller in callers:
        assert category_of_moved(tmp_path, apply["fn(param)"], caller) == "parameter"
        assert category_of_moved(tmp_path, apply["fn(buf)"], caller) == "buffer"
        assert category_of_moved(tmp_path, apply["fn(param_grad)"], caller) == "unknown"


def test_refused_requests_and_metadata(tmp_path: Path) -> None:
    trace = [
        event("alloc", SEGMENT, 512, 1, [frame(1)], user_metadata="warm up"),
        event("oom", 7 << 30, 80 << 30, 2, [frame(2)]),
    ]
    report = opened(snapshot([], [trace]), tmp_path)
    (refused,) = only(report).ooms
    assert (refused.requested, refused.stack[0].line) == (80 << 30, 2)
    assert only(report).peak.contributors[0].operator == "warm up"


def test_what_later_versions_add_is_named(tmp_path: Path) -> None:
    data = training(1)
    data["device_traces"][0].insert(2, event("annotate", 0, 0, 1_000_001, tomorrow=1))
    data["device_traces"][0].insert(2, event("invented", 0, 0, 1_000_001))
    report = opened(data, tmp_path)
    assert only(report).end == 6144
    assert report.environment["snapshot.unknown"] == "tomorrow"


def test_metadata_that_was_attached_later(tmp_path: Path) -> None:
    trace = [event("alloc", SEGMENT, 512, 1, [frame(1)]), event("annotate", SEGMENT, 512, 2, user_metadata="cache")]
    (one,) = only(opened(snapshot([], [trace]), tmp_path)).peak.contributors
    assert one.operator == "cache"


@pytest.mark.parametrize("skipped", ["free_requested", "free_completed"])
def test_half_of_the_frees_is_enough(skipped: str, tmp_path: Path) -> None:
    data = training(3)
    (trace,) = data["device_traces"]
    data["device_traces"] = [[one for one in trace if one["action"] != skipped]]
    device, whole = only(opened(data, tmp_path)), only(opened(training(3), tmp_path))
    assert (device.start, device.peak.bytes, device.end) == (0, whole.peak.bytes, whole.end)


WRITTEN = Path(__file__).parent / "written"


# Bytes of gradients at the peak, which lies in the optimizer's step, and of 2.15 before the last gradient is made.
@pytest.mark.parametrize(
    ("version", "gradients"), [("2.6.0", 2102272), ("2.11.0", 2102272), ("2.14.1", 2102272), ("2.15.0", 2098176)]
)
def test_what_pytorch_wrote(version: str, gradients: int) -> None:
    """A training of five steps on the simulated device, and a tensor of each step that is kept."""
    path = WRITTEN / f"torch-{version}.pickle.gz"
    data = pickle.loads(gzip.decompress(path.read_bytes()))
    report = analyze(str(path))
    device = only(report)
    assert device.start == 0
    assert device.end == sum(one["allocated_size"] for one in data["segments"])
    assert device.allocations == sum(one["action"] == "alloc" for one in data["device_traces"][0])
    assert report.fragmentation(at="end").reserved == sum(one["total_size"] for one in data["segments"])
    assert "snapshot.unknown" not in report.environment
    assert len(report.steps.ended) == 5
    found: dict[str, int] = {}
    for one in device.peak.contributors:
        assert all(frame.file.endswith(".py") for frame in one.stack)
        found[one.category] = found.get(one.category, 0) + one.bytes
    kept = [line for line in report.contents("peak").lines if line.frame is not None and line.frame.line == 16]
    assert [line.bytes for line in kept] == [40960]
    assert found["optimizer state"] > 4 << 20
    assert found["gradient"] == gradients
    assert found["parameter"] == 2102272
