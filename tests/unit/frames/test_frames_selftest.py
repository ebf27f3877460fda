"""What is read wrongly is found before it is used: the self-test switches stacks off and says why."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import frames_support
import pytest

from tests.build import kept_tree

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import frames_support
from pathlib import Path
core = frames_support.load(Path(sys.argv[2]))
print(core.frames_init())
print(core.frames_init() == core.frames_init())
core.begin()
core.frames_hide("/x")
core.frames_barrier(frames_support.load.__code__)
core.frames_module_call(None)
print(core.capture(), core.top(), core.counts()["stacks"], core.name(0), len(core.log_bytes()) > 0)
"""


# What follows the instruction pointer: from 3.14 on a stack pointer, behind all bytecode; before, a small number, with
# which every frame is one that is still being made. On aarch64 3.15 has a small number there, too.
_AFTER_IP = "stands at another instruction|the frame chain" if sys.version_info >= (3, 14) else "the frame chain"


@pytest.mark.parametrize(
    ("field", "reason"), [("IP", _AFTER_IP), ("LOCALS", "self is not where"), ("EXECUTABLE", "the frame chain")]
)
def test_a_wrong_offset_switches_stacks_off(tmp_path: Path, field: str, reason: str) -> None:
    csrc = tmp_path / "csrc"
    shutil.copytree(frames_support.ROOT / "csrc", csrc)
    header, source = csrc / "frames/offsets.h", csrc / "frames/offsets.c"
    shifted, count = re.subn(rf"(CM_OFFSET_{field} = )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 8}", header.read_text())
    assert count >= 3
    header.write_text(shifted)
    text = source.read_text()
    assert text.count("#define SAME(") == 1 and text.count("return check_published();") == 1
    text = re.sub(
        r"#define SAME\(.*?\n\n", "#define SAME(type, field, offset) _Static_assert(1, #type)\n\n", text, flags=re.S
    )
    source.write_text(text.replace("return check_published();", "(void)check_published;\n    return NULL;"))
    library = frames_support.compile_extension("frames_testing_wrong", csrc=kept_tree(csrc))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(library)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    why, same, rest = done.stdout.splitlines()
    assert done.returncode == 0 and done.stderr == ""
    assert why.startswith("self-test: ") and re.search(reason, why)
    assert (same, rest) == ("True", "0 (0, 0) 0 1 True"), "names work without stacks"


def test_a_later_python_has_no_stacks(tmp_path: Path) -> None:
    csrc = tmp_path / "csrc"
    shutil.copytree(frames_support.ROOT / "csrc", csrc)
    header = csrc / "frames/offsets.h"
    text, count = re.subn(r"(#define CM_OFFSETS_END) 0x\w+", r"\1 0x03000000", header.read_text())
    assert count == 1
    header.write_text(text)
    library = frames_support.compile_extension("frames_testing_later", csrc=kept_tree(csrc))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(library)],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "Python stacks are supported on CPython 3.11 to 3.15, not on this later version",
        "True",
        "0 (0, 0) 0 1 True",
    ]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="published from 3.13 on")
def test_published_offsets_are_compared(tmp_path: Path) -> None:
    csrc = tmp_path / "csrc"
    shutil.copytree(frames_support.ROOT / "csrc", csrc)
    source = csrc / "frames/offsets.c"
    text = source.read_text()
    assert "instr_ptr != CM_OFFSET_IP" in text
    source.write_text(text.replace("instr_ptr != CM_OFFSET_IP", "instr_ptr == CM_OFFSET_IP"))
    module = frames_support.load(frames_support.compile_extension("frames_testing_published", csrc=kept_tree(csrc)))
    assert "laid out differently" in module.frames_init()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.11 has no watchers")
def test_all_watchers_taken() -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import frames_support
core = frames_support.load(frames_support.compile_extension("frames_testing"))
assert core.take_all_watchers() == 8
print(core.frames_init())
core.begin()
print(core.capture())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["no code watcher is free in this interpreter (all 8 are taken)", "0"]
