"""The verbs, the names of files, and every way to ask for what cannot be done."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.cli import VERBS, hints
from cuptimem.cli import run as run_verb
from tests.conftest import Result, clean_environment

Run = Callable[..., Result]
READERS = ["summary", "peak", "leaks", "steps", "table", "account", "tree"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace shaped like a training, made without torch."""
    path = tmp_path_factory.mktemp("trace") / "run.cmem"
    write_synthetic(str(path), 20_000, 1)
    return path


def one_line(text: str) -> bool:
    return text.startswith("cuptimem") and text.count("\n") == 1 and "Traceback" not in text


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", READERS)
def test_text_and_json(run: Run, call: Run, trace: Path, verb: str) -> None:
    text = run("-m", "cuptimem", verb, str(trace))
    assert (text.code, text.err) == (0, "")
    assert len(text.out.splitlines()) > 3
    assert "\x1b" not in text.out
    machine = call(verb, str(trace), "--json")
    assert (machine.code, machine.err) == (0, "")
    document = json.loads(machine.out)
    assert list(document)[:5] == ["schema", "complete", "state", "reason", "lost"]
    assert document["schema"] == 3
    assert document["complete"] is True
    assert document["lost"] == dict.fromkeys(document["lost"], 0) or document["lost"]["events"] == 0


def test_peak_of_a_step(call: Run, trace: Path) -> None:
    report = cuptimem.open(trace)
    index = report.steps[-1].index // 2
    expected = report.step_peak(index)
    document = json.loads(call("peak", str(trace), "--step", str(index), "--json").out)
    found = next(peak for peak in document["peaks"] if peak["device"] == expected.device)
    assert (found["step"], found["bytes"]) == (index, expected.bytes)
    assert sum(c["bytes"] for c in found["contributors"]) == expected.bytes
    missing = call("peak", str(trace), "--step", "123456")
    assert (missing.code, missing.out) == (1, "")
    assert one_line(missing.err) and "no step 123456" in missing.err


def test_moments_of_steps_and_of_the_run(call: Run, trace: Path) -> None:
    report = cuptimem.open(trace)
    last = report.steps[-1]
    for at, size in (("start", last.start), ("peak", last.peak), ("end", last.end)):
        for step in (str(last.index), "-1"):
            document = json.loads(call("peak", str(trace), "--step", step, "--at", at, "--json").out)
            found = next(peak for peak in document["peaks"] if peak["device"] == last.device)
            assert (found["what"], found["step"], found["bytes"]) == (at, last.index, size)
            assert sum(c["bytes"] for c in found["contributors"]) == size
    device = report.devices[0]
    for at, size in (("start", device.start), ("end", device.end)):
        document = json.loads(call("peak", str(trace), "--at", at, "--json", "--device", device.name).out)
        assert document["peaks"][0]["bytes"] == size == sum(c["bytes"] for c in document["peaks"][0]["contributors"])
    shown = call("summary", str(trace), "--at", "end").out
    assert f"What is alive on {device.name}: {size_of(device.end)}, at the end" in shown
    assert "What the peak" not in shown


def size_of(value: int) -> str:
    from cuptimem.output.text.words import size

    return size(value)


def test_diff_of_a_trace_with_itself_and_with_another(call: Run, trace: Path, tmp_path: Path) -> None:
    same = call("diff", str(trace), str(trace))
    assert (same.code, same.err) == (0, "") and "No line differs." in same.out
    other = tmp_path / "other.cmem"
    write_synthetic(str(other), 9_000, 2)
    report = cuptimem.open(other)
    for width in ("80", "120"):
        done = call("diff", str(trace), str(other), "--device", report.devices[0].name)
        assert done.code == 0 and "At the peak on" in done.out and len(done.out.splitlines()) < 50, width
    document = json.loads(call("diff", str(trace), str(other), "--json").out)
    assert list(document) == ["schema", "before", "after", "devices"]
    names = {device["device"] for device in document["devices"]}
    assert names == {device.name for device in report.devices} | {d.name for d in cuptimem.open(trace).devices}
    wrong = call("diff", str(trace), str(other), "--device", "tpu:0")
    assert wrong.code == 1 and one_line(wrong.err) and "tpu:0" in wrong.err
    missing = call("diff", str(trace), str(tmp_path / "none.cmem"))
    assert missing.code == 1 and one_line(missing.err) and missing.out == ""


