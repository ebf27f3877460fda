"""Reads NVIDIA's headers of each release of CUPTI that has a wheel, and writes what our own declarations state of them:
releases.json beside this file, which test_releases.py compares with csrc/. Needs a network, pip, gcc and readelf.

    python -m tests.unit.cupti_headers CACHE     (make cupti-headers CACHE=folder)

What is in CACHE already is not downloaded again: the wheels of CUPTI and of the CUDA runtime, 200 MB.
"""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE / "releases.json"
RELEASES = ["11.8", "12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9"]
RELEASES += ["13.0", "13.1", "13.2", "13.3", "13.4", "13.5"]

# The structures of each kind of record: the newest of the family is what the release writes.
FAMILIES = {
    1: "Memcpy",
    2: "Memset",
    3: "Kernel",
    4: "API",
    5: "API",
    8: "Device",
    9: "Context",
    10: "Kernel",
    12: "Marker",
    17: "Overhead",
    22: "MemcpyPtoP",
    25: "UnifiedMemoryCounter",
    36: "CudaEvent",
    37: "Stream",
    38: "Synchronization",
    39: "ExternalCorrelation",
    49: "Memory",
    50: "MemoryPool",
    51: "GraphTrace",
}
WITH_FIELDS = (1, 2, 3, 4, 22, 39, 49, 50)
# Headers of a whole toolkit that CUPTI's include and do not need.
SHIMS = ("builtin_types.h", "cuda_stdint.h", "crt/host_defines.h", "driver_types.h")
OUTER = "typedef struct PACKED_ALIGNMENT {"
INNER = re.compile(r"struct PACKED_ALIGNMENT \{(.*?)\} memoryPoolConfig;", re.S)


def wheel(cache: Path, package: str, release: str) -> Path:
    """The unpacked wheel of the newest patch of a release."""
    major = release.split(".")[0]
    name = package if major == "13" else f"{package}-cu{major}"
    folder = cache / f"{name}-{release}"
    if not folder.is_dir():
        at = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(cache / "wheels" / release)]
        tags = ("manylinux_2_28", "manylinux_2_25", "manylinux2014", "manylinux1")
        at += [*(f"--platform={tag}_x86_64" for tag in tags), f"{name}=={release}.*"]
        subprocess.run([sys.executable, *at], check=True)
        found = next((cache / "wheels" / release).glob(f"{name.replace('-', '_')}-*.whl"))
        with zipfile.ZipFile(found) as archive:
            archive.extractall(folder)
    return folder


def include(folder: Path, header: str) -> Path:
    return next(folder.rglob(header)).parent


def newest(text: str, family: str) -> str:
    names = re.findall(rf"\}}\s*(CUpti_Activity{family}(\d*));", text)
    if family == "Memory":  # the one without a number is of another kind
        names = [name for name in names if name[1]]
    return str(max(names, key=lambda found: int(found[1] or 0))[0])


def fields_of(text: str, struct: str) -> list[str]:
    """What offsetof() takes: the inner structure's fields by their path."""
    end = text.index(f"}} {struct};")
    begin = text.rindex(OUTER, 0, end) + len(OUTER)
    body = re.sub(r"/\*.*?\*/", "", text[begin:end], flags=re.S)
    inner = INNER.search(body)
    found = []
    if inner:
        body = body.replace(inner[0], "")
        plain = inner[1].replace("union {", "").replace("} pool;", "")
        for name in re.findall(r"(\w+)(?:\[\d+\])?;", plain):
            path = f"pool.{name}" if name in ("size", "processId") else name
            found.append(f"memoryPoolConfig.{path}")
    if "union" in body:
        body = re.sub(r"union \{.*?\} \w+;", "", body, flags=re.S)
    found += re.findall(r"(\w+)(?:\[\d+\])?;", body)
    return [name for name in found if not re.fullmatch(r"(.*\.)?(pad|padding|reserved)\d*", name)]


