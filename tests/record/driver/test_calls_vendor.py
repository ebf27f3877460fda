"""What calls.h says of CUPTI's callbacks, beside the vendor's headers: numbers, parameters, what these point at,
and the callback's own data."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.vendor import HOST_DEFINES, wheel

SOURCES = ROOT / "csrc" / "sources" / "cupti"
if not SOURCES.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)

# How a row is read, where that is not the name of its structure.
STRUCTURES = {
    "give_range": "range",
    "make_pool": "described",
    "add_any_node": "add_node",
    "add_any_node_v2": "add_node_v2",
    "moves": "none",
    "reset_current": "none",
}
# Newer than the headers at hand, by their numbers in a later release.
NEWER = {"cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync"}

DESCRIBED = {  # ours, the vendor's, and the fields that are read
    "cm_memory_properties": ("CUmemAllocationProp", {"type": "type", "location": "location"}),
    "cm_alloc_node": (
        "CUDA_MEM_ALLOC_NODE_PARAMS",
        {"pool": "poolProps", "access": "accessDescs", "size": "bytesize", "address": "dptr"},
    ),
    "cm_graph_node": ("CUgraphNodeParams", {"type": "type", "alloc": "alloc", "free": "free"}),
    "cm_external_description": ("CUDA_EXTERNAL_MEMORY_HANDLE_DESC", {"handle": "handle", "size": "size"}),
    "cm_buffer_description": ("CUDA_EXTERNAL_MEMORY_BUFFER_DESC", {"offset": "offset", "size": "size"}),
    "cm_multicast_properties": ("CUmulticastObjectProp", {"devices": "numDevices", "size": "size"}),
    "cm_array_description": (
        "CUDA_ARRAY_DESCRIPTOR",
        {"width": "Width", "height": "Height", "format": "Format", "channels": "NumChannels"},
    ),
    "cm_array_3d_description": (
        "CUDA_ARRAY3D_DESCRIPTOR",
        {"width": "Width", "height": "Height", "depth": "Depth", "format": "Format", "channels": "NumChannels",
         "flags": "Flags"},
    ),
    "cm_launch_config": ("CUlaunchConfig", {"grid": "gridDimX", "shared": "sharedMemBytes", "stream": "hStream"}),
    "cm_channel_format": ("struct cudaChannelFormatDesc", {"bits": "x", "kind": "f"}),
    "cm_pitched_pointer": ("struct cudaPitchedPtr", {"address": "ptr", "pitch": "pitch"}),
    "cm_cuda_extent": ("struct cudaExtent", {"width": "width", "height": "height", "depth": "depth"}),
    "cm_callback": (
        "CUpti_CallbackData",
        {"site": "callbackSite", "function": "functionName", "parameters": "functionParams",
         "result": "functionReturnValue", "symbol": "symbolName", "context": "context", "context_uid": "contextUid",
         "correlation_data": "correlationData", "correlation": "correlationId"},
    ),
    "cm_resource": ("CUpti_ResourceData", {"context": "context"}),
}  # fmt: skip
NUMBERS = {
    "CM_DOMAIN_DRIVER": "CUPTI_CB_DOMAIN_DRIVER_API",
    "CM_DOMAIN_RUNTIME": "CUPTI_CB_DOMAIN_RUNTIME_API",
    "CM_DOMAIN_RESOURCE": "CUPTI_CB_DOMAIN_RESOURCE",
    "CM_SITE_ENTER": "CUPTI_API_ENTER",
    "CM_SITE_EXIT": "CUPTI_API_EXIT",
    "CM_RESOURCE_CONTEXT_CREATED": "CUPTI_CBID_RESOURCE_CONTEXT_CREATED",
    "CM_RESOURCE_CONTEXT_DESTROYED": "CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING",
    "CM_LOCATION_DEVICE": "CU_MEM_LOCATION_TYPE_DEVICE",
    "CM_NODE_ALLOC": "CU_GRAPH_NODE_TYPE_MEM_ALLOC",
    "CM_NODE_FREE": "CU_GRAPH_NODE_TYPE_MEM_FREE",
    "CM_ARRAY_LAYERED": "CUDA_ARRAY3D_LAYERED",
    "CM_ARRAY_CUBEMAP": "CUDA_ARRAY3D_CUBEMAP",
    "CM_ARRAY_SPARSE": "CUDA_ARRAY3D_SPARSE",
    "CM_ARRAY_DEFERRED": "CUDA_ARRAY3D_DEFERRED_MAPPING",
}


def rows() -> list[tuple[str, str, int, str]]:
    """Domain, function, number, structure of every row."""
    text = (SOURCES / "calls.c").read_text()
    found = re.findall(r"^    ([DR])\((\w+), (\d+), (\w+)", text, re.M)
    return [(domain, name, int(number), STRUCTURES.get(read, read)) for domain, name, number, read in found]


def work() -> list[tuple[str, int, str]]:
    """Function, number, where its stream lies, of every row of work and its twin."""
    text = (SOURCES / "calls.c").read_text()
    found = re.findall(r"^    W\((\w+), (\w+), (\d+), (\d+), \w+, (\w+)\)", text, re.M)
    plain = [(name, int(number), at) for name, _, number, _, at in found]
    return plain + [(f"{name}_{suffix}", int(number), at) for name, suffix, _, number, at in found]


def fields(text: str) -> list[str]:
    """The names of a structure's fields, in order."""
    names: list[str] = []
    for declaration in filter(None, map(str.strip, re.sub(r"/\*.*?\*/", "", text, flags=re.S).split(";"))):
        names += [match[1] for part in declaration.split(",") if (match := re.search(r"(\w+)(?:\[\d+\])?$", part))]
    return names