def test_device_choice(call: Run, trace: Path) -> None:
    wrong = call("peak", str(trace), "--device", "tpu:0")
    assert wrong.code == 1 and one_line(wrong.err) and "tpu:0" in wrong.err
    name = cuptimem.open(trace).devices[0].name
    assert call("steps", str(trace), "--device", name).code == 0


def test_width_is_honoured_and_colour_is_not_forced(run: Run, trace: Path) -> None:
    for columns in (60, 100):
        text = run("-m", "cuptimem", "table", str(trace), env={"COLUMNS": str(columns)}).out
        table = [line for line in text.splitlines() if line.startswith("  ")]
        assert table and max(len(line) for line in table) <= columns


def in_terminal(python: str, arguments: list[str], folder: Path, env: dict[str, str], columns: int = 100) -> str:
    """What a person sees: standard output and error on a terminal of that width."""
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**clean_environment(), "TERM": "xterm-256color", **env}
    process = subprocess.Popen(
        [python, *arguments], stdin=follower, stdout=follower, stderr=follower, cwd=folder, env=environment
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        seen += part
    os.close(leader)
    assert process.wait(timeout=300) == 0
    return seen.decode()


def test_terminal_output(python: str, trace: Path, tmp_path: Path) -> None:
    plain = in_terminal(python, ["-m", "cuptimem", "steps", str(trace)], tmp_path, {"NO_COLOR": "1"}, 200)
    assert re.search(r"\x1b\[[0-9;]*(3\d|4\d|38;)[0-9;]*m", plain) is None
    environment = {"NO_COLOR": ""}
    coloured = in_terminal(python, ["-m", "cuptimem", "steps", str(trace)], tmp_path, environment, 200)
    assert re.search(r"\x1b\[[0-9;]*36m", coloured)  # the peak's column is cyan
    narrow = in_terminal(python, ["-m", "cuptimem", "table", str(trace)], tmp_path, {"NO_COLOR": "1"}, 60)
    rows = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", narrow).splitlines()
    assert any(row.split() == ["live", "share", "blocks", "mean", "line"] for row in rows)  # there is no room for code
    assert all(len(row) <= 60 for row in rows)


def test_progress_only_on_long_work(python: str, tmp_path: Path, trace: Path) -> None:
    program = (
        "import sys, time\nfrom cuptimem.output.text import terminal\n"
        "now = [0.0]\ntime.monotonic = lambda: now[0]\n"
        "with terminal.progress('reading x') as tell:\n"
        "    for i in range(int(sys.argv[1])):\n        assert tell(i / 20)\n        now[0] += 0.1\n"
        "print('done')\n"
    )
    assert in_terminal(python, ["-c", program, "3"], tmp_path, {}).strip() == "done"
    assert "reading x" in in_terminal(python, ["-c", program, "16"], tmp_path, {})


def test_without_a_file_the_newest_here_is_read(
    call: Run, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, when in (
        ("old.cmem", 1_000),
        ("new\n.cmem", 3_000),
        ("older.cmem", 2_000),
        ("notes.txt", 9_000),
        (".x.cmem", 9_000),
    ):
        (tmp_path / name).write_bytes(trace.read_bytes())
        os.utime(tmp_path / name, (when, when))
    (tmp_path / "folder.cmem").mkdir()
    (tmp_path / "nothing.cmem").symlink_to("none")
    os.mkfifo(tmp_path / "pipe.cmem")
    for verb, *more in (["summary", "--json"], ["export", "--to", "csv"], ["table", "-o", "t.html"]):
        done = call(verb, *more)
        assert (done.code, done.err) == (0, "cuptimem: reading new\\n.cmem, the newest here\n")
        assert verb != "summary" or done.out == call("summary", "new\n.cmem", "--json").out


# -- what cannot be read -------------------------------------------------------------------------------------------


def damaged(trace: Path, kind: str, folder: Path) -> Path:
    path, whole = folder / "bad.cmem", trace.read_bytes()
    if kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "foreign":
        path.write_bytes(b"\x7fELF" + bytes(1000))
    elif kind == "text":
        path.write_text("hello\n" * 100)
    elif kind == "newer":
        path.write_bytes(whole[:8] + (99).to_bytes(2, "little") + whole[10:])
    elif kind == "header":
        path.write_bytes(whole[:12])
    elif kind == "unreadable":
        path.symlink_to(path)  # a loop: not even root can open it
    return path


@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "foreign", "text", "newer", "header", "unreadable"])
@pytest.mark.parametrize("verb", READERS)
def test_what_is_no_trace(call: Run, trace: Path, tmp_path: Path, verb: str, kind: str) -> None:
    path = damaged(trace, kind, tmp_path)
    for more in ([], ["--json"]):
        done = call(verb, str(path), *more)
        assert (done.code, done.out) == (1, "")
        assert one_line(done.err), done.err
        assert "bad.cmem" in done.err
    if kind == "newer":
        assert "99" in done.err and re.search(r"\b1\b", done.err)