def measure(cache: Path, release: str) -> dict[str, Any]:
    cupti, runtime = wheel(cache, "nvidia-cuda-cupti", release), wheel(cache, "nvidia-cuda-runtime", release)
    here = include(cupti, "cupti_activity.h")
    text = (here / "cupti_activity.h").read_text()
    shim = cache / "shim"
    (shim / "crt").mkdir(parents=True, exist_ok=True)
    for name in SHIMS:
        (shim / name).write_text("#include <stdint.h>\n")
    records = {kind: newest(text, family) for kind, family in FAMILIES.items()}
    lines = [f'printf("bytes {kind} {name} %zu\\n", sizeof({name}));' for kind, name in records.items()]
    for kind in WITH_FIELDS:
        name = records[kind]
        lines += [
            f'printf("field {kind} {field} %zu\\n", offsetof({name}, {field}));' for field in fields_of(text, name)
        ]
    lines += ['printf("api - - %d\\n", CUPTI_API_VERSION);']
    for domain, size in (("driver", "DRIVER_TRACE"), ("runtime", "RUNTIME_TRACE")):
        lines += [f'printf("ids {domain} - %d\\n", CUPTI_{size}_CBID_SIZE);']
    lines += ['printf("ids resource - %d\\n", CUPTI_CBID_RESOURCE_SIZE);']
    if "CUpti_SubscriberParams" in (here / "cupti_callbacks.h").read_text():
        lines += ['printf("subscriber - - %zu\\n", sizeof(CUpti_SubscriberParams));']
    headers = ["stdio.h", "stddef.h", "string.h", "stdint.h", "cupti_result.h", "cupti_version.h", "cupti_callbacks.h"]
    headers += ["cupti_driver_cbid.h", "cupti_runtime_cbid.h", "cupti_activity.h"]
    source, program = cache / "measure.c", cache / "measure"
    source.write_text("".join(f"#include <{name}>\n" for name in headers) + f"int main(void) {{ {' '.join(lines)} }}\n")
    at = [f"-I{shim}", f"-I{here}", f"-I{include(runtime, 'cuda.h')}"]
    subprocess.run(["gcc", "-w", *at, str(source), "-o", str(program)], check=True)
    found: dict[str, Any] = {"records": {}, "ids": {}, "subscriber": 0}
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        what, of, name, number = line.split()
        if what == "bytes":
            found["records"][of] = {"struct": name, "bytes": int(number), "fields": {}}
        elif what == "field":
            found["records"][of]["fields"][name] = int(number)
        elif what == "ids":
            found["ids"][of] = int(number)
        else:
            found[what] = int(number)
    found["wheel"] = next(cupti.glob("*.dist-info")).name.removesuffix(".dist-info")
    return found


def callbacks(cache: Path, release: str) -> dict[str, dict[str, int]]:
    here = include(wheel(cache, "nvidia-cuda-cupti", release), "cupti_activity.h")
    found = {}
    for domain in ("driver", "runtime"):
        text = (here / f"cupti_{domain}_cbid.h").read_text()
        numbers = re.findall(rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
        found[domain] = {name: int(number) for name, number in numbers if name not in ("INVALID", "SIZE")}
    return found


def exports(cache: Path, release: str) -> set[str]:
    folder = wheel(cache, "nvidia-cuda-cupti", release)
    library = next(path for path in folder.rglob("libcupti.so.*"))
    text = subprocess.run(["readelf", "--dyn-syms", "-W", library], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"GLOBAL \w+ +\d+ (cupti\w+|InitializeInjection\w+)", text))


def main(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    functions: dict[str, list[str]] = {}
    numbers: dict[str, dict[str, list[Any]]] = {"driver": {}, "runtime": {}}
    releases = {}
    for release in RELEASES:
        releases[release] = measure(cache, release)
        for name in sorted(exports(cache, release)):
            functions.setdefault(name, [release, release])[1] = release
        for domain, ids in callbacks(cache, release).items():
            for name, number in ids.items():
                known = numbers[domain].setdefault(name, [number, release])
                if known[0] != number:
                    raise SystemExit(f"{name} is {number} in {release} and was {known[0]}: numbers are given anew")
    answer = {"releases": releases, "functions": functions, "callbacks": numbers}
    OUT.write_text(compact(answer))
    print(f"{OUT}: {len(releases)} releases, {len(functions)} functions, {sum(map(len, numbers.values()))} callbacks")


def compact(value: Any, depth: int = 0) -> str:
    """JSON with a line for each entry of the third level: as short as it can be compared."""
    if depth < 2 and isinstance(value, dict):
        rows = [f"{' ' * depth}{json.dumps(key)}: {compact(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{' ' * depth}}}" + ("\n" if not depth else "")
    return json.dumps(value)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