def structures(pattern: str, text: str) -> dict[str, list[str]]:
    return {name: fields(body) for name, body in re.findall(pattern, text, re.S)}


def compile_checks(folder: Path, checks: list[str]) -> None:
    shim = folder / "shim"
    shim.mkdir()
    for name in ("builtin_types.h", "cuda_stdint.h"):
        (shim / name).write_text("#include <stdint.h>\n")
    (shim / "crt").mkdir()
    (shim / "crt" / "host_defines.h").write_text(HOST_DEFINES)
    lines = ["#include <stddef.h>", "#include <stdint.h>", '#include "cuda.h"', '#include "cupti.h"']
    lines += [f'#include "{SOURCES}/calls.h"', *checks, "int main(void) { return 0; }\n"]
    source = folder / "layout.c"
    source.write_text("\n".join(lines))
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-w", "-fsyntax-only", f"-I{shim}", f"-I{wheel() / 'include'}", source],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[:8000]


def test_numbers_and_parameters(tmp_path: Path) -> None:
    include = wheel() / "include"
    ours = structures(r"typedef struct cm_call_(\w+) \{(.*?)\} cm_call_\1;", (SOURCES / "calls.h").read_text())
    pattern = r"typedef struct (\w+)_params_st \{(.*?)\} \1_params;"
    text = (include / "generated_cuda_meta.h").read_text() + (include / "generated_cuda_runtime_api_meta.h").read_text()
    theirs = structures(pattern, text)
    checks, compared, seen = [], 0, set()
    for domain, function, number, structure in rows():
        assert (domain, number) not in seen, function
        seen.add((domain, number))
        base = function.removesuffix("_ptsz").removesuffix("_ptds")
        if base in NEWER:
            continue
        kind = "DRIVER" if domain == "D" else "RUNTIME"
        checks.append(f'_Static_assert(CUPTI_{kind}_TRACE_CBID_{function} == {number}, "{function}");')
        if structure == "none":
            continue
        vendor = theirs[function] if function in theirs else theirs[base]
        name = function if function in theirs else base
        assert len(ours[structure]) <= len(vendor), function
        for mine, other in zip(ours[structure], vendor, strict=False):
            a, b = f"cm_call_{structure}, {mine}", f"{name}_params, {other}"
            checks.append(f'_Static_assert(offsetof({a}) == offsetof({b}), "{function}: {mine}");')
            if (mine, structure) != ("context", "give"):
                size = f"sizeof((cm_call_{structure}){{0}}.{mine}) == sizeof((({name}_params *)0)->{other})"
                checks.append(f'_Static_assert({size}, "{function}: size of {mine}");')
            compared += 1
    for function, number, at in work():
        assert ("D", number) not in seen, function
        seen.add(("D", number))
        base = function.removesuffix("_ptsz").removesuffix("_ptds")
        if base in NEWER:
            continue
        checks.append(f'_Static_assert(CUPTI_DRIVER_TRACE_CBID_{function} == {number}, "{function}");')
        if at != "ABSENT":
            name = function if function in theirs else base
            checks.append(f'_Static_assert(offsetof({name}_params, hStream) == {at}, "{function}");')
            compared += 1
        else:
            assert "hStream" not in theirs.get(function, theirs[base]), function
    assert len(seen) > 150 and compared > 220
    compile_checks(tmp_path, checks)