@pytest.mark.parametrize("verb", READERS)
def test_truncated_trace(call: Run, trace: Path, tmp_path: Path, verb: str) -> None:
    whole = trace.read_bytes()
    path = tmp_path / "cut.cmem"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    done = call(verb, str(path), "--json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert document["complete"] is False
    assert document["state"] == "cut"
    text = call(verb, str(path))
    assert text.code == 0 and "the end of the recording is missing" in text.out


# -- usage ---------------------------------------------------------------------------------------------------------


def test_help_lists_the_verbs(run: Run, call: Run) -> None:
    done = run("-m", "cuptimem", "--help")
    assert done.code == 0
    for verb in VERBS:
        assert len(re.findall(rf"^  {verb} +\S", done.out, re.M)) == 1
        one = call(verb, "--help")
        assert one.code == 0 and one.out.startswith(f"usage: cuptimem {verb}")
    assert run("-m", "cuptimem", "--version").out == f"cuptimem {cuptimem.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "usage: cuptimem VERB"),
        (["sumary", "x"], "did you mean: cuptimem summary"),
        (["frobnicate"], "verbs: run, live, window, start, stop, summary"),
        (["summary"], "FILE"),
        (["summary", "x", "--frob"], "--frob"),
        (["peak", "x", "--at", "noon"], "invalid choice"),
        (["timeline", "x", "--json"], "--json"),
        (["table", "x", "--code", "a/b"], "is not the name of an installed package"),
        (["diff", "x"], "AFTER"),
        (["peak", "x", "--step", "two"], "invalid"),
        (["table", "x", "--sort", "colour"], "invalid choice"),
        (["run"], "nothing to run"),
        (["run", "-o"], "-o needs a value"),
        (["run", "-o", "x.cmem"], "nothing to run"),
        (["run", "--frob", "s.py"], "unknown option --frob"),
        (["run", "-m"], "-m needs a module"),
        (["run", "missing.py"], "there is no script 'missing.py'"),
        (["run", "--max-size", "many", "-c", "0"], "--max-size"),
    ],
)
def test_wrong_usage_exits_2(call: Run, arguments: list[str], said: str) -> None:
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "output", "program"),
    [
        (["-fo", "a.cmem", "s.py", "-o", "b"], "a.cmem", ["s.py", "-o", "b"]),
        (["-oa.cmem", "-mpdb", "-q"], "a.cmem", ["-m", "pdb", "-q"]),
        (["-fqm", "pdb"], None, ["-m", "pdb"]),
        (["--output=a.cmem", "--", "-s.py"], "a.cmem", ["-s.py"]),
        (["--output", "-", "-"], "-", ["-"]),
    ],
)
def test_options_end_where_the_program_begins(words: list[str], output: str | None, program: list[str]) -> None:
    options = run_verb.parser().parse_before_program(words)
    assert (options.output, options.program) == (output, program)


