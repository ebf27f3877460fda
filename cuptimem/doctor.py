"""What works in this environment, what a missing part costs, and how to fix it.

Nothing is guessed where it can be tried: torch is imported, a tiny program is recorded (selftest.py) and an autostart
is made, each in a process of its own, so that a crash there is a finding here.
"""

from __future__ import annotations

import difflib
import fcntl
import glob
import json
import os
import platform
import re
import resource
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Literal

import cuptimem
from cuptimem import autostart, doctor_cupti, live_nodes, recorder, simulator
from cuptimem.errors import Error, core, recording_core
from cuptimem.reporters.blocks import Block, Column, Table, Text
from cuptimem.reporters.words import size

SCHEMA = 1
State = Literal["ok", "note", "warning", "failed"]

INSTALLED, SOURCES, SELFTEST, PLACES, SETTINGS = "Installed", "Sources", "Self-test", "Places", "Settings"
_GROUPS = (INSTALLED, SOURCES, SELFTEST, PLACES, SETTINGS)
_SHARED = "/dev/shm"
_RING_BYTES = 16 << 20
_CHILD_SECONDS = 300
_SMALL_DISK = 256 << 20
_SMALL_ADDRESS_SPACE = 8 << 30  # torch itself maps several GiB
_MINORS = ((3, 11), (3, 12), (3, 13))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. "failed" means that recording does not work; "warning", that something lacks."""

    group: str
    name: str
    state: State
    text: str
    cost: str = ""  # what the user lacks because of it
    fix: str = ""  # what to do about it


@dataclass(frozen=True, slots=True)
class Slot:
    """A function of PyTorch that is intercepted, and the library whose calls to it are."""

    source: str
    symbol: str
    name: str  # readable
    meaning: str
    library: str  # "" where no loaded library calls it
    patched: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found out."""

    works: bool
    verdict: str
    checks: tuple[Check, ...]
    slots: tuple[Slot, ...] = ()
    offsets: dict[str, int] = field(default_factory=dict)  # bytes from the start of the struct
    nodes: str = ""  # "counted", or why they are not

    def to_dict(self) -> dict[str, Any]:
        """As --json prints it; keys stay within one schema."""
        return {"schema": SCHEMA, "version": cuptimem.__version__, **asdict(self)}


# --- readable names ------------------------------------------------------------------------------------------------


def readable(symbol: str) -> str:
    """A mangled name without its arguments: _ZN3c108alloc_cpuEm is c10::alloc_cpu."""
    start = symbol.find("N")
    if start < 0 or not symbol.startswith(("_ZN", "St")):
        return symbol
    parts: list[str] = []
    rest = symbol[start + 1 :].removeprefix("K")
    while match := re.match(r"(\d+)", rest):
        length, rest = int(match[1]), rest[match.end() :]
        parts.append(rest[:length])
        rest = rest[length:]
    if parts and re.match(r"D[012]", rest):
        parts.append("~" + parts[-1])
    name = "::".join(parts)
    if not name:
        return symbol
    if symbol.startswith("St23_Sp_counted_ptr_inplace"):
        return f"std::make_shared<{name}>"
    return f"std::shared_ptr<{name}>" if symbol.startswith("St") else name


# --- what each slot is good for: without it, this is missing ----------------------------------------------------------

_REINSTALL = "install an official wheel: pip install --force-reinstall torch"
_AT_BACKWARD = "bytes of backward stand at the line that called backward()"
_COSTS: dict[str, tuple[str, State, str]] = {  # meaning (its beginning) -> name, state without it, cost
    "CPU allocation": ("CPU allocations", "failed", "no CPU tensor is recorded"),
    "CPU free": ("CPU frees", "failed", "CPU tensors seem to live for ever"),
    "CPU out of memory": ("CPU out of memory", "warning", "a CPU allocation that fails leaves no mark"),
    "device allocation": ("GPU, shared, mapped", "warning", "GPU tensors and shared CPU tensors are not recorded"),
    "device out of memory": ("GPU out of memory", "warning", "a GPU that runs out of memory leaves no mark"),
    "autograd node created": ("nodes created", "warning", _AT_BACKWARD),
    "autograd node run": ("nodes run", "warning", _AT_BACKWARD),
    "autograd node destroyed": ("nodes destroyed", "warning", "nodes are not counted: a graph that grows is not found"),
}


