"""The driver beside the vendor's headers, which come with PyTorch's CUDA build: the parameters that callbacks hand out,
the numbers of the callbacks, and which functions there are since when."""

import re
import subprocess
from pathlib import Path

from cudasim.tests.objects import INCLUDE, SOURCES, TABLES, generator
from tests.vendor import wheel

TABLE = generator.read(TABLES / "cuda.txt")
# From before the first CUDA with versioned types: the header's typedefs do not tell these apart.
UNTYPED = {
    ("cuCtxGetDevice", 13000): "cuCtxGetDevice_v2",
    ("cuCtxSynchronize", 13000): "cuCtxSynchronize_v2",
    ("cuStreamGetCtx", 12050): "cuStreamGetCtx_v2",
    ("cuGraphInstantiate", 12000): "cuGraphInstantiateWithFlags",
}


def include() -> Path:
    return wheel() / "include"


def written() -> set[str]:
    """The driver's functions that are written by hand, other names of theirs included."""
    text = "\n".join(path.read_text() for path in SOURCES.glob("driver/driver_*.c"))
    plain = re.findall(r"CM_SIM_EXPORT int (cu\w+)\(", text)
    others = re.findall(r"CM_SIM_ALIAS\(\w+,\s*(\w+)\)", text)
    return {*plain, *others}


def test_parameters_and_callback_numbers_are_the_vendors(tmp_path: Path) -> None:
    structures = {entry.name: entry.parameters for entry in TABLE.entries.values() if entry.parameters}
    assert len(structures) > 80
    checks = [f'_Static_assert(CUPTI_DRIVER_TRACE_CBID_{name} == CM_CBID_{name}, "{name}");' for name in structures]
    for name, fields in structures.items():
        checks.append(f'_Static_assert(sizeof(cm_{name}_params) == sizeof({name}_params), "{name}");')
        for declaration in fields:
            found = re.search(r"\(\*(\w+)\)|(\w+)$", declaration)
            assert found, declaration
            field = found[1] or found[2]
            checks.append(
                f"_Static_assert(offsetof(cm_{name}_params, {field}) == offsetof({name}_params, {field}) && "
                f'sizeof((cm_{name}_params){{0}}.{field}) == sizeof(({name}_params){{0}}.{field}), "{name}.{field}");'
            )
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "cuda_stdint.h").write_text("#include <stdint.h>\n")
    source = tmp_path / "layout.c"
    headers = [
        "stddef.h",
        "stdint.h",
        "cuda.h",
        "generated_cuda_meta.h",
        "cupti_driver_cbid.h",
        "objects/calls.h",
    ]
    # Structures of long gone versions, which the generated header mentions and cuda.h hides.
    old = "typedef unsigned int CUdeviceptr_v1;\ntypedef int CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D_v1, "
    old += "CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR_v1;\n"
    lines = [f'#include "{name}"' for name in headers]
    source.write_text("\n".join([*lines[:3], old, *lines[3:], *checks, "int main(void) { return 0; }"]))
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{shim}", f"-I{include()}", *INCLUDE, source],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_names_are_sorted_for_the_search() -> None:
    rows = generator.lookups(TABLE)
    assert rows == sorted(rows, key=lambda row: (row[0].encode(), row[1]))


def test_every_function_of_the_headers_is_known_since_its_version() -> None:
    typed: dict[str, set[int]] = {}
    for header in include().glob("cuda*Typedefs.h"):
        for name, version in re.findall(r"PFN_(cu\w+?)_v(\d{4,5})\)", header.read_text()):
            typed.setdefault(name, set()).add(int(version))
    ours: dict[str, set[int]] = {}
    for name, version, _ in generator.lookups(TABLE):
        ours.setdefault(name, set()).add(version)
    assert len(typed) > 400
    assert {name: ours.get(name, set()) - {v for n, v in UNTYPED if n == name} for name in typed} == {
        name: versions - {v for n, v in UNTYPED if n == name} for name, versions in typed.items()
    }


def test_the_newest_version_is_what_the_header_calls() -> None:
    header = "\n".join(path.read_text() for path in include().glob("cuda*.h"))
    defines = dict(re.findall(r"#define\s+(cu\w+)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)\)?\s*$", header, re.M))
    newest = {name: symbol for name, _, symbol in generator.lookups(TABLE)}
    wrong = {
        name: symbol
        for name, symbol in newest.items()
        if symbol != defines.get(name, name) and (name, symbol) not in {(n, s) for (n, _), s in UNTYPED.items()}
    }
    assert wrong == {}


def test_every_function_is_written_or_refused() -> None:
    entries = TABLE.entries
    assert {symbol for _, _, symbol in generator.lookups(TABLE)} - set(entries) == set()
    assert {entry.name for entry in entries.values() if entry.custom} == written()
    declared = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", (include() / "cuda.h").read_text()))
    assert len(declared) > 400
    assert declared - set(entries) == set()