def test_a_script_or_a_trace_as_verb_is_understood(run: Run, tmp_path: Path, trace: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert "cuptimem run train.py" in run("-m", "cuptimem", "train.py").err
    assert f"cuptimem summary {trace}" in run("-m", "cuptimem", str(trace)).err


def test_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "tool")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "run.cmem").symlink_to("tool")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hints.about_script("tool").startswith("it is a command; ")
    assert not hints.is_trace(str(tmp_path / "run.cmem")) and hints.about(str(tmp_path / "run.cmem")) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record"], "did you mean: cuptimem run"),
        (["--frob"], "options stand behind a verb"),
        (["notes.txt"], "no trace and no script"),
        (["summary", "folder"], "name a trace"),
        (["summary", "script.py"], "cuptimem run script.py"),
        (["export", "--to", "csv", "script.py"], "cuptimem run script.py"),
        (["summary", "report.json"], "it seems to be JSON"),
        (["summary", "snap.pickle"], "is a pickle, but no memory snapshot of PyTorch's"),
        (["summary", "notes.txt"], "traces are called *.cmem"),
        (["summary", "rum.cmem"], "did you mean run.cmem?"),
        (["summary", "elsewhere.cmem"], "elsewhere.cmem: No such file or directory; record a program"),
        (["export", "run.cmem"], "cuptimem export: the following arguments are required: --to"),
        (["my script.py"], "cuptimem run 'my script.py'"),
        (["summary", "no/run.cmem"], "there is no folder no"),
        (["summary", "run.cmem", "b"], "'b' is one argument too many"),
        (["leaks", "run.cmem", "--fail-on-leaks"], "did you mean --fail-on-leak?"),
        (["peak", "run.cmem", "-n", "x"], "--top: invalid number: 'x'"),
        (["peak", "run.cmem", "--step", str(1 << 64)], f"--step: invalid number: '{1 << 64}'"),
        (["peak", "run.cmem", "-n", "²"], "--top: invalid number: '²'"),
        (["peak", "run.cmem", "-n", "9" * 5000], "--top: invalid number: '999"),
        (["ledger", "run.cmem", "--at", "1e30"], "--at takes peak, end, or seconds since the start, not '1e30'"),
        (["simulate", "--devices", "²", "script.py"], "--devices takes a number, not '²'"),
        (["export", "run.cmem", "--to", "memory-viz", "--newest", str(1 << 64)], "--newest: invalid number"),
        (["run", "skript.py"], "did you mean script.py?"),
        (["run", "python", "script.py"], "leave out the interpreter"),
        (["run", "sh"], "CUPTIMEM=1 CUPTIMEM_FOLLOW=1"),
        (["run", "tool"], "cuptimem run bin/tool"),
        (["run", "run.cmem"], "cuptimem summary run.cmem"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "said",
)
def test_what_to_do_next_is_on_the_errors_line(
    call: Run, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    files = {
        "notes.txt": "hello",
        "script.py": "",
        "my script.py": "",
        "report.json": "{}",
        "snap.pickle": "(dp0\n.",
        "bin/tool": "#!python",
    }
    (tmp_path / "folder").mkdir()
    (tmp_path / "bin").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    (tmp_path / "bin/tool").chmod(0o755)
    (tmp_path / "run.cmem").symlink_to(trace)
    (tmp_path / "my script.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"./bin:{os.environ['PATH']}")
    done = call(*words)
    assert done.code in (1, 2) and done.out == "" and one_line(done.err) and said in done.err, done.err


def test_a_file_that_may_not_be_read_has_no_other_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "run.cmem").write_text("")
    monkeypatch.setattr(hints, "_head", refuse)  # root may read everything
    assert hints.about(str(tmp_path / "run.cmem")) == ""


def test_help_of_a_verb_in_two_ways(call: Run) -> None:
    assert call("help", "peak") == call("peak", "--help")


def test_closed_pipe_is_quiet(python: str, trace: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [python, "-m", "cuptimem", "peak", str(trace), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        cwd=tmp_path,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=300) == 141


# -- run -----------------------------------------------------------------------------------------------------------


def traces(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.cmem"))


def test_closing_line(run: Run, tmp_path: Path) -> None:
    done = run("-m", "cuptimem", "run", "-o", "a.cmem", "-c", "print('x')")
    assert done.out == "x\n"
    pattern = r"cuptimem: wrote a\.cmem \([\d.]+ [KM]?i?B, \d+ events\); see: cuptimem summary a\.cmem\n"
    assert re.fullmatch(pattern, done.err), done.err
    quiet = run("-m", "cuptimem", "run", "-q", "-o", "b.cmem", "-c", "print('x')")
    assert (quiet.out, quiet.err) == ("x\n", "")
    moved = run("-m", "cuptimem", "run", "-o", "c.cmem", "-c", "import os; os.chdir('/')")
    assert moved.err.endswith("see: cuptimem summary c.cmem\n")  # typed where the program was started
    assert traces(tmp_path) == ["a.cmem", "b.cmem", "c.cmem"]


@pytest.mark.torch
def test_commands_to_type_are_words_of_a_shell(run: Run, call: Run, forked: Run, tmp_path: Path) -> None:
    name = "my run's träin.cmem"
    done = forked("-m", "cuptimem", "run", "-o", name, "-c", "import torch; x = torch.zeros(9)")
    command = done.err.splitlines()[0].partition("see: ")[2]
    assert shlex.split(command) == ["cuptimem", "summary", name]
    lines = call("summary", name).out.splitlines()
    assert shlex.split(lines[-1])[:4] == ["Next:", "cuptimem", "peak", name]
    assert shlex.split(lines[-1])[-3:] == ["cuptimem", "timeline", name]


def test_existing_file(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "a.cmem"
    target.write_text("precious")
    done = run("-m", "cuptimem", "run", "-o", "a.cmem", "-c", "print('x')")
    assert (done.code, done.out) == (1, "")  # the script did not run
    assert one_line(done.err) and "--force" in done.err
    assert target.read_text() == "precious"
    forced = run("-m", "cuptimem", "run", "--force", "-o", "a.cmem", "-c", "print('x')")
    assert forced.code == 0 and cuptimem.open(target).complete


@pytest.mark.parametrize("where", ["no/a.cmem", "."])
def test_impossible_output(run: Run, where: str) -> None:
    done = run("-m", "cuptimem", "run", "-o", where, "-c", "print('x')")
    assert (done.code, done.out) == (1, "") and one_line(done.err)


def test_default_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nopen(f'cuptimem-taken.{os.getpid()}.cmem', 'w').close()\nprint(os.getpid())\n"
    )
    pid = run("-m", "cuptimem", "run", "train.py").out.strip()
    assert f"cuptimem-train.{pid}.cmem" in traces(tmp_path)
    module = run("-m", "cuptimem", "run", "-m", "json.tool", "--help")
    assert "cuptimem-json.tool." in module.err
    code = run("-m", "cuptimem", "run", "-c", "import os; print(os.getpid())")
    assert f"cuptimem-c.{code.out.strip()}.cmem" in traces(tmp_path)


def test_default_name_that_exists_gets_a_number(run: Run, tmp_path: Path) -> None:
    """The same process number again, as in a container: nothing is overwritten."""
    program = (
        "import os, sys\npid = os.getpid()\nopen(f'cuptimem-s.{pid}.cmem', 'w').close()\n"
        "os.environ['CUPTIMEM'] = '1'\nos.execv(sys.executable, [sys.executable, 's.py'])\n"
    )
    (tmp_path / "s.py").write_text("import os; print(os.getpid())\n")
    done = run("-c", program)
    assert traces(tmp_path) == [f"cuptimem-s.{done.out.strip()}-2.cmem", f"cuptimem-s.{done.out.strip()}.cmem"]


def test_ranks(run: Run, tmp_path: Path) -> None:
    ranked = {"RANK": "3", "WORLD_SIZE": "4"}
    done = run("-m", "cuptimem", "run", "-c", "0", env=ranked)
    assert re.search(r"cuptimem-c\.rank3\.\d+\.cmem", done.err)
    wrong = run("-m", "cuptimem", "run", "-o", "a.cmem", "-c", "print('x')", env=ranked)
    assert (wrong.code, wrong.out) == (2, "") and "{rank}" in wrong.err
    assert run("-m", "cuptimem", "run", "-o", "a-{rank}.cmem", "-c", "0", env=ranked).code == 0
    pid = run("-m", "cuptimem", "run", "-o", "b-{pid}.cmem", "-c", "import os; print(os.getpid())", env=ranked).out
    assert {"a-3.cmem", f"b-{pid.strip()}.cmem"} <= set(traces(tmp_path))
    assert run("-m", "cuptimem", "run", "-o", "c.cmem", "-c", "0", env={"RANK": "0", "WORLD_SIZE": "1"}).code == 0


CHILDREN = """\
import multiprocessing, os, subprocess, sys
def f(): pass
if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", "0"], check=True)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=f)
        process.start()
        process.join()
        assert process.exitcode == 0
    print(sorted(name for name in os.environ if name.startswith("CUPTIMEM") and name != "CUPTIMEM_RING_DIR"))
"""


def test_children_only_when_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(CHILDREN)
    alone = run("-m", "cuptimem", "run", "-o", "alone.cmem", "s.py")
    assert (alone.code, alone.out) == (0, "[]\n")
    assert traces(tmp_path) == ["alone.cmem"]
    followed = run("-m", "cuptimem", "run", "--follow", "-o", "all.cmem", "s.py")
    assert followed.code == 0, followed.err
    said = followed.err.splitlines()
    assert len(said) == len(set(said)), said  # a .pth that Python reads twice starts one recording
    children = [name for name in traces(tmp_path) if re.fullmatch(r"all\.\d+\.cmem", name)]
    # The subprocess, the forked and the spawned child (and multiprocessing's resource tracker).
    assert "all.cmem" in traces(tmp_path) and len(children) >= 3
    for name in ("all.cmem", *children[:3]):
        assert cuptimem.open(tmp_path / name).state in ("complete", "recovered")


def test_environment_variable_alone(run: Run, tmp_path: Path) -> None:
    done = run("-c", "import os; print([n for n in os.environ if 'CUPTIMEM' in n])", env={"CUPTIMEM": "1"})
    assert done.out == "['CUPTIMEM_RING_DIR']\n"
    assert len(traces(tmp_path)) == 1
    for value in ("0", "", "false", "no", "off"):
        off = run("-c", "import sys; print('cuptimem' in sys.modules)", env={"CUPTIMEM": value})
        assert (off.out, off.err) == ("False\n" if not value else off.out, "")
    assert len(traces(tmp_path)) == 1


def test_autostart_that_cannot_record_lets_the_program_run(run: Run) -> None:
    done = run("-c", "print('x')", env={"CUPTIMEM": "1", "CUPTIMEM_OUTPUT": "no/such/folder/a.cmem"})
    assert (done.code, done.out) == (0, "x\n")
    assert one_line(done.err) and "not recording" in done.err


def test_interpreter_without_the_pth(python: str, run: Run, tmp_path: Path) -> None:
    no_site = run(
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(Path(cuptimem.__file__).parent.parent)!r})\n"
        "sys.argv = ['cuptimem', 'run', '-c', 'print(1)']\nfrom cuptimem.__main__ import main\nsys.exit(main())",
    )
    assert (no_site.code, no_site.out) == (1, "")
    assert one_line(no_site.err) and "-S" in no_site.err
    bare = tmp_path / "bare"
    subprocess.run([python, "-m", "venv", "--without-pip", bare], check=True, env=clean_environment())
    done = subprocess.run(
        [bare / "bin" / "python", "-m", "cuptimem", "run", "-c", "print(1)"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(Path(cuptimem.__file__).parent.parent)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr) and "install cuptimem again with this Python" in done.stderr


def test_killed_program_leaves_a_readable_trace(python: str, run: Run, call: Run, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [python, "-m", "cuptimem", "run", "-o", "a.cmem", "-c", "print('up', flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    alive: dict[str, Any] = json.loads(call("summary", "a.cmem", "--json").out)
    assert (alive["complete"], alive["state"]) == (False, "recording")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    time.sleep(0.01)
    dead = json.loads(call("summary", "a.cmem", "--json").out)
    assert (dead["complete"], dead["state"]) == (False, "recovered")
    assert "the program was killed" in call("summary", "a.cmem").out
