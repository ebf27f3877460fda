"""The CUPTI surface beside the vendor's: its headers, and its library as far as that answers without a driver. Both
come with PyTorch's CUDA build."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudasim.tests.objects import INCLUDE, SOURCES, TABLES, generator
from cudasim.tests.test_cupti import DOUBLES, SURFACE
from tests.build import build
from tests.vendor import surviving_wheel, wheel

# Our structure, and the vendor's family.
RECORDS = {
    "cm_cupti_memcpy": "Memcpy",
    "cm_cupti_memcpy_peer": "MemcpyPtoP",
    "cm_cupti_memset": "Memset",
    "cm_cupti_memory": "Memory",
    "cm_cupti_memory_pool": "MemoryPool",
    "cm_cupti_kernel": "Kernel",
    "cm_cupti_api": "API",
    "cm_cupti_external": "ExternalCorrelation",
}
# Of the memory record's inner structure and union. (Two of its fields are called like outer ones.)
INNER = {
    "memoryPoolType": "memoryPoolConfig.memoryPoolType",
    "releaseThreshold": "memoryPoolConfig.releaseThreshold",
    "size": "memoryPoolConfig.pool.size",
    "utilizedSize": "memoryPoolConfig.utilizedSize",
}
LATER = ("allowMultipleSubscribers", "padding")  # than 13.0; tests/unit/cupti_headers knows of those
INNER_AGAIN = ("memoryPoolConfig.address", "memoryPoolConfig.pool.processId")


def compile_with_headers(folder: Path, text: str) -> None:
    """Compiles text as C with the vendor's headers. They include some of a whole toolkit that the wheel lacks and that
    they do not need: empty ones take their place."""
    shim = folder / "shim"
    shim.mkdir()
    for name in ("builtin_types.h", "cuda_stdint.h"):
        (shim / name).write_text("#include <stdint.h>\n")
    source = folder / "layout.c"
    includes = ["stddef.h", "string.h", "cupti_result.h", "cupti_version.h", "cupti_callbacks.h", "cupti_activity.h"]
    includes += ["cupti/cupti_records.h"]
    source.write_text("".join(f"#include <{name}>\n" for name in includes) + text)
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{shim}", f"-I{wheel() / 'include'}", *INCLUDE, source],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def vendors(header: str, family: str) -> tuple[str, str]:
    """The newest structure of a family, and its text."""
    names = re.findall(rf"\}} (CUpti_Activity{family}(\d*));", header)
    name = max(names, key=lambda found: int(found[1] or 0))[0]
    end = header.index(f"}} {name};")
    return name, header[header.rindex("typedef struct PACKED_ALIGNMENT {", 0, end) : end]


def fields(text: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r"[\s*](\w+)(?:\[\d+\])?\s*[;,]", text)


def body(header: str, struct: str) -> str:
    end = header.index(f"}} {struct};")
    return header[header.rindex("\ntypedef struct", 0, end) : end]


def test_records_lie_as_the_vendors_do(tmp_path: Path) -> None:
    header = (wheel() / "include" / "cupti_activity.h").read_text()
    ours = (SOURCES / "cupti" / "cupti_records.h").read_text()
    checks: list[str] = []
    for struct, family in RECORDS.items():
        name, text = vendors(header, family)
        own = set(fields(body(ours, struct)))
        paths = []
        for field in fields(text):
            if re.fullmatch(r"(pad|padding|reserved)\d*|both|requested|executed|config|pool", field):
                continue
            assert field in own, f"{name}.{field} is not in {struct}"
            paths.append(INNER.get(field, field) if struct == "cm_cupti_memory" else field)
        if struct == "cm_cupti_memory":
            paths += INNER_AGAIN
        checks += [
            f"_Static_assert(offsetof({struct}, {path}) == offsetof({name}, {path})"
            f' && sizeof((({struct} *)0)->{path}) == sizeof((({name} *)0)->{path}), "{struct}.{path}");'
            for path in paths
        ]
    assert len(checks) > 100
    compile_with_headers(tmp_path, "\n".join(checks))


def test_callback_data_lies_as_the_vendors_does(tmp_path: Path) -> None:
    checks = []
    for struct, name in (
        ("cm_cupti_callback_data", "CUpti_CallbackData"),
        ("cm_cupti_subscriber_params", "CUpti_SubscriberParams"),
    ):
        checks += [
            f'_Static_assert(offsetof({struct}, {field}) == offsetof({name}, {field}), "{field}");'
            for field in fields(body((SOURCES / "cupti" / "cupti_records.h").read_text(), struct))
            if field not in LATER
        ]
    checks.append('_Static_assert(sizeof(cm_cupti_callback_data) == sizeof(CUpti_CallbackData), "");')
    checks.append(
        "_Static_assert(offsetof(cm_cupti_subscriber_params, allowMultipleSubscribers)"
        ' == sizeof(CUpti_SubscriberParams), "");'
    )
    compile_with_headers(tmp_path, "\n".join(checks))


ASK = r"""
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
text = ctypes.c_char_p()
def ask(function, *arguments):
    text.value = b"untouched"
    result = function(*arguments, ctypes.byref(text))
    return [result, text.value and text.value.decode()]
