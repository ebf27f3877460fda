"""What csrc/ states of CUPTI beside the headers of its releases, as releases.json has them (`make cupti-headers`)."""

import json
import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT

SIMULATOR = ROOT / "cudasim" / "csrc"
SOURCES = ROOT / "csrc" / "sources" / "cupti"
TABLES = ROOT / "cudasim" / "tables"
if not TABLES.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)
generator = SimpleNamespace(**runpy.run_path(str(TABLES / "generate.py")))
RELEASED: dict[str, Any] = json.loads((Path(__file__).parent / "releases.json").read_text())
RELEASES: dict[str, Any] = RELEASED["releases"]
NEWEST = RELEASES["13.5"]["records"]

# Our structures of the simulator, whose fields have the vendor's names, and their kind.
SIMULATED = {
    "cm_cupti_memcpy": "1",
    "cm_cupti_memset": "2",
    "cm_cupti_kernel": "3",
    "cm_cupti_api": "4",
    "cm_cupti_memcpy_peer": "22",
    "cm_cupti_external": "39",
    "cm_cupti_memory": "49",
    "cm_cupti_memory_pool": "50",
}
# Of what reads records: our names and the vendor's.
READ = {
    "cm_cupti_memory2": (
        "49",
        "kind operation:memoryOperationType memory_kind:memoryKind correlation:correlationId address bytes "
        "time:timestamp pc:PC process:processId device:deviceId context:contextId stream:streamId name "
        "is_async:isAsync pool_type:memoryPoolConfig.memoryPoolType pool:memoryPoolConfig.address "
        "pool_threshold:memoryPoolConfig.releaseThreshold pool_size:memoryPoolConfig.pool.size "
        "pool_utilized:memoryPoolConfig.utilizedSize",
    ),
    "cm_cupti_pool": (
        "50",
        "kind operation:memoryPoolOperationType pool_type:memoryPoolType correlation:correlationId process:processId "
        "device:deviceId least_kept:minBytesToKeep address size threshold:releaseThreshold time:timestamp "
        "utilized:utilizedSize",
    ),
    "cm_cupti_kernel": (
        "3",
        "kind start end completed device:deviceId context:contextId stream:streamId correlation:correlationId "
        "grid:gridId name",
    ),
    "cm_cupti_memcpy": (
        "1",
        "kind copy:copyKind from:srcKind to:dstKind flags bytes start end device:deviceId context:contextId "
        "stream:streamId correlation:correlationId",
    ),
    "cm_cupti_memcpy2": (
        "22",
        "kind copy:copyKind from:srcKind to:dstKind flags bytes start end device:deviceId context:contextId "
        "stream:streamId from_device:srcDeviceId from_context:srcContextId to_device:dstDeviceId "
        "to_context:dstContextId correlation:correlationId",
    ),
    "cm_cupti_memset": (
        "2",
        "kind value bytes start end device:deviceId context:contextId stream:streamId correlation:correlationId",
    ),
}


def number(release: str) -> int:
    major, minor = map(int, release.split("."))
    return major * 100 + minor


