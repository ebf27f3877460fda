"""The nvidia-smi that a simulated program finds in its PATH: the simulated NVML's answers, in nvidia-smi's words.

Run as a file by a Python without site-packages (cuptimem writes the script), with the simulated libraries preloaded.
Memory in use is that of the nearest process above this one that uses the device: each process has devices of its own,
so no other process counts. What no simulated device has (temperatures, clocks, power) is [N/A].
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import dataclass

REPORT = "CUPTIMEM_SIM_REPORT"  # an option, -X: this process reads the report and, without the variable, writes none
_MIB = 1 << 20
_USAGE, _UNSUPPORTED, _NO_DRIVER = 2, 3, 9  # exit codes of the real one
_NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED
_ANSWERS = "-L, --query-gpu=..., --query-compute-apps=..., -q -x, -i, and no options"

# Fields of the real one without a meaning for a simulated device.
_UNKNOWN = """
accounting.mode clocks.applications.graphics clocks.applications.memory clocks.current.graphics
clocks.current.memory clocks.current.sm clocks.gr clocks.max.graphics clocks.max.memory clocks.max.sm
clocks.mem clocks.sm compute_mode display_active display_mode ecc.errors.corrected.volatile.total
ecc.errors.uncorrected.volatile.total ecc.mode.current ecc.mode.pending encoder.stats.averageFps
encoder.stats.sessionCount enforced.power.limit fan.speed gom.current inforom.ecc inforom.img mig.mode.current
mig.mode.pending pcie.link.gen.current pcie.link.gen.max pcie.link.width.current pcie.link.width.max
persistence_mode power.default_limit power.draw power.draw.average power.draw.instant power.limit
power.management power.max_limit power.min_limit pstate serial gpu_serial temperature.gpu temperature.memory
utilization.decoder utilization.encoder utilization.jpeg utilization.ofa vbios_version
"""
_UNITS = {"memory": "MiB", "utilization": "%", "used_memory": "MiB", "used_gpu_memory": "MiB"}
_OF_PROCESS = ("pid", "process_name", "used_memory", "used_gpu_memory")
_APPLICATION = (*_OF_PROCESS, "name", "gpu_uuid", "gpu_name", "timestamp")


_PROCESSES = f"| {' GPU        PID   Type   Process name':<70}{'GPU Memory':>17} |"


class Refused(Exception):
    """What cannot be answered; exit code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass
class Gpu:
    """One installed device, bytes."""

    index: int
    name: str
    uuid: str
    bus: str
    total: int | None  # None: NVML does not support the question, for the memory is the host's
    capability: str
    pid: int = 0  # of the process that has this memory; 0: of none
    process: str = ""
    used: int = 0

    def value(self, field: str, driver: str, count: int) -> str:
        """As the real one writes a field, unit included. KeyError for an unknown one."""
        known = {
            **dict.fromkeys(("name", "gpu_name"), self.name),
            **dict.fromkeys(("uuid", "gpu_uuid"), self.uuid),
            **dict.fromkeys(("pci.bus_id", "gpu_bus_id"), self.bus),
            "index": str(self.index),
            "count": str(count),
            "driver_version": driver,
            "compute_cap": self.capability,
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            **self.memory(),
            "utilization.gpu": "0 %",
            "utilization.memory": "0 %",
            "pid": str(self.pid),
            "process_name": self.process,
            **dict.fromkeys(("used_memory", "used_gpu_memory"), _mib(self.used)),
            **dict.fromkeys(_UNKNOWN.split(), "[N/A]"),
        }
        return known[field]

    def memory(self) -> dict[str, str]:
        if self.total is None:
            return dict.fromkeys(("memory.total", "memory.used", "memory.free", "memory.reserved"), "[N/A]")
        return {
            "memory.total": _mib(self.total),
            "memory.used": _mib(self.used),
            "memory.free": f"{self.total // _MIB - self.used // _MIB} MiB",
            "memory.reserved": "0 MiB",
        }


def _mib(size: int) -> str:
    return f"{size // _MIB} MiB"


# --- the simulated NVML ---------------------------------------------------------------------------


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("old", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus", ctypes.c_char * 32),
    ]