answers = {"version": ctypes.c_uint32()}
library.cuptiGetVersion(ctypes.byref(answers["version"]))
answers["version"] = answers["version"].value
answers["names"] = [[ask(library.cuptiGetCallbackName, domain, id) for id in range(1024)] for domain in (0, 1, 2, 3, 7)]
answers["results"] = [ask(library.cuptiGetResultString, result) for result in [*range(60), 998, 999, 4096]]
sizes = {}
for kind in range(70):
    bytes = (ctypes.c_uint32 * 2048)(*([kind, 0] * 1024))
    record = ctypes.c_void_p()
    at = ctypes.cast(bytes, ctypes.c_void_p)
    first = library.cuptiActivityGetNextRecord(at, 8192, ctypes.byref(record))
    begin = record.value
    second = library.cuptiActivityGetNextRecord(at, 8192, ctypes.byref(record))
    sizes[kind] = [first, second, None if first else record.value - begin]
answers["sizes"] = sizes
answers["null"] = [library.cuptiGetVersion(None), library.cuptiGetTimestamp(None),
    library.cuptiActivityRegisterCallbacks(None, None), library.cuptiActivityRegisterTimestampCallback(None),
    library.cuptiActivityGetNextRecord(None, 8, ctypes.byref(record)), library.cuptiUnsubscribe(None),
    library.cuptiActivityGetNumDroppedRecords(None, 0, None), library.cuptiGetCallbackName(1, 1, None),
    library.cuptiEnableCallback(1, None, 1, 20)]
print(json.dumps(answers))
"""


def answers(library: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", ASK, library], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_what_needs_no_driver_is_answered_as_by_the_vendors_library() -> None:
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", *INCLUDE]
    ours = build("libcupti.so", [*SURFACE, DOUBLES], *flags, link=["-lpthread", "-ldl"])
    vendor = answers(surviving_wheel() / "lib" / "libcupti.so.13")
    if vendor["version"] != 130001:
        pytest.skip(f"the installed CUPTI is {vendor['version']}")
    mine = answers(ours)
    assert [len(vendor["names"]), len(vendor["results"])] == [5, 63]
    for key, value in vendor.items():
        assert mine[key] == value, key


def test_everything_that_the_vendors_library_exports_is_described() -> None:
    library = wheel() / "lib" / "libcupti.so.13"
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", library], check=True, capture_output=True, text=True)
    exported = {
        line.split()[7].split("@")[0]
        for line in symbols.stdout.splitlines()
        if " GLOBAL " in line and " UND " not in line and re.search(r"\b(cupti|InitializeInjection)\w+@", line)
    }
    described = generator.read(TABLES / "cupti.txt").entries
    rows = re.findall(r'\{"(\w+)", (\d+), (\d+)\}', (SOURCES / "cupti" / "cupti_exports.c").read_text())
    later = {name for name, since, _ in rows if int(since) > 1300}
    assert exported and exported == set(described) - later
    written = set()
    for path in SOURCES.glob("cupti/*.c"):
        written |= set(re.findall(r"CM_SIM_EXPORT int (\w+)\(", path.read_text()))
    assert written == {name for name, entry in described.items() if entry.custom}
