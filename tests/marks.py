"""Marks that follow from where a test lies and what it uses. What runs where, and why, is said here alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Tests whose path and name begin so, with this fixture if one is named, are the same with every Python: `make test`
# runs them with the main one only, `make pythons` with all.
ONCE = [
    (
        "unit/analysis/",
        "",
        "the analysis is C; tests/tools/cli and tests/record/api call its binding with every Python",
    ),
    ("unit/capture/", "stress", "a C program"),
    ("unit/capture/test_capture_compact.py", "", "C through ctypes"),
    ("simulator/cupti_headers/", "", "reads C headers"),
    ("simulator/driver/test_activity.py", "", "C programs"),
    ("simulator/driver/test_callbacks.py", "", "C programs"),
    ("simulator/driver/test_calls_vendor.py", "", "reads C headers"),
    ("simulator/driver/test_hostile.py", "", "which calls are believed is decided in C"),
    ("simulator/driver/test_kinds.py", "", "which calls are recorded is decided in C"),
    ("simulator/driver/test_plain.py::test_past_the_bound", "", "a table in C"),
    ("simulator/driver/test_plain.py::test_threads_", "", "hooks in C, threads of C"),
    ("simulator/driver/test_records_vendor.py", "", "reads C headers"),
    ("simulator/driver/test_cupti_thread.py::test_two_hundred", "", "threads and libraries that stay are C's"),
    ("simulator/driver/test_cupti_library.py", "", "how CUPTI is found and asked is decided in C"),
    ("simulator/driver/test_cupti_thread_patience.py", "", "who waits for whom is decided in C"),
    ("simulator/driver/test_without_driver.py", "", "whether CUPTI is entered is decided in C"),
    ("house/", "", "reads files of the tree"),
    ("evidence/leaks/", "", "judges reports"),
    ("evidence/published/", "", "judges reports"),
    ("attribution/", "", "judges reports"),
    *(
        (f"tools/cli/test_{name}", "", "text made of a report; test_commands.py asks every verb with each Python")
        for name in ("account", "driver_", "leak_views", "simulate_", "tree.py", "views.py")
    ),
    (
        "tools/exports/test_formats.py",
        "",
        "files made of reports and of batches; test_reader.py reads those with every Python",
    ),
    ("tools/exports/test_viewers.py", "", "the same files, opened"),
    ("evidence/fidelity/test_runner.py", "", "compares two outputs; test_fidelity.py uses it with every Python"),
    ("evidence/foreign/", "", "compares lists of outcomes"),
    ("tools/fuzz/test_fuzz.py", "", "C programs"),
    ("tools/fuzz/test_reports.py", "", "makes its mutants with a C program; tools/views has every view of some"),
    ("golden/", "", "the same traces; the tests of verbs and exports make the same answers with every Python"),
    ("tools/notebook/test_magic.py", "", "cells that use tensors"),
    ("tools/notebook/test_repr.py", "", "HTML made of a report"),
    ("tools/notebook/test_notebooks.py", "", "needs a Jupyter kernel"),
    ("tools/packaging/test_install.py", "", "`make wheel-tests` installs with every Python"),
    ("tools/packaging/test_build.py", "", "what setup.py makes of a compiler; `make wheels` builds with every Python"),
    *(
        (f"tools/pytest_plugin/test_{name}", "", "figures as text and as files; other files run pytest")
        for name in ("baselines.py", "comparison.py", "hostile_baselines.py", "outputs.py")
    ),
    ("tools/pages/test_timeline.py", "", "test_stacks_cli.py makes pages with every Python"),
    ("tools/sanitize/", "", "C programs"),
    ("", "browser_page", "pages are the same with every Python"),
    ("", "browser_process", "pages are the same with every Python"),
    ("tools/pages/test_browser_run.py", "", "which tests open pages"),
    ("tools/pages/test_stacks_data.py", "", "test_stacks_cli.py makes the same pages with every Python"),
    ("tools/tensorboard/", "", "the other Pythons have no TensorBoard"),
    ("tools/views/", "", "each view has tests of its own, which every Python runs"),
    ("simulator/device/", "", "C programs and libraries"),
    ("record/faults/test_bombs.py", "", "C bounds what a trace may ask for; tools/cli has every verb with each Python"),
    ("record/sources/test_slots.py", "", "C programs"),
    ("record/stress/test_stress_clock.py", "", "clocks are read in C"),
    ("record/stress/test_stress_descriptors.py", "", "files are opened and written in C"),
    ("record/stress/test_stress_filesystems.py", "", "files are opened and written in C"),
    ("record/stress/test_stress_limits.py", "", "what is refused is refused to C"),
    (
        "record/stress/test_stress_signals.py::test_interrupts_from_outside",
        "",
        "at every call of enter and exit says the same",
    ),
    ("unit/trace/", "lib", "C through ctypes"),
    ("unit/trace/test_trace_limits.py", "", "a C program"),
    ("record/truth/test_benchmarks_shape.py", "", "what a benchmark prints"),
]
# What needs PyTorch.
TORCH = [
    ("tools/exports/test_viewers.py::test_torchs_own_reader", "", "its reader of snapshots"),
    ("record/sources/test_nodes.py", "", "training loops"),
    ("record/sources/", "run", "programs after `from child import *`"),
    ("record/truth/", "child", "programs under the oracle"),
    ("record/truth/test_lines.py", "", "programs under the oracle"),
    ("record/truth/test_steps.py", "", "training loops"),
]
# What is compiled with a sanitizer; in simulator/device/core and simulator/driver/test_callbacks.py those parameters
# say so themselves.
SANITIZER = [
    ("unit/analysis/test_analysis_hostile.py", "harness", "a C program"),
    ("simulator/driver/test_activity.py", "", "C programs"),
    ("tools/fuzz/", "driver", "a C program"),
    ("tools/fuzz/", "fuzzer", "a C program"),
    ("tools/sanitize/", "", "C programs"),
    ("simulator/device/test_cupti.py", "", "C programs"),
    ("simulator/device/test_cupti_runtime.py", "", "C programs"),
    ("simulator/device/test_driver.py", "", "C programs"),
    ("simulator/device/test_libraries.py", "", "C programs"),
    ("simulator/device/test_runtime.py", "", "C programs"),
]
# What opens pages: skipped where there is no Chromium, all of it in `make browser-tests`.
BROWSER = [("", "browser_page", "opens a page"), ("", "browser_process", "opens a page")]


def add(items: Iterable[pytest.Item]) -> None:
    for item in items:
        for mark, rules in (("once", ONCE), ("torch", TORCH), ("sanitizer", SANITIZER), ("browser", BROWSER)):
            for reason in _reasons(item, rules):
                item.add_marker(getattr(pytest.mark, mark)(reason=reason))


def _reasons(item: pytest.Item, rules: list[tuple[str, str, str]]) -> Iterator[str]:
    place = f"{item.path.relative_to(ROOT).as_posix().removeprefix('tests/')}::{item.name}"
    for begin, fixture, reason in rules:
        if place.startswith(begin) and (not fixture or fixture in getattr(item, "fixturenames", ())):
            yield reason