_CUDA_COSTS: dict[str, tuple[str, State, str]] = {  # the same, where this PyTorch can use CUDA
    "memory that the allocator takes": ("CUDA segments taken", "warning", "segments, and blocks that are not cached"),
    "memory that it gives back": ("CUDA segments given back", "warning", "segments and uncached blocks never end"),
    "blocks of the cudaMallocAsync": ("cudaMallocAsync", "warning", "its blocks are not recorded"),
    "their frees": ("cudaFreeAsync", "warning", "blocks of cudaMallocAsync seem to live for ever"),
    "sizes as asked for": ("CUDA requested sizes", "warning", "how much of a block was asked for is not known"),
}


def _slot_checks(slots: Sequence[Slot], costs: Mapping[str, tuple[str, State, str]] = _COSTS) -> Iterator[Check]:
    """A line per thing that is intercepted. Versions differ in how nodes are destroyed: any way will do."""
    for start, (name, state, cost) in costs.items():
        found = [slot for slot in slots if slot.meaning.startswith(start)]
        patched = [slot for slot in found if slot.patched]
        if patched:
            yield Check(SOURCES, name, "ok", _libraries(patched))
            continue
        there = [slot.library for slot in found if slot.library]
        function = found[0].name if found else start
        text = (
            f"{function} in {', '.join(there)} could not be intercepted"
            if there
            else f"no loaded library calls {function} in a way that can be intercepted"
        )
        yield Check(SOURCES, name, state, text, cost, _REINSTALL)


def _libraries(slots: Sequence[Slot]) -> str:
    """c10::ProfiledCPUMemoryReporter::New in libc10.so (1), libtorch_cpu.so (2); make_shared<...> of 13 types"""
    parts: dict[str, dict[str, int]] = {}
    kept = [slot for slot in slots if slot.symbol.startswith("St")]
    for slot in slots:
        if slot not in kept:
            libraries = parts.setdefault(slot.name, {})
            libraries[slot.library] = libraries.get(slot.library, 0) + slot.patched
    text = "; ".join(
        f"{name} in {', '.join(f'{library} ({count})' for library, count in libraries.items())}"
        for name, libraries in parts.items()
    )
    return text + (f"; {len(kept)} types of nodes that their pointer destroys" if kept else "")


# --- installed -----------------------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Check:
    abi = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    text = f"{platform.python_implementation()} {platform.python_version()} ({abi}) at {sys.executable}"
    minors = "3.11, 3.12 or 3.13"
    if sys.implementation.name != "cpython" or sys.version_info[:2] < _MINORS[0]:
        return Check(INSTALLED, "Python", "failed", text, "nothing can be recorded", f"use CPython {minors}")
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if not gil or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Check(
            INSTALLED,
            "Python",
            "failed",
            text + ", free-threaded",
            "nothing can be recorded; traces can be read",
            f"run the program with a Python that has the GIL ({minors})",
        )
    if sys.version_info[:2] not in _MINORS:
        return Check(
            INSTALLED,
            "Python",
            "warning",
            text,
            "cuptimem was never run with it: stacks may be missing",
            f"use {minors}",
        )
    return Check(INSTALLED, "Python", "ok", text)


def _core_check() -> Check:
    try:
        module = core()
        recording_core()
    except Error as error:
        return Check(INSTALLED, "C core", "failed", " ".join(str(error).split()), "nothing can be recorded")
    return Check(INSTALLED, "C core", "ok", str(module.__file__))


