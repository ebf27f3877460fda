"""Our own declarations of the CUDA runtime against the vendor's headers and library, where they are installed with the
torch that the simulated device is made for. Only these tests read them; nothing of ours is built from them."""

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from cudasim.tests.objects import INCLUDE, SOURCES, TABLES, generator
from tests.conftest import ROOT
from tests.vendor import HOST_DEFINES

TABLE = generator.read(TABLES / "cudart.txt")
_SECTION = (TABLES / "cudart.txt").read_text().partition("# of libcudart.so.12")[2].partition("\n# ")[0]
OF_12 = set(TABLE.entries) & set(_SECTION.split())
PYTHON = Path(os.environ.get("CUPTIMEM_CUDA_PYTHON", ROOT / ".venv-cuda" / "bin" / "python"))
FOUND = next((PYTHON.parent.parent / "lib").glob("python3.*/site-packages/nvidia/cu13"), None)

if FOUND is None or not (FOUND / "include" / "driver_types.h").is_file():
    pytest.skip(f"no CUDA 13 headers beside {PYTHON}", allow_module_level=True)
CUDA: Path = FOUND

# Ours and the vendor's.
STRUCTURES = {
    "cm_cuda_prop": "struct cudaDeviceProp",
    "cm_cuda_pointer_attributes": "struct cudaPointerAttributes",
    "cm_cuda_pitched": "struct cudaPitchedPtr",
    "cm_cuda_extent": "struct cudaExtent",
    "cm_cuda_channels": "struct cudaChannelFormatDesc",
    "cm_cuda_pos": "struct cudaPos",
    "cm_cuda_copy3d": "struct cudaMemcpy3DParms",
    "cm_cuda_location": "struct cudaMemLocation",
    "cm_cuda_access": "struct cudaMemAccessDesc",
    "cm_cuda_copy_attributes": "struct cudaMemcpyAttributes",
    "cm_cuda_pool_props": "struct cudaMemPoolProps",
    "cm_cuda_ipc_handle": "cudaIpcMemHandle_t",
    "cm_cuda_func_attributes": "struct cudaFuncAttributes",
    "cm_cuda_launch_attribute": "cudaLaunchAttribute",
    "cm_cuda_launch_config": "cudaLaunchConfig_t",
    "cm_cuda_kernel_node": "struct cudaKernelNodeParamsV2",
    "cm_cuda_copy_node": "struct cudaMemcpyNodeParams",
    "cm_cuda_set_node": "struct cudaMemsetParamsV2",
    "cm_cuda_host_node": "struct cudaHostNodeParamsV2",
    "cm_cuda_graph_child": "struct cudaChildGraphNodeParams",
    "cm_cuda_alloc_node": "struct cudaMemAllocNodeParamsV2",
    "cm_cuda_conditional_node": "struct cudaConditionalNodeParams",
    "cm_cuda_node_params": "struct cudaGraphNodeParams",
    "cm_cuda_edge": "cudaGraphEdgeData",
    "cm_cuda_uuid": "cudaUUID_t",
    "cm_cuda_dim3": "dim3",
}
# Values of enumerations that decisions hang on.
VALUES = {
    "CM_CUDA_COPY_DEFAULT": "cudaMemcpyDefault",
    "CM_CUDA_COPY_HOST_TO_DEVICE": "cudaMemcpyHostToDevice",
    "CM_CUDA_MEMORY_MANAGED": "cudaMemoryTypeManaged",
    "CM_CUDA_POOL_RELEASE_THRESHOLD": "cudaMemPoolAttrReleaseThreshold",
    "CM_CUDA_POOL_USED_HIGH": "cudaMemPoolAttrUsedMemHigh",
    "CM_CUDA_GRAPH_MEM_RESERVED_HIGH": "cudaGraphMemAttrReservedMemHigh",
    "CM_CUDA_CAPTURE_RELAXED": "cudaStreamCaptureModeRelaxed",
    "CM_CUDA_CAPTURE_IS_INVALIDATED": "cudaStreamCaptureStatusInvalidated",
    "CM_CUDA_FUNC_MAX_DYNAMIC_SHARED": "cudaFuncAttributeMaxDynamicSharedMemorySize",
    "CM_CUDA_FUNC_CLUSTER_POLICY": "cudaFuncAttributeClusterSchedulingPolicyPreference",
    "CM_CUDA_LAUNCH_CLUSTER": "cudaLaunchAttributeClusterDimension",
    "CM_CUDA_NODE_CONDITIONAL": "cudaGraphNodeTypeConditional",
    "CM_CUDA_NODE_FREE": "cudaGraphNodeTypeMemFree",
    "CM_CUDA_NODE_RECORD_EVENT": "cudaGraphNodeTypeEventRecord",
    "CM_CUDA_NODE_WAIT_EVENT": "cudaGraphNodeTypeWaitEvent",
    "CM_CUDA_ATTR_MULTICAST": "cudaDevAttrReserved132",
    "CM_CUDA_ATTR_RESERVED_SHARED": "cudaDevAttrReservedSharedMemoryPerBlock",
    "CM_CUDA_ATTR_POOL_HANDLE_TYPES": "cudaDevAttrMemoryPoolSupportedHandleTypes",
    "CM_CUDA_ENTRY_NOT_FOUND": "cudaDriverEntryPointSymbolNotFound",
    "CM_CUDA_ATTACH_HOST": "cudaMemAttachHost",
    "CM_CUDA_HOST_WRITE_COMBINED": "cudaHostAllocWriteCombined",
    "CM_CUDA_HOST_REGISTER_READ_ONLY": "cudaHostRegisterReadOnly",
    "CM_CUDA_EVENT_INTERPROCESS": "cudaEventInterprocess",
    "CM_CUDA_LOCATION_HOST": "cudaMemLocationTypeHost",
    "CM_CUDA_ACCESS_READ_WRITE": "cudaMemAccessFlagsProtReadWrite",
}


