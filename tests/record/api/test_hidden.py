"""Calls that leave no trace: what profilers, tracers and tracebacks show of a program with cuptimem in it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cuptimem import _core
from tests.conftest import ROOT, clean_environment

OURS = str(ROOT / "cuptimem")


def outside(tmp_path: Path, program: str) -> str:
    """What a program prints, in a process of its own that finds cuptimem."""
    script = tmp_path / "program.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nOURS = {OURS!r}\n" + textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=clean_environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What happens by itself while a program runs: watched imports, forks, a collection, the call once a second, exit.
EVENTFUL = """
import os, subprocess, time, cuptimem
prof = cuptimem.profile("a.cmem")
prof.start()
{before}
try:
    import torch
except ImportError:
    pass
if os.fork() == 0: os._exit(0)
os.wait()
subprocess.run(["true"])
end = time.monotonic() + 2.5
while time.monotonic() < end: time.sleep(0.01)
{after}
"""


@pytest.mark.parametrize("how", ["sys.setprofile", "sys.settrace"])
def test_watching_python_shows_nothing_of_ours(tmp_path: Path, how: str) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not the real one')\n")
    before = f"seen = set()\ndef see(f, e, a): seen.add(f.f_code.co_filename); return see\n{how}(see)"
    after = f"{how}(None)\nprint(sorted(s for s in seen if s.startswith(OURS)), __file__ in seen or len(seen))"
    shown, rest = outside(tmp_path, EVENTFUL.format(before=before, after=after)).split("] ")
    assert shown == "[" and rest != "0\n"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is 3.12+")
def test_monitoring_shows_nothing_of_ours(tmp_path: Path) -> None:
    before = """
seen = set()
m = sys.monitoring
m.use_tool_id(3, "test")
m.register_callback(3, m.events.PY_START, lambda code, at: seen.add(code.co_filename))
m.set_events(3, m.events.PY_START)
"""
    after = "m.set_events(3, 0)\nprint(sorted(s for s in seen if s.startswith(OURS)), len(seen) > 0)"
    assert outside(tmp_path, EVENTFUL.format(before=before, after=after)) == "[] True\n"


def test_cprofile_shows_nothing_of_ours(tmp_path: Path) -> None:
    before = "import cProfile\np = cProfile.Profile()\np.enable()"
    after = "p.disable()\nprint([r.code for r in p.getstats() if OURS + '/' in str(r.code)])"
    assert outside(tmp_path, EVENTFUL.format(before=before, after=after)) == "[]\n"


def test_an_import_that_fails_has_the_traceback_of_bare_python(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("from torch import missing\n")
    (tmp_path / "torch/missing.py").write_text("import nowhere\n")
    program = """
        import traceback
        if MODE:
            import cuptimem
            prof = cuptimem.profile("a.cmem"); prof.start()
        for _ in range(2):
            try: import torch
            except ImportError as error:
                print([(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)])
    """
    bare, ours = (outside(tmp_path, program.replace("MODE", mode)) for mode in ("False", "True"))
    assert bare == ours and bare.count("missing.py") == 2


def test_arguments_results_and_errors_pass_through() -> None:
    calls: list[object] = []
    around = _core.hidden(lambda *a: calls.append(a), lambda *a, **k: (a, k), lambda *a: calls.append(a))
    assert around(1, 2, x=3) == ((1, 2), {"x": 3}) and calls == [(1, 2), (1, 2)]
    assert _core.hidden(lambda a: a * 2)(21) == 42
    with pytest.raises(ZeroDivisionError) as caught:
        _core.hidden(lambda: 1 / 0)()
    assert [entry.name for entry in caught.traceback][-1] == "<lambda>"  # not a frame of cuptimem's: it stays
    calls.clear()
    with pytest.raises(ZeroDivisionError):
        _core.hidden(lambda: calls.append("before"), lambda: 1 / 0, lambda: calls.append("after"))()
    assert calls == ["before"]
    for wrong in ((), (1,), (len, len, len, len)):
        with pytest.raises(TypeError):
            _core.hidden(*wrong)  # type: ignore[arg-type]


def test_tracing_is_suspended_and_comes_back() -> None:
    seen: list[str] = []

    def watched() -> None:
        pass

    def work() -> str:
        watched()
        _core.shown(watched)
        return "done"

    hidden, before = _core.hidden(work), sys.getprofile()
    sys.setprofile(lambda frame, event, argument: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        assert hidden() == "done"
        watched()
    finally:
        sys.setprofile(before)
    assert seen.count("work") == 0 and seen.count("watched") == 2  # the shown one and the plain one


@pytest.mark.parametrize(
    "handler",
    [
        "def handler(number, frame): raise TimeoutError('deadline')",
        "class H:\n    def __call__(self, *_): raise TimeoutError('deadline')\nhandler = H()",
        "import functools\ndef r(what, *_): raise what\nhandler = functools.partial(r, TimeoutError('deadline'))",
    ],
    ids=["function", "callable", "partial"],
)
@pytest.mark.parametrize("where", ["once a second", "import"])
def test_what_a_signals_handler_raises_reaches_the_program(tmp_path: Path, handler: str, where: str) -> None:
    """Python calls it in the middle of our code."""
    shown = outside(
        tmp_path,
        f"""