class Nvml:
    """The library that the process was started with. Refused where it has no devices."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
            getattr(self._library, "cm_sim_from")  # noqa: B009  else it is a real one, and reports real devices
        except (OSError, AttributeError):
            raise Refused(_NO_DRIVER, "this nvidia-smi answers for a simulated device, and there is none") from None
        self._call("nvmlInit_v2")

    def _call(self, name: str, *arguments: object) -> None:
        if not self._supports(name, *arguments):
            raise Refused(_NO_DRIVER, f"the simulated device did not answer {name}")

    def _supports(self, name: str, *arguments: object) -> bool:
        result = getattr(self._library, name)(*arguments)
        if result not in (0, _NOT_SUPPORTED):
            raise Refused(_NO_DRIVER, f"the simulated device did not answer {name}")
        return not result

    def _text(self, name: str, *arguments: object) -> str:
        room = ctypes.create_string_buffer(96)
        self._call(name, *arguments, room, 96)
        return room.value.decode()

    @property
    def driver(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    @property
    def cuda(self) -> str:
        version = ctypes.c_int()
        self._call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def gpus(self) -> list[Gpu]:
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [self._gpu(index) for index in range(count.value)]

    def _gpu(self, index: int) -> Gpu:
        handle, memory, pci = ctypes.c_void_p(), _Memory(), _Pci()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        has_memory = self._supports("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        self._call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
        self._call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        return Gpu(
            index,
            self._text("nvmlDeviceGetName", handle),
            self._text("nvmlDeviceGetUUID", handle),
            pci.bus.decode(),
            memory.total if has_memory else None,
            f"{major.value}.{minor.value}",
        )


# --- memory by process ----------------------------------------------------------------------------


def _above() -> list[int]:
    """The processes above this one, the nearest first."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def _add_use(gpus: list[Gpu]) -> None:
    path = sys._xoptions.get(REPORT)
    if not isinstance(path, str) or not path:
        return
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from cudasim import report

    try:
        reports = {one.pid: one for one in report.read(path)}
    except (report.Damaged, OSError):
        return
    pid = next((pid for pid in _above() if pid in reports and reports[pid].used), 0)
    for counts in reports[pid].used if pid else ():
        gpu = gpus[counts.ordinal]
        gpu.used, gpu.pid, gpu.process = counts.now, pid, _name_of(pid)


def _name_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "[Not Found]"


# --- answers --------------------------------------------------------------------------------------


def _listed(gpus: list[Gpu]) -> str:
    return "".join(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})\n" for gpu in gpus)


def _csv(gpus: list[Gpu], fields: list[str], form: list[str], driver: str, count: int) -> str:
    if form[:1] != ["csv"] or not set(form[1:]) <= {"noheader", "nounits"}:
        raise Refused(_USAGE, "--format= takes csv, with noheader and nounits behind it")
    lines = []
    if "noheader" not in form:
        lines.append(", ".join(_heading(field) for field in fields))
    for gpu in gpus:
        values = [gpu.value(field, driver, count) for field in fields]
        if "nounits" in form:
            values = [value.removesuffix(" MiB").removesuffix(" %") for value in values]
        lines.append(", ".join(values))
    return "".join(f"{line}\n" for line in lines)


def _heading(field: str) -> str:
    unit = _UNITS.get(field.partition(".")[0])
    return field if unit is None else f"{field} [{unit}]"


def _fields(text: str, driver: str, known: tuple[str, ...] | None = None) -> list[str]:
    fields = [field.strip() for field in text.split(",")]
    for field in fields:
        try:
            Gpu(0, "", "", "", 0, "").value(field, driver, 0)
            good = field not in _OF_PROCESS if known is None else field in known
        except KeyError:
            good = False
        if not good:
            raise Refused(_USAGE, f'Field "{field}" is not a valid field to query.')
    return fields


def _table(gpus: list[Gpu], driver: str, cuda: str) -> str:
    rule, inner = f"+{'-' * 89}+", f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|"
    lines = [
        time.strftime("%a %b %d %H:%M:%S %Y"),
        rule,
        f"| {f'NVIDIA-SMI {driver}':<26}{f'Driver Version: {driver}':<35}{f'CUDA Version: {cuda}':<27}|",
        f"|{'-' * 41}+{'-' * 24}+{'-' * 22}+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        inner,
    ]
    for gpu in gpus:
        memory = "Not Supported" if gpu.total is None else f"{gpu.used // _MIB}MiB / {gpu.total // _MIB}MiB"
        lines += [
            f"| {f'{gpu.index:>3}  {gpu.name[:27]:<27}':<34}{'N/A':>5} | {gpu.bus:<16}{'Off':>6} | {'N/A':>20} |",
            f"| {'N/A  N/A    N/A             N/A /  N/A':<40}| {memory:>22} | {'0%      Default':>20} |",
            f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+",
        ]
    lines += [
        "",
        rule,
        f"| {'Processes:':<88}|",
        f"| {' GPU        PID   Type   Process name':<70}{'GPU Memory':>17} |",
    ]
    lines.append(f"|{'=' * 89}|")
    busy = [gpu for gpu in gpus if gpu.pid]
    for gpu in busy:
        row = f"{gpu.index:>4}  {gpu.pid:>9}      C   {gpu.process[-44:]}"
        lines.append(f"| {row:<70}{f'{gpu.used // _MIB}MiB':>17} |")
    if not busy:
        lines.append(f"| {' No running processes found':<88}|")
    return "\n".join([*lines, rule, ""])