def compile_c(folder: Path, header: Path, checks: list[str]) -> None:
    source = folder / "layout.c"
    source.write_text(f'#include <stddef.h>\n#include "{header}"\n' + "\n".join(checks))
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{SIMULATOR}", f"-I{ROOT / 'csrc'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_release_moves_a_field() -> None:
    for release, found in RELEASES.items():
        for kind, record in found["records"].items():
            later = NEWEST[kind]["fields"]
            for field, offset in record["fields"].items():
                assert later[field] == offset, f"{release}, {record['struct']}.{field}"
            assert record["bytes"] <= NEWEST[kind]["bytes"], f"{release}, {record['struct']}"


def test_simulated_records_lie_as_every_release_has_them(tmp_path: Path) -> None:
    checks = [
        f'_Static_assert(offsetof({ours}, {field}) == {offset}, "{ours}.{field}");'
        for ours, kind in SIMULATED.items()
        for field, offset in NEWEST[kind]["fields"].items()
    ]
    # As they are when nothing is cut off.
    checks += [f'_Static_assert(sizeof({ours}) == {NEWEST[kind]["bytes"]}, "");' for ours, kind in SIMULATED.items()]
    checks.append(f'_Static_assert(sizeof(cm_cupti_subscriber_params) == {RELEASES["13.5"]["subscriber"]}, "");')
    checks.append(
        "_Static_assert(offsetof(cm_cupti_subscriber_params, allowMultipleSubscribers)"
        f' == {RELEASES["13.0"]["subscriber"]}, "");'
    )
    assert len(checks) > 120
    compile_c(tmp_path, SIMULATOR / "cupti" / "cupti_records.h", checks)


def test_records_are_read_where_every_release_writes_them(tmp_path: Path) -> None:
    checks = []
    for ours, (kind, names) in READ.items():
        for pair in names.split():
            own, _, vendors = pair.partition(":")
            offset = NEWEST[kind]["fields"][vendors or own]
            checks.append(f'_Static_assert(offsetof({ours}, {own}) == {offset}, "{ours}.{own}");')
    compile_c(tmp_path, SOURCES / "activity_records.h", checks)


def test_imitated_generations_are_the_releases() -> None:
    text = (SIMULATOR / "cupti" / "cupti_generation.c").read_text()
    header = (SIMULATOR / "cupti" / "cupti_records.h").read_text()
    kinds = {name: int(value) for name, value in re.findall(r"(CM_CUPTI_\w+) = (\d+)", header)}
    rows = re.findall(r"\{(\w+), (\d+), (\d+)\}", text)
    sizes = [(int(kinds.get(kind, kind)), int(since), int(size)) for kind, since, size in rows]
    generations = re.findall(r"ROW\((\d+), (\d+), \d+, (\d+), (\d+), (\d+)\)", text)
    assert [f"{major}.{minor}" for major, minor, *_ in generations] == list(RELEASES)
    for major, minor, *ids in generations:
        release = f"{major}.{minor}"
        known = RELEASES[release]["ids"]
        assert list(map(int, ids)) == [known["driver"], known["runtime"], known["resource"]], release
        for kind, record in RELEASES[release]["records"].items():
            mine = [size for of, since, size in sizes if of == int(kind) and since <= number(release)]
            assert mine[-1] == record["bytes"], f"{release}, {record['struct']}"


def test_imitated_functions_are_the_releases() -> None:
    text = (SIMULATOR / "cupti" / "cupti_exports.c").read_text()
    rows = {name: (int(since), int(until)) for name, since, until in re.findall(r'\{"(\w+)", (\d+), (\d+)\}', text)}
    described = generator.read(TABLES / "cupti.txt").entries
    assert set(rows) <= set(described)
    for name in described:
        first, last = RELEASED["functions"][name]
        later = [release for release in RELEASES if number(release) > number(last)]
        since = 0 if first == "11.8" else number(first)
        until = number(later[0]) if later else 0
        assert rows.get(name, (0, 0)) == (since, until), name
    missing = {name for name, (_, last) in RELEASED["functions"].items() if last == "13.5"} - set(described)
    assert not missing


def test_callbacks_have_their_numbers() -> None:
    domains = RELEASED["callbacks"]
    for domain, names in generator.callbacks(generator.tables(TABLES)).items():
        assert len(names) > 500 and names.pop(0) == "INVALID"
        assert {name: domains[domain][name][0] for name in names.values()} == {name: id for id, name in names.items()}
    text = (SOURCES / "calls.c").read_text()
    calls = re.findall(r"^    ([DR])\((\w+), (\d+),", text, re.M)
    for name, suffix, value, of_twin in re.findall(r"^    W\((\w+), (\w+), (\d+), (\d+),", text, re.M):
        calls += [("D", name, value), ("D", f"{name}_{suffix}", of_twin)]
    assert len(calls) > 150
    for domain, name, value in calls:
        assert domains["driver" if domain == "D" else "runtime"][name][0] == int(value), name