import os, signal, sys, time
from cuptimem import _core as core
{handler}
signal.signal(signal.SIGUSR1, handler)
def ours(*_): os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0)
caught, end = "", time.monotonic() + 60
try:
    if {where == "import"}:
        from cuptimem.record.late_import import ImportWatch
        open("later.py", "w").close()
        sys.path.insert(0, ".")
        failed = []
        watch = ImportWatch({{"later": ours}}, lambda name, error: failed.append(repr(error)))
        watch.start()
        import later
    else:
        core.capture_start("t.cmem", {{}})
        core.sources_install()
        core.main_thread_call(ours)
        while time.monotonic() < end: time.sleep(0.001)
except TimeoutError as error:
    caught = str(error)
core.main_thread_call(None)
print(caught)
""",
    )
    assert shown == "deadline\n"


def test_a_frame_of_ours_is_cut_from_a_traceback(tmp_path: Path) -> None:
    """A signal's handler that raises while a call of ours runs: the traceback begins with the handler."""
    code = compile("def ours():\n    theirs()\n", f"{OURS}/made_up.py", "exec")
    names: dict[str, object] = {"theirs": lambda: 1 / 0}
    exec(code, names)
    with pytest.raises(ZeroDivisionError) as caught:
        _core.hidden(names["ours"])()  # type: ignore[arg-type]
    assert [entry.path.name if hasattr(entry.path, "name") else str(entry.path) for entry in caught.traceback] == [
        "test_hidden.py",
        "test_hidden.py",
    ]


def test_watched_functions_stay_what_they_are(tmp_path: Path) -> None:
    program = """
        import os, inspect, _posixsubprocess
        functions = [os.fork, os.execv, os.execve, _posixsubprocess.fork_exec]
        def look():
            return [(hash(f), repr(f), f.__doc__, f.__text_signature__, f.__reduce__(), f == g)
                    for f, g in zip(functions, kept)]
        kept = list(functions)
        before = look()
        import cuptimem
        with cuptimem.profile("a.cmem"):
            inside = look()
            pid = os.fork.__call__()
            if pid == 0: os._exit(3)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            try: os.execv("/nowhere", ["x"])
            except FileNotFoundError as error: code = code, error.errno
            try: os.execve(path="/nowhere", argv=["x"], env={})
            except FileNotFoundError: pass
            try: os.execv(1)
            except TypeError as error: wrong = str(error)
        try: os.execv(1)
        except TypeError as error: assert str(error) == wrong
        print(before == inside == look(), code, wrong)
    """
    expected = "True (3, 2) execv expected 2 arguments, got 1\n"
    assert outside(tmp_path, program) == expected