def _simulate_check() -> Check:
    """Whether `cuptimem simulate` could run here; a lack of it is no fault."""
    from cuptimem.simulation import environment, launch

    try:
        build = environment.check()
        libraries = launch.preload(tempfile.gettempdir())
    except Error as error:
        return Check(INSTALLED, "simulate", "note", " ".join(str(error).split()), "no GPU can be simulated")
    return Check(
        INSTALLED,
        "simulate",
        "ok",
        f"torch {build.version}, CUDA {build.cuda}, runs on {os.path.dirname(libraries[0])}",
    )


def _installed() -> Iterator[Check]:
    yield Check(INSTALLED, "cuptimem", "ok", f"{cuptimem.__version__} at {os.path.dirname(cuptimem.__file__)}")
    yield _python()
    yield _core_check()
    libc = " ".join(platform.libc_ver()).strip() or "unknown"
    machine = platform.machine()
    text = f"{platform.system()} {platform.release()} {machine}, {libc}"
    if platform.system() != "Linux":
        yield Check(INSTALLED, "system", "failed", text, "nothing can be recorded; reports can be read", "use Linux")
    elif machine != "x86_64":
        yield Check(INSTALLED, "system", "warning", text, "cuptimem was never run on this kind of processor")
    else:
        yield Check(INSTALLED, "system", "ok", text)
    rich = _version("rich")
    if rich is None:
        yield Check(
            INSTALLED,
            "rich",
            "warning",
            "not installed",
            "no tables on a terminal",
            f"{sys.executable} -m pip install rich",
        )
    else:
        yield Check(INSTALLED, "rich", "ok", rich)
    yield _simulate_check()
    numpy = _version("numpy")
    yield Check(INSTALLED, "numpy", "ok" if numpy else "note", numpy or "not installed (cuptimem does not need it)")


# --- what the child found ------------------------------------------------------------------------------------------


def _environment(**more: str) -> dict[str, str]:
    """A child's: as ours, but nothing in it is recorded unless asked for. The place for rings stays."""
    kept = {name: value for name, value in os.environ.items() if name not in autostart.VARIABLES}
    return {**kept, **more}