def test_what_parameters_point_at(tmp_path: Path) -> None:
    checks = [f'_Static_assert({ours} == {theirs}, "{ours}");' for ours, theirs in NUMBERS.items()]
    for ours, (theirs, names) in DESCRIBED.items():
        for mine, other in names.items():
            checks.append(f'_Static_assert(offsetof({ours}, {mine}) == offsetof({theirs}, {other}), "{ours}.{mine}");')
    pools = "offsetof(CUmemPoolProps, location)"  # begin alike
    checks.append(f'_Static_assert(offsetof(cm_memory_properties, location) == {pools}, "pool");')
    for field, other in (("size", "bytesize"), ("address", "dptr")):  # the runtime's
        offset = f"offsetof(struct cudaMemAllocNodeParams, {other})"
        checks.append(f'_Static_assert(offsetof(cm_alloc_node, {field}) == {offset}, "{field}");')
    checks.append(
        '_Static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS_v2, dptr) == offsetof(cm_alloc_node, address), "");'
    )
    checks.append('_Static_assert(sizeof(cm_alloc_node) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "node");')
    compile_checks(tmp_path, checks)


def test_array_formats(tmp_path: Path) -> None:
    """Every format of the header has a size."""
    header = (wheel() / "include" / "cuda.h").read_text()
    formats = set(re.findall(r"\b(CU_AD_FORMAT_\w+)\s*=\s*0x", header)) - {"CU_AD_FORMAT_MAX"}
    assert len(formats) > 40
    source = tmp_path / "formats.c"
    lines = [
        "#include <stdio.h>",
        '#include "cuda.h"',
        f'#include "{SOURCES}/calls.h"',
        "int main(void) { bool b; unsigned n;",
    ]
    lines += [f'n = cm_array_bits({name}, 2, &b); printf("{name} %u %d\\n", n, b);' for name in sorted(formats)]
    source.write_text("\n".join([*lines, "return 0; }\n"]))
    flags = ["-std=gnu11", "-w", f"-I{wheel() / 'include'}"]
    subprocess.run(["gcc", *flags, source, SOURCES / "calls.c", "-o", tmp_path / "formats"], check=True)
    said = subprocess.run([tmp_path / "formats"], check=True, capture_output=True, text=True).stdout
    sizes = {name: (int(bits), int(block)) for name, bits, block in (line.split() for line in said.splitlines())}
    assert [name for name, (bits, _) in sizes.items() if bits == 0] == []
    expected = {"FLOAT": 64, "HALF": 32, "UNSIGNED_INT8": 16, "UNORM_INT16X4": 64, "NV12": 12, "BC1_UNORM": 4}
    assert {name: sizes[f"CU_AD_FORMAT_{name}"][0] for name in expected} == expected
    assert {name for name, (_, block) in sizes.items() if block} == {name for name in formats if "_BC" in name}