def text(name: str) -> str:
    return re.sub(r"/\*.*?\*/", "", (SOURCES / name).read_text(), flags=re.S)


def fields(body: str) -> list[str]:
    """The names that a structure declares at its outermost level, arrays without their length."""
    while re.search(r"\{[^{}]*\}", body):
        body = re.sub(r"(struct|union)\s*\w*\s*\{[^{}]*\}", r"\1", body)
    found: list[str] = []
    for declaration in body.split(";"):
        for part in declaration.split(","):
            match = re.search(r"(\w+)(\[\w+\])?\s*$", part.strip())
            if match and match[1] not in ("struct", "union"):
                found.append(match[1])
    return found


def structures(name: str) -> dict[str, list[str]]:
    source, found = text(name), {}
    for start in re.finditer(r"typedef (?:struct|union) (\w+) \{", source):
        end = source.index(f"\n}} {start[1]};", start.end())
        found[start[1]] = fields(source[start.end() : end])
    return found


def compiles(folder: Path, program: str) -> None:
    (folder / "crt").mkdir()
    (folder / "crt" / "host_defines.h").write_text(HOST_DEFINES)
    (folder / "compare.c").write_text(program)
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", "-I.", *INCLUDE, f"-I{CUDA / 'include'}", "compare.c"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def same(ours: str, theirs: str, names: list[str]) -> list[str]:
    lines = [f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "size of {ours}");']
    for field in names:
        lines.append(
            f'_Static_assert(offsetof({ours}, {field}) == offsetof({theirs}, {field}), "offset of {ours}.{field}");'
        )
        lines.append(
            f"_Static_assert(sizeof((({ours} *)0)->{field}) == sizeof((({theirs} *)0)->{field}), "
            f'"size of {ours}.{field}");'
        )
    return lines


def test_structures(tmp_path: Path) -> None:
    ours = structures("objects/cuda_types.h")
    assert set(ours) - set(STRUCTURES) == {"cm_cuda_launch_value"}  # a union of which we name what we read
    lines = ["#include <cuda_runtime_api.h>", '#include "objects/cuda_types.h"']
    count = 0
    for name, theirs in STRUCTURES.items():
        count += len(ours[name])
        lines += same(name, theirs, ours[name])
    lines.append('_Static_assert(sizeof(cm_cuda_launch_value) == sizeof(cudaLaunchAttributeValue), "value");')
    lines += [f'_Static_assert((int){ours} == (int){theirs}, "{ours}");' for ours, theirs in VALUES.items()]
    assert count > 200
    compiles(tmp_path, "\n".join(lines))


def test_parameters_and_numbers(tmp_path: Path) -> None:
    """Of each call that CUPTI is told of: its number, and the layout of its parameters."""
    lines = ["#include <cuda_runtime_api.h>", "#include <generated_cuda_runtime_api_meta.h>"]
    lines += ["#include <cupti_runtime_cbid.h>", '#include "objects/calls.h"']
    told = [entry for entry in TABLE.entries.values() if entry.parameters and entry.name not in OF_12]
    assert len(told) > 130
    for entry in told:
        name = f"{entry.name}_v{entry.facts['since']}"
        lines.append(f'_Static_assert(CUPTI_RUNTIME_TRACE_CBID_{name} == CM_CBID_{entry.name}, "{name}");')
        lines += same(f"cm_{entry.name}_params", f"{name}_params", fields("; ".join(entry.parameters)))
    compiles(tmp_path, "\n".join(lines))


def test_errors() -> None:
    """Names and texts are what CUDA gives; the driver's names are those of its header."""
    library = ctypes.CDLL(str(CUDA / "lib" / "libcudart.so.13"))
    for function in (library.cudaGetErrorName, library.cudaGetErrorString):
        function.restype = ctypes.c_char_p
    header = (CUDA / "include" / "cuda.h").read_text()
    header = header[header.index("typedef enum cudaError_enum") : header.index("} CUresult;")]
    driver = {int(value): name for name, value in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", header)}
    rows = re.findall(r'X\((\d+), (NULL|"\w+"), (NULL|"\w+"), "(.*)"\)', text("objects/errors.h"))
    assert len(rows) > 120
    for number, name, driver_name, said in rows:
        assert driver_name.strip('"') == driver.pop(int(number), "NULL")
        if name != "NULL":
            assert name.strip('"') == library.cudaGetErrorName(int(number)).decode()
            assert said == library.cudaGetErrorString(int(number)).decode()
    assert driver == {}


def test_every_function_is_there() -> None:
    """Whoever is bound to libcudart.so.13 finds all of it: what is missing would end the program."""
    listed = subprocess.run(
        ["readelf", "-W", "--dyn-syms", CUDA / "lib" / "libcudart.so.13"], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    real = {row[7].partition("@")[0] for row in rows if len(row) > 7 and row[3] == "FUNC" and row[6] != "UND"}
    written = "".join(path.read_text() for path in SOURCES.glob("runtime/*.c"))
    by_hand = set(re.findall(r"^CM_SIM_EXPORT (?:const )?\w+ \**(\w+)\(", written, re.M))
    by_hand |= set(re.findall(r"CM_SIM_ALIAS\(\w+,\s*(\w+)\)", written))
    assert len(real) > 400
    assert real == set(TABLE.entries) - OF_12
    assert {entry.name for entry in TABLE.entries.values() if entry.custom} == by_hand