def _xml(gpus: list[Gpu], driver: str, cuda: str, count: int) -> str:
    def line(depth: int, name: str, value: object) -> str:
        text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"{chr(9) * depth}<{name}>{text}</{name}>"

    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        line(1, "timestamp", time.strftime("%a %b %d %H:%M:%S %Y")),
        line(1, "driver_version", driver),
        line(1, "cuda_version", cuda),
        line(1, "attached_gpus", count),
    ]
    for gpu in gpus:
        memory = gpu.memory()
        lines += [
            f'\t<gpu id="{gpu.bus}">',
            line(2, "product_name", gpu.name),
            line(2, "uuid", gpu.uuid),
            line(2, "minor_number", gpu.index),
            "\t\t<fb_memory_usage>",
            *(line(3, name, memory[f"memory.{name}"]) for name in ("total", "reserved", "used", "free")),
            "\t\t</fb_memory_usage>",
            "\t\t<utilization>",
            line(3, "gpu_util", "0 %"),
            line(3, "memory_util", "0 %"),
            "\t\t</utilization>",
            "\t\t<processes>",
        ]
        if gpu.pid:
            lines += [
                "\t\t\t<process_info>",
                line(4, "pid", gpu.pid),
                line(4, "type", "C"),
                line(4, "process_name", gpu.process),
                line(4, "used_memory", _mib(gpu.used)),
                "\t\t\t</process_info>",
            ]
        lines += ["\t\t</processes>", "\t</gpu>"]
    return "\n".join([*lines, "</nvidia_smi_log>", ""])


def _parsed(arguments: list[str]) -> dict[str, str]:
    """Options by their long names, with their values."""
    long = {"-L": "--list-gpus", "-q": "--query", "-x": "--xml-format", "-i": "--id", "-h": "--help"}
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        name = long.get(name, name)
        if name in ("--query-gpu", "--query-compute-apps", "--format", "--id"):
            if not equals and not rest:
                raise Refused(_USAGE, f"{name} takes a value")
            found[name] = value if equals else rest.pop(0)
        elif name in ("--list-gpus", "--query", "--xml-format", "--help") and not equals:
            found[name] = ""
        elif name in ("-qx", "-xq"):
            found |= {"--query": "", "--xml-format": ""}
        else:
            raise Refused(_UNSUPPORTED, f"{name} is not simulated: a simulated device answers {_ANSWERS}")
    return found


def answer(arguments: list[str]) -> str:
    """What is printed. Refused where it is not known."""
    asked = _parsed(arguments)
    if "--help" in asked:
        return f"nvidia-smi of a simulated device. It answers {_ANSWERS}.\n"
    nvml = Nvml()
    everyone = nvml.gpus()
    _add_use(everyone)
    gpus, driver, count = everyone, nvml.driver, len(everyone)
    if "--id" in asked:
        wanted = asked["--id"].split(",")
        gpus = [gpu for gpu in everyone if wanted and {str(gpu.index), gpu.uuid, gpu.bus} & set(wanted)]
        if not gpus:
            raise Refused(6, "No devices were found")
    form = [word.strip() for word in asked.get("--format", "").split(",")]
    if "--list-gpus" in asked:
        return _listed(gpus)
    if "--query-gpu" in asked:
        return _csv(gpus, _fields(asked["--query-gpu"], driver), form, driver, count)
    if "--query-compute-apps" in asked:
        fields = _fields(asked["--query-compute-apps"], driver, _APPLICATION)
        fields = ["process_name" if field == "name" else field for field in fields]
        return _csv([gpu for gpu in gpus if gpu.pid], fields, form, driver, count)
    if "--query" in asked and "--xml-format" in asked:
        return _xml(gpus, driver, nvml.cuda, count)
    if "--query" in asked or "--xml-format" in asked or "--format" in asked:
        raise Refused(_UNSUPPORTED, f"this is not simulated: a simulated device answers {_ANSWERS}")
    return _table(gpus, driver, nvml.cuda)


def main() -> int:
    try:
        sys.stdout.write(answer(sys.argv[1:]))
        sys.stdout.flush()
    except Refused as error:
        print(error)  # the real one's errors go there, too
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