def _child() -> tuple[dict[str, Any] | None, str]:
    """The self-test's answer, or None and one line why there is none."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(cuptimem.__file__)))
    # -P: not what happens to lie in this folder. Where cuptimem is found here it is found there, after all else.
    program = f"import sys; sys.path.append({root!r}); from cuptimem import selftest; selftest.main()"
    try:
        done = subprocess.run(
            [sys.executable, *(["-S"] if sys.flags.no_site else []), "-P", "-W", "ignore", "-c", program],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None, f"it did not end within {_CHILD_SECONDS} s"
    except OSError as error:
        return None, f"{sys.executable} cannot be started: {error.strerror}"
    for line in reversed(done.stdout.splitlines()):
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict) and "rows" in answer:
            return answer, ""
    how = f"it was killed by signal {-done.returncode}" if done.returncode < 0 else f"it ended with {done.returncode}"
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    return None, how + (f": {last}" if last else "")


def _torch_check(answer: dict[str, Any]) -> Check:
    about, error = answer["torch"], answer["torch_error"]
    install = f"{sys.executable} -m pip install torch"
    if about is None and not error:
        return Check(
            INSTALLED,
            "torch",
            "failed",
            "not installed in this Python",
            "there is nothing to record; traces can be read",
            f"run doctor with the program's own Python, or: {install}",
        )
    if about is None:
        return Check(
            INSTALLED,
            "torch",
            "failed",
            f"it cannot be imported: {error}",
            "no program that uses it runs",
            f"make `{sys.executable} -c 'import torch'` work first; PYTHONPATH may shadow it",
        )
    build = f"CUDA {about['cuda']}" if about["cuda"] else f"ROCm {about['hip']}" if about["hip"] else "CPU only"
    text = (
        f"{about['version']} ({build}{', debug' if about['debug'] else ''}) at {os.path.dirname(about['file'] or '?')}"
    )
    if not answer["checks"]:
        return Check(
            INSTALLED,
            "torch",
            "failed",
            f"{text} is not PyTorch: it has no tensors",
            "there is nothing to record",
            "remove what shadows it (PYTHONPATH, a folder named torch)",
        )
    return Check(INSTALLED, "torch", "ok", text)


def _gpu_check(about: dict[str, Any]) -> Check:
    if not about["cuda"] and not about["hip"]:
        return Check(SOURCES, "GPU", "note", "this torch has no GPU support")
    if about["device_problem"]:
        return Check(
            SOURCES,
            "GPU",
            "warning",
            f"its driver fails: {about['device_problem']}",
            "no GPU tensors",
            "see nvidia-smi",
        )
    if not about["devices"]:
        return Check(SOURCES, "GPU", "note", "no device is visible")
    return Check(
        SOURCES,
        "GPU",
        "note",
        f"{', '.join(about['devices'])}: recorded by the allocator's hooks and by CUPTI, verified on a simulated "
        "device and not yet on a real one",
    )


def _from_child(answer: dict[str, Any], slots: Sequence[Slot]) -> Iterator[Check]:
    yield _torch_check(answer)
    if answer["error"] is not None:
        yield Check(SELFTEST, "recording", "failed", answer["error"], "nothing can be recorded")
        return
    why = answer["frames"]
    offsets = len(answer["frame_offsets"])
    if why is None:
        text = f"{offsets} fields of Python's frames are where this version's headers say; walks equal Python's own"
        yield Check(SOURCES, "Python stacks", "ok", text)
    else:
        yield Check(SOURCES, "Python stacks", "warning", why, "blocks are recorded without their lines")
    for finding in doctor_cupti.findings(answer):
        yield Check(SOURCES, *finding)
    if not answer["checks"]:
        yield Check(SELFTEST, "recording", "ok", f"a trace of {answer['trace_bytes']} bytes, without torch")
        return
    yield from _slot_checks(slots)
    if answer["torch"]["cuda"]:
        yield from _slot_checks(slots, _CUDA_COSTS)
    yield from _layout_checks(answer)
    yield _gpu_check(answer["torch"])
    costs: dict[str, tuple[State, str]] = {
        "bytes": ("failed", "what cuptimem says about CPU memory is wrong here"),
        "stack": ("warning", "blocks are shown without their line, or at another"),
        "backward": ("warning", _AT_BACKWARD),
        "nodes": ("warning", "a graph that grows is not found, or seen where there is none"),
    }
    for name, good, text in answer["checks"]:
        state, cost = costs[name]
        if good:
            yield Check(SELFTEST, name, "ok", text)
        else:
            fix = "please report it with the output of: cuptimem doctor --json"
            yield Check(SELFTEST, name, state, text, cost, fix)


def _layout_checks(answer: dict[str, Any]) -> Iterator[Check]:
    offsets = answer["offsets"]
    for name, start, cost in (
        ("node layout", "torch::autograd::Node::", _AT_BACKWARD),
        ("storage layout", "c10::StorageImpl::", "a profile that starts in mid-run misses some blocks alive before"),
    ):
        fields = {key.removeprefix(start): value for key, value in offsets.items() if key.startswith(start)}
        if fields:
            text = ", ".join(f"{key} at {value}" for key, value in fields.items())
            yield Check(SOURCES, name, "ok", f"{start.rstrip(':')}: {text}")
        else:
            yield Check(SOURCES, name, "warning", "it could not be found out", cost, _REINSTALL)
    claim = answer["meta"]["nodes"]
    if claim == live_nodes.COUNTED:
        minor = live_nodes.minor_of(answer["torch"]["version"])
        yield Check(
            SOURCES, "live graph", "ok", f"nodes are counted; tested with torch {live_nodes.RUN_ON[minor or '']}"
        )
    else:
        yield Check(
            SOURCES,
            "live graph",
            "warning",
            f"autograd's nodes are not counted: {claim}",
            "a graph that grows without its tensors is not found; all else works",
            f"use torch {', '.join(live_nodes.RUN_ON)}",
        )
    for problem in filter(None, answer["meta"]["problems"].split("\n")):
        yield Check(SOURCES, "hooks", "warning", problem, "see the line")


# --- places --------------------------------------------------------------------------------------------------------


def _space(folder: str) -> tuple[int, int]:
    """Bytes in all, bytes free to us."""
    about = os.statvfs(folder)
    return about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize


def _trace_folder() -> Check:
    name = "trace folder"
    try:
        folder = os.getcwd()
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cuptimem-doctor-") as file:
            file.write(b"\0" * 4096)
            file.flush()
        free = _space(folder)[1]
    except OSError as error:
        return Check(
            PLACES,
            name,
            "failed",
            f"traces go into the working directory, which cannot be written to: {error.strerror}",
            "`cuptimem run` writes no trace here",
            "change to another directory, or name one: cuptimem run -o /path/to/run.cmem",
        )
    text = f"{folder}, {size(free)} free"
    if free < _SMALL_DISK:
        return Check(
            PLACES,
            name,
            "warning",
            text,
            "a long recording ends when the disk is full",
            "name another: cuptimem run -o",
        )
    return Check(PLACES, name, "ok", text)


def _ring_checks(answer: dict[str, Any] | None) -> Iterator[Check]:
    chosen = os.environ.get("CUPTIMEM_RING_DIR", "")
    meta = (answer or {}).get("meta")
    lost = "what a killed process had not written yet is lost, up to its last second"
    if meta is not None:
        place, path = meta["ring.place"], meta["ring.path"]
        where = {
            "shared": f"{os.path.dirname(path)} (shared memory)",
            "chosen": f"{os.path.dirname(path)} (CUPTIMEM_RING_DIR)",
            "beside": "beside the trace, on its disk",
            "private": "private memory, in no file",
        }.get(place, place)
        text = f"{size(_RING_BYTES)} in {where}"
        if chosen and place != "chosen":
            yield Check(
                PLACES,
                "rings",
                "warning",
                f"CUPTIMEM_RING_DIR={chosen} cannot be used; {text}",
                "a place that was chosen on purpose is not used",
                "make it a writable folder on a local disk with 32 MiB free, or unset it",
            )
        elif place == "private":
            yield Check(PLACES, "rings", "warning", text, lost, f"free {size(_RING_BYTES)} in {_SHARED}")
        else:
            yield Check(PLACES, "rings", "ok", text)
    try:
        total, free = _space(_SHARED)
    except OSError as error:
        yield Check(PLACES, _SHARED, "note", f"{error.strerror}: rings go beside the trace")
        return
    text = f"{size(free)} free of {size(total)}"
    if free < 2 * _RING_BYTES and not chosen:
        yield Check(
            PLACES,
            _SHARED,
            "warning",
            text,
            "rings go beside the trace, or data loaders run out of shared memory",
            "docker run --shm-size=1g, or CUPTIMEM_RING_DIR=/a/local/folder",
        )
    elif total <= 64 << 20:
        yield Check(
            PLACES,
            _SHARED,
            "note",
            f"{text}, as containers have it; a recording takes {size(_RING_BYTES)} of what data loaders use too",
            fix="docker run --shm-size=1g",
        )
    else:
        yield Check(PLACES, _SHARED, "ok", text)


def _is_orphan(path: str) -> bool:
    """Whether no living process holds this ring."""
    try:
        with open(path, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # held, another user's, or gone meanwhile
    return True


def _left_rings() -> list[str]:
    """Rings that killed processes left, where a recording from here would look for them."""
    if recorder.active():  # CUPTIMEM=1 cuptimem doctor: opening and closing our own ring would let go of its lock
        return []
    folders = dict.fromkeys(filter(None, (os.environ.get("CUPTIMEM_RING_DIR", ""), _SHARED)))
    rings = [ring for folder in folders for ring in glob.glob(os.path.join(glob.escape(folder), ".cuptimem-ring-*"))]
    return [ring for ring in rings if _is_orphan(ring)]


def _orphans(before: Sequence[str]) -> Check:
    """What has become of them: the self-test is a recording, and every recording clears up."""
    left = [ring for ring in before if _is_orphan(ring)]
    done = len(before) - len(left)
    text = f"{done} of killed processes, brought home to their traces just now" if done else "none"
    if not left:
        return Check(PLACES, "left rings", "ok", text)
    total = sum(os.stat(ring).st_size for ring in left)
    text = f"{len(left)} of killed processes, {size(total)}, whose traces are missing or cannot be written"
    fix = f"nothing: a recording drops them after 7 days; or remove {' '.join(left)}"
    return Check(PLACES, "left rings", "note", text, fix=fix)


# --- settings ------------------------------------------------------------------------------------------------------


def _autostart() -> Check:
    """Whether a Python that starts with CUPTIMEM=1 records: tried."""
    if sys.flags.no_site:
        return Check(
            SETTINGS,
            "autostart",
            "warning",
            "this Python runs with -S",
            "`cuptimem run` does not record",
            "leave -S away",
        )
    program = "import sys; r = sys.modules.get('cuptimem.recorder'); print('active' if r and r.active() else 'off')"
    with tempfile.TemporaryDirectory(prefix="cuptimem-doctor-") as folder:
        output = os.path.join(folder, "autostart.cmem")
        try:
            done = subprocess.run(
                [sys.executable, "-c", program],
                env=_environment(CUPTIMEM="1", CUPTIMEM_OUTPUT=output, CUPTIMEM_QUIET="1"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_CHILD_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        else:
            if "active" in done.stdout and os.path.exists(output):
                return Check(SETTINGS, "autostart", "ok", "cuptimem.pth is found: `cuptimem run` and CUPTIMEM=1 record")
            said = next((line for line in done.stderr.splitlines() if line.startswith("cuptimem: ")), "").removeprefix(
                "cuptimem: "
            )
    cost = "`cuptimem run` and CUPTIMEM=1 do not record; cuptimem.profile() does"
    if said:
        return Check(SETTINGS, "autostart", "warning", said, cost)
    return Check(
        SETTINGS,
        "autostart",
        "warning",
        "cuptimem.pth is in no site-packages of this Python",
        cost,
        f"install it properly: {sys.executable} -m pip install cuptimem",
    )


def _variables() -> Iterator[Check]:
    known = {*autostart.VARIABLES, "CUPTIMEM_RING_DIR"}
    if simulator.CORE in os.environ.get("LD_PRELOAD", ""):
        known |= {*simulator.VARIABLES}
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith("CUPTIMEM")}
    for name in found:
        if name not in known:
            if name in simulator.VARIABLES:
                said, cost = "for the simulated device, which is not loaded here", "it has no effect"
                yield Check(SETTINGS, name, "note", said, cost, "nothing, or see: cuptimem simulate --help")
                continue
            near = next(iter(difflib.get_close_matches(name, sorted(known), 1, 0.8)), None)
            yield Check(
                SETTINGS,
                name,
                "warning",
                "cuptimem knows no such variable",
                "it has no effect",
                f"did you mean {near}" if near else "unset it",
            )
    text = ", ".join(f"{name}={value}" for name, value in found.items() if name in known)
    yield Check(SETTINGS, "variables", "ok", text or "none of cuptimem's is set")


def _limit(which: int) -> int | None:
    value = resource.getrlimit(which)[0]
    return None if value == resource.RLIM_INFINITY else value


def _limits() -> Iterator[Check]:
    space, file, locked = (
        _limit(which) for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK)
    )

    def shown(value: int | None) -> str:
        return "unlimited" if value is None else size(value)

    text = f"address space {shown(space)}, file size {shown(file)}, locked memory {shown(locked)} (not used)"
    if space is not None and space < _SMALL_ADDRESS_SPACE:
        yield Check(
            SETTINGS,
            "ulimit -v",
            "warning",
            f"{size(space)} of address space",
            "torch alone maps several GiB; cuptimem adds 64 MiB",
            "ulimit -v unlimited",
        )
    if file is not None and file < _SMALL_DISK:
        yield Check(
            SETTINGS,
            "ulimit -f",
            "warning",
            f"files end at {size(file)}",
            "a recording ends when its trace gets there; rings may find no place",
            "ulimit -f unlimited",
        )
    yield Check(SETTINGS, "limits", "ok", text)


# --- all of it -----------------------------------------------------------------------------------------------------


def _guarded(name: str, group: str, checks: Iterator[Check]) -> Iterator[Check]:
    """A look that fails is a finding, and no end of the others."""
    try:
        yield from checks
    except OSError as error:
        yield Check(group, name, "warning", f"it could not be looked at: {error}")


def examine() -> Diagnosis:
    """Looks at everything; takes as long as two imports of torch."""
    checks = list(_guarded("packages", INSTALLED, _installed()))
    slots: tuple[Slot, ...] = ()
    offsets: dict[str, int] = {}
    answer: dict[str, Any] | None = None
    nodes = ""
    left = _left_rings()
    if not any(check.state == "failed" for check in checks):
        answer, why = _child()
        if answer is None:
            fix = f"try: {sys.executable} -c 'import torch'"
            checks.append(Check(SELFTEST, "process", "failed", why, "programs may end like this too", fix))
        else:
            slots = tuple(Slot(row[0], row[1], readable(row[1]), *row[2:]) for row in answer["rows"])
            offsets = {**answer.get("frame_offsets", {}), **answer.get("offsets", {})}
            nodes = answer.get("meta", {}).get("nodes", "")
            checks.extend(_from_child(answer, slots))
        checks.append(_autostart())
    checks.append(_trace_folder())
    checks.extend(_guarded("rings", PLACES, _ring_checks(answer)))
    checks.extend(_guarded("left rings", PLACES, map(_orphans, [left])))
    checks.extend(_variables())
    checks.extend(_limits())
    checks.sort(key=lambda check: _GROUPS.index(check.group))
    works = not any(check.state == "failed" for check in checks)
    return Diagnosis(works, _verdict(checks), tuple(checks), slots, offsets, nodes)


def _verdict(checks: Sequence[Check]) -> str:
    failed = [check for check in checks if check.state == "failed"]
    if failed:
        first = failed[0]
        rest = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"Recording does not work here: {first.name}: {first.text}{rest}"
    warnings = sum(check.state == "warning" for check in checks)
    if warnings:
        return f"Recording works; {warnings} {'thing lacks' if warnings == 1 else 'things lack'}, see above"
    return "Recording works"


_SIGNS: dict[State, str] = {"ok": "ok", "note": "-", "warning": "!", "failed": "FAILED"}


def blocks(diagnosis: Diagnosis, slots: bool = False) -> list[Block]:
    """What a person reads; slots: each slot and offset too."""
    shown: list[Block] = []
    for group in _GROUPS:
        checks = [check for check in diagnosis.checks if check.group == group]
        if not checks:
            continue
        shown.append(Text(group, "title"))
        width = max(len(check.name) for check in diagnosis.checks)
        for check in checks:
            sign = _SIGNS[check.state]
            style: Literal["", "warning"] = "warning" if check.state in ("warning", "failed") else ""
            shown.append(Text(f"  {sign:<6}  {check.name:<{width}}  {check.text}", style))
            indent = " " * (width + 12)
            if check.cost and check.state != "ok":
                shown.append(Text(f"{indent}so: {check.cost}"))
            if check.fix and check.state != "ok":
                shown.append(Text(f"{indent}do: {check.fix}"))
        shown.append(Text())
    if slots:
        shown.extend(_details(diagnosis))
    shown.append(Text(diagnosis.verdict, "strong" if diagnosis.works else "warning"))
    return shown


def _details(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.slots:
        yield Text("Slots", "title")
        yield Table(
            (Column("meaning"), Column("library"), Column("patched", right=True), Column("function")),
            tuple((s.meaning, s.library or "none", str(s.patched), s.name) for s in diagnosis.slots),
        )
        yield Text()
    if diagnosis.offsets:
        yield Text("Offsets", "title")
        yield Table(
            (Column("field"), Column("byte", right=True)),
            tuple((name, str(value)) for name, value in diagnosis.offsets.items()),
        )
        yield Text()
