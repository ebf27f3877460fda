"""The prefixes of csrc/sources/cupti/activity_records.h beside the vendor's newest structures: place and width."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.vendor import wheel

HEADER = ROOT / "csrc" / "sources" / "cupti" / "activity_records.h"
if not HEADER.is_file():
    pytest.skip("not in a source tree", allow_module_level=True)

WORK = {"start": "start", "end": "end", "device": "deviceId", "context": "contextId", "stream": "streamId"}
WORK["correlation"] = "correlationId"
COPY = {**WORK, "copy": "copyKind", "from": "srcKind", "to": "dstKind", "flags": "flags", "bytes": "bytes"}
MEMORY = {"process": "processId", "device": "deviceId", "correlation": "correlationId", "address": "address"}
FIELDS = {  # ours, the vendor's family, and the fields by their names there
    "cm_cupti_memory2": (
        "Memory",
        {**MEMORY, "operation": "memoryOperationType", "memory_kind": "memoryKind", "bytes": "bytes"}
        | {"time": "timestamp", "pc": "PC", "context": "contextId", "stream": "streamId", "name": "name"}
        | {"is_async": "isAsync", "pool_type": "memoryPoolConfig.memoryPoolType", "pool": "memoryPoolConfig.address"}
        | {"pool_threshold": "memoryPoolConfig.releaseThreshold", "pool_size": "memoryPoolConfig.pool.size"}
        | {"pool_utilized": "memoryPoolConfig.utilizedSize"},
    ),
    "cm_cupti_pool": (
        "MemoryPool",
        {**MEMORY, "operation": "memoryPoolOperationType", "pool_type": "memoryPoolType", "size": "size"}
        | {"least_kept": "minBytesToKeep", "threshold": "releaseThreshold", "time": "timestamp"}
        | {"utilized": "utilizedSize"},
    ),
    "cm_cupti_kernel": ("Kernel", {**WORK, "completed": "completed", "grid": "gridId", "name": "name"}),
    "cm_cupti_memcpy": ("Memcpy", COPY),
    "cm_cupti_memcpy2": ("MemcpyPtoP", {**COPY, "from_device": "srcDeviceId", "to_device": "dstDeviceId"}),
    "cm_cupti_memset": ("Memset", {**WORK, "value": "value", "bytes": "bytes"}),
}
NUMBERS = {
    "CM_CUPTI_MEMCPY_RECORD": "MEMCPY",
    "CM_CUPTI_MEMSET_RECORD": "MEMSET",
    "CM_CUPTI_KERNEL_RECORD": "KERNEL",
    "CM_CUPTI_DRIVER_RECORD": "DRIVER",
    "CM_CUPTI_RUNTIME_RECORD": "RUNTIME",
    "CM_CUPTI_CONCURRENT_RECORD": "CONCURRENT_KERNEL",
    "CM_CUPTI_MEMCPY2_RECORD": "MEMCPY2",
    "CM_CUPTI_MEMORY2_RECORD": "MEMORY2",
    "CM_CUPTI_POOL_RECORD": "MEMORY_POOL",
}


def newest(header: str, family: str) -> str:
    """The structure of that family with the highest number: CUPTI fills in no other."""
    found = re.findall(rf"\}}\s*CUpti_Activity{family}(\d*);", header)
    assert found, family
    return f"CUpti_Activity{family}{max(found, key=lambda number: int(number or 0))}"


def checks(header: str) -> list[str]:
    """Assertions of C."""
    lines = [f"_Static_assert((int){ours} == CUPTI_ACTIVITY_KIND_{name}, {name!r});" for ours, name in NUMBERS.items()]
    for ours, (family, fields) in FIELDS.items():
        theirs = newest(header, family)
        for mine, other in fields.items():
            lines.append(f"_Static_assert(offsetof({ours}, {mine}) == offsetof({theirs}, {other}), '{ours}.{mine}');")
            width = f"sizeof((({ours} *)0)->{mine}) == sizeof((({theirs} *)0)->{other})"
            lines.append(f"_Static_assert({width}, 'width of {ours}.{mine}');")
        lines.append(f"_Static_assert(sizeof({ours}) <= sizeof({theirs}), '{ours}');")
    return [line.replace("'", '"') for line in lines]


def test_prefixes_are_the_vendors(tmp_path: Path) -> None:
    include = wheel() / "include"
    for name in ("builtin_types.h", "cuda_stdint.h"):  # of a whole toolkit, and not needed
        (tmp_path / name).write_text("#include <stdint.h>\n")
    includes = ["stddef.h", "string.h", "cupti_result.h", "cupti_callbacks.h", "cupti_activity.h"]
    text = [f"#include <{name}>" for name in includes] + [f'#include "{HEADER}"']
    source = tmp_path / "prefixes.c"
    source.write_text("\n".join(text + checks((include / "cupti_activity.h").read_text())) + "\n")
    words = ["gcc", "-std=gnu11", "-fsyntax-only", "-w", f"-I{tmp_path}", f"-isystem{include}", str(source)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_field_is_compared() -> None:
    """A field that is added here is compared there, or not read."""
    text = HEADER.read_text()
    for ours, (_, fields) in FIELDS.items():
        body = re.search(rf"typedef struct {ours} \{{(.*?)\}} {ours};", text, re.DOTALL)
        assert body, ours
        own = set(re.findall(r"\b(\w+)(?:\[\d+\])?(?=[,;])", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)))
        assert own - {"kind", "padding", "padding2", "unused", "shape", "from_context", "to_context"} == set(fields)
