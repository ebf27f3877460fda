"""pprof's export: decoded by protobuf with the messages of profile.proto, and opened by `go tool pprof`."""

import gzip
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cuptimem.output import exports
from cuptimem.output.exports import Options
from cuptimem.output.exports.stacked import KINDS
from cuptimem.report.model import Report

# Name, number, type (a scalar or a message), and whether it is repeated, as google/pprof's profile.proto has them.
MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "ValueType": (("type", 1, "int64", False), ("unit", 2, "int64", False)),
    "Label": (("key", 1, "int64", False), ("str", 2, "int64", False), ("num", 3, "int64", False)),
    "Sample": (("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)),
    "Line": (("function_id", 1, "uint64", False), ("line", 2, "int64", False), ("column", 3, "int64", False)),
    "Location": (("id", 1, "uint64", False), ("address", 3, "uint64", False), ("line", 4, "Line", True)),
    "Function": (
        ("id", 1, "uint64", False),
        ("name", 2, "int64", False),
        ("system_name", 3, "int64", False),
        ("filename", 4, "int64", False),
    ),
    "Profile": (
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, "string", True),
        ("time_nanos", 9, "int64", False),
        ("duration_nanos", 10, "int64", False),
        ("comment", 13, "int64", True),
        ("default_sample_type", 14, "int64", False),
    ),
}
GO = "go tool pprof"


def message() -> Any:
    """An empty Profile."""
    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2", reason="needs protobuf")
    descriptor_pool = pytest.importorskip("google.protobuf.descriptor_pool")
    message_factory = pytest.importorskip("google.protobuf.message_factory")
    file = pb2.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
    for name, members in MESSAGES.items():
        one = file.message_type.add(name=name)
        for field, number, kind, repeated in members:
            made = one.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in MESSAGES:
                made.type, made.type_name = 11, f".p.{kind}"
            else:
                made.type = {"int64": 3, "uint64": 4, "string": 9}[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))()


def exported(trace: str, path: Path, **more: Any) -> Any:
    exports.export(trace, "pprof", str(path), Options(**more))
    profile = message()
    profile.ParseFromString(gzip.decompress(path.read_bytes()))
    return profile


def label(profile: Any, sample: Any, key: str) -> str | None:
    text = profile.string_table
    return next((str(text[one.str]) for one in sample.label if text[one.key] == key), None)


def test_every_kind_sums_to_the_report(trace: str, report: Report, tmp_path: Path) -> None:
    profile = exported(trace, tmp_path / "out.pb.gz")
    text = profile.string_table
    types = [(text[one.type], text[one.unit]) for one in profile.sample_type]
    kinds = [kind for kind in KINDS if kind != "temporary" or report.steps]
    assert types == [(f"{k}_{w}", u) for k in kinds for w, u in (("objects", "count"), ("space", "bytes"))]
    assert text[profile.default_sample_type] == "peak_space"
    sums: Counter[tuple[str, str]] = Counter()
    for sample in profile.sample:
        assert len(sample.value) == len(types)
        for (name, _), value in zip(types, sample.value, strict=True):
            sums[str(label(profile, sample, "device")), name] += value
    for device in report.devices:
        assert sums[device.name, "peak_space"] == max(device.peak.bytes, device.start)
        assert (sums[device.name, "end_space"], sums[device.name, "allocated_space"]) == (device.end, device.allocated)


@pytest.mark.extended
def test_opened_by_go(trace: str, report: Report, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"needs Go: {GO}")
    path = tmp_path / "out.pb.gz"
    exports.export(trace, "pprof", str(path), Options())

    def opened(*words: str) -> str:
        command = [go, "tool", "pprof", *words, str(path)]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    for device in report.devices:
        said = opened("-raw", "-sample_index=end_space")
        assert "Samples:" in said
        if device.end:
            top = opened(
                "-top", "-nodecount=1", "-unit=B", "-sample_index=end_space", f"-tagfocus=device={device.name}"
            )
            assert re.search(rf"\b{device.end}B", top), top
