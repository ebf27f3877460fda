"""The self-tests (selftest.py, selftest_cuda.py), each in a process of its own, and what their answers say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import cuptimem
from cuptimem import interpreter
from cuptimem.doctor import cupti
from cuptimem.doctor.checks import CHILD_SECONDS, INSTALLED, SELFTEST, SOURCES, Check, Slot, State, child_environment
from cuptimem.doctor.slots import AT_BACKWARD, CUDA_COSTS, REINSTALL, slot_checks
from cuptimem.record import live_nodes


def _run(program: str) -> tuple[list[dict[str, Any]], str]:
    """The JSON objects that a module of cuptimem printed in a process of its own, and how that process died, if so."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(cuptimem.__file__)))
    # -P: not what happens to lie in this folder. Where cuptimem is found here it is found there, after all else.
    text = f"import sys; sys.path.append({root!r}); from cuptimem.doctor import {program}; {program}.main()"
    try:
        done = subprocess.run(
            [
                sys.executable,
                *interpreter.isolation(),
                *(["-S"] if sys.flags.no_site else []),
                "-P",
                "-W",
                "ignore",
                "-c",
                text,
            ],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        return _objects(said.decode(errors="replace")), f"did not end within {CHILD_SECONDS} s"
    except OSError as error:
        return [], f"cannot be started: {sys.executable}: {error.strerror}"
    if done.returncode == 0:
        return _objects(done.stdout), ""
    how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with {done.returncode}"
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    return _objects(done.stdout), how + (f": {last}" if last else "")


def _objects(text: str) -> list[dict[str, Any]]:
    """Others may print, too."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def ask() -> tuple[dict[str, Any] | None, str]:
    """The self-test's answer, or None and one line why there is none."""
    said, how = _run("selftest")
    for answer in reversed(said):
        if "rows" in answer:
            return answer, ""
    return None, f"it {how or 'said nothing'}"


def ask_cuda() -> dict[str, Any]:
    """What selftest_cuda.py found. Under "asked" stands what it was about to find when it died, under "died" how."""
    said, how = _run("selftest_cuda")
    found: dict[str, Any] = {"asked": "whether CUDA is here", "died": ""}
    for part in said:
        found.update(part)
    if found["asked"]:
        found["died"] = how or "ended without an answer"
    return found


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


def _gpu_check(about: dict[str, Any], cuda: dict[str, Any]) -> Check:
    if not about["cuda"] and not about["hip"]:
        return Check(SOURCES, "GPU", "note", "this torch has no GPU support")
    if cuda.get("device_problem"):
        return Check(
            SOURCES,
            "GPU",
            "warning",
            f"its driver fails: {cuda['device_problem']}",
            "no GPU tensors",
            "see nvidia-smi",
        )
    if cuda["died"] and "devices" not in cuda:
        return Check(SOURCES, "GPU", "note", "not known: the process that asked died")
    if not cuda.get("devices"):
        return Check(SOURCES, "GPU", "note", "no device is visible")
    return Check(
        SOURCES,
        "GPU",
        "note",
        f"{', '.join(cuda['devices'])}: recorded by the allocator's hooks and by CUPTI, verified on a simulated "
        "device and not yet on a real one",
    )


def checks(answer: dict[str, Any], slots: Sequence[Slot], cuda: dict[str, Any]) -> Iterator[Check]:
    """answer: ask's; cuda: ask_cuda's."""
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
    for finding in cupti.findings(cuda, answer["cupti"]):
        yield Check(SOURCES, *finding)
    if not answer["checks"]:
        yield Check(SELFTEST, "recording", "ok", f"a trace of {answer['trace_bytes']} bytes, without torch")
        return
    yield from slot_checks(slots)
    if answer["torch"]["cuda"]:
        yield from slot_checks(slots, CUDA_COSTS)
    yield from _layout_checks(answer)
    yield _gpu_check(answer["torch"], cuda)
    costs: dict[str, tuple[State, str]] = {
        "bytes": ("failed", "what cuptimem says about CPU memory is wrong here"),
        "stack": ("warning", "blocks are shown without their line, or at another"),
        "backward": ("warning", AT_BACKWARD),
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
        ("node layout", "torch::autograd::Node::", AT_BACKWARD),
        ("storage layout", "c10::StorageImpl::", "a profile that starts in mid-run misses some blocks alive before"),
    ):
        fields = {key.removeprefix(start): value for key, value in offsets.items() if key.startswith(start)}
        if fields:
            text = ", ".join(f"{key} at {value}" for key, value in fields.items())
            yield Check(SOURCES, name, "ok", f"{start.rstrip(':')}: {text}")
        else:
            yield Check(SOURCES, name, "warning", "it could not be found out", cost, REINSTALL)
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
