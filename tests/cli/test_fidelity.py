"""`cuptimem run` against bare Python: the same output, the same exit code, the same everything a script can see.

Each behaviour is a small program that is run both ways in the same folder; what cuptimem says itself (lines that begin
with "cuptimem: ") is taken out of standard error before comparing.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result, clean_environment

PACKAGE = {
    "pkg/__init__.py": "print('pkg', __name__)\n",
    "pkg/__main__.py": "import sys\nprint(__name__, __package__, __spec__.name, sys.argv[1:])\n",
    "pkg/mod.py": "import sys\nfrom . import __name__ as p\n"
    "print(__name__, p, __spec__.name, sys.argv[1:], sys.path[0] == '')\n",
}

# name: (arguments after python or `cuptimem run`, files, standard input)
TABLE: dict[str, tuple[list[str], dict[str, str], str]] = {
    "argv": (["s.py", "a", "-m", "--force", "-o", "x", "--", ""], {"s.py": "import sys; print(sys.argv)\n"}, ""),
    "names": (
        ["./s.py"],
        {
            "s.py": "print(__name__, __file__, __spec__, __package__, __cached__ if '__cached__' in globals() else 0)\n"
            "print(sorted(globals()), type(__loader__).__name__, __doc__, __builtins__.__name__)\n"
        },
        "",
    ),
    "sys.path": (["d/s.py"], {"d/s.py": "import sys, helper; print(sys.path[0], helper)\n", "d/helper.py": ""}, ""),
    "module": (["-m", "pkg.mod", "a", "-m"], PACKAGE, ""),
    "package": (["-m", "pkg", "-x"], PACKAGE, ""),
    "code": (["-c", "import sys; print(sys.argv, __name__, sys.path[0] == ''); 1/0", "-c", "b"], {}, ""),
    "standard input": (["-", "a"], {}, "import sys; print(sys.argv, __name__, sys.path[0])\n"),
    "folder": (["d"], {"d/__main__.py": "import sys; print(__name__, sys.path[0], sys.argv)\n"}, ""),
    "exit 3": (["s.py"], {"s.py": "import sys; print('x'); sys.exit(3)\n"}, ""),
    "exit none": (["s.py"], {"s.py": "raise SystemExit\n"}, ""),
    "exit text": (["s.py"], {"s.py": "raise SystemExit('bye')\n"}, ""),
    "exit tuple": (["s.py"], {"s.py": "raise SystemExit((1, 'a'))\n"}, ""),
    "exit large": (["s.py"], {"s.py": "raise SystemExit(300)\n"}, ""),
    "exit true": (["s.py"], {"s.py": "raise SystemExit(True)\n"}, ""),
    "exit in a thread": (["s.py"], {"s.py": "import threading as t\nt.Thread(target=exit, args=(4,)).start()\n"}, ""),
    "traceback": (["s.py"], {"s.py": "def f(x):\n    return g(x) + 1\ndef g(x):\n    return 1 / x\nf(0)\n"}, ""),
    "chained": (["s.py"], {"s.py": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n"}, ""),
    "group": (["s.py"], {"s.py": "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"}, ""),
    "syntax error": (["s.py"], {"s.py": "def f(:\n"}, ""),
    "module traceback": (["-m", "pkg.bad"], {**PACKAGE, "pkg/bad.py": "raise RuntimeError('bad')\n"}, ""),
    "excepthook": (["s.py"], {"s.py": "import sys\nsys.excepthook = lambda *a: print('mine', a[1])\n1/0\n"}, ""),
    "atexit order": (
        ["s.py"],
        {
            "s.py": "import atexit, sys\n"
            "for i in range(3):\n    atexit.register(print, 'exit', i, flush=True)\n"
            "class A:\n    def __del__(self): print('del')\n"
            "a = A()\natexit.register(lambda: 1/0)\nprint('end')\nsys.exit(5)\n"
        },
        "",
    ),
    "os._exit": (["s.py"], {"s.py": "import os, sys\nprint('a'); sys.stdout.flush(); os._exit(7)\n"}, ""),
    "exec": (
        ["s.py"],
        {
            "s.py": "import os, sys\nprint('a', flush=True)\n"
            "new = 'import os; print(sorted(k for k in os.environ if \"CUP\" in k)); exit(9)'\n"
            "os.execv(sys.executable, [sys.executable, '-c', new])\n"
        },
        "",
    ),
    "spawn": (
        ["s.py"],
        {
            "s.py": "import multiprocessing as m, os\n"
            "def f(x): return x * x, sorted(k for k in os.environ if 'CUPTI' in k), __name__\n"
            "if __name__ == '__main__':\n"
            "    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1, 2]))\n"
        },
        "",
    ),
    "fork": (
        ["s.py"],
        {
            "s.py": "import multiprocessing as m, warnings\nwarnings.simplefilter('always')\n"
            "def f(q): q.put('child')\n"
            "c = m.get_context('fork'); q = c.SimpleQueue()\n"
            "for _ in range(3):\n    p = c.Process(target=f, args=(q,)); p.start()\n"
            "    print(q.get()); p.join(); print(p.exitcode)\n"
        },
        "",
    ),
    "bare fork": (
        ["-W", "always", "s.py"],
        {
            "s.py": "import os, logging, sys\n"
            "for i in range(4):\n    pid = os.fork()\n    if pid == 0: sys.exit(i)\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
        },
        "",
    ),
    "fork with preexec_fn": (
        ["-W", "always", "s.py"],
        {"s.py": "import subprocess as s\nprint(s.run(['true'], preexec_fn=int).returncode)\n"},
        "",
    ),
    "pickled __main__ class": (
        ["s.py"],
        {
            "s.py": "import pickle\nclass A:\n    x = 1\n"
            "b = pickle.dumps(A())\nprint(b)\nprint(type(pickle.loads(b)) is A, A.__module__)\n"
        },
        "",
    ),
    "breakpoint": (["s.py"], {"s.py": "x = 41\nbreakpoint()\nprint(x)\n"}, "p x + 1\nx = 5\nwhere\nc\n"),
    "input": (["s.py"], {"s.py": "print(input('? ')); print(input())\n"}, "a\n"),
    "warnings": (["-W", "error", "s.py"], {"s.py": "import warnings\nwarnings.warn('old', DeprecationWarning)\n"}, ""),
    "flags": (
        ["-X", "dev", "-O", "-u", "-B", "s.py"],
        {"s.py": "import sys\nassert 0\nprint(sys.flags, sys._xoptions, sys.warnoptions, sys.stdout.write_through)\n"},
        "",
    ),
    "threads alive at the end": (
        ["s.py"],
        {
            "s.py": "import threading, time\n"
            "threading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()\nprint('main')\n"
        },
        "",
    ),
    "daemon threads": (
        ["s.py"],
        {
            "s.py": "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(threading.active_count())\n"
        },
        "",
    ),
    "closed output": (["s.py"], {"s.py": "import sys\nprint('a')\nsys.stdout.close()\n"}, ""),
    "closed errors": (["s.py"], {"s.py": "import sys\nprint('a')\nsys.stderr.close()\n"}, ""),
    "much output": (["s.py"], {"s.py": "for i in range(200_000): print(i, 'x' * 10)\n"}, ""),
    "environment": (
        ["s.py"],
        {"s.py": "import os\nprint(sorted(os.environ.items()))\nprint(os.getcwd(), os.getppid() > 1)\n"},
        "",
    ),
    "modules": (
        ["s.py"],
        {
            "s.py": "import sys\nseen = {m for m in sys.modules if not m.startswith('cuptimem')}\n"
            "print(sorted(seen - set(sys.builtin_module_names)))\n"
        },
        "",
    ),
    "shadowed standard modules": (
        ["s.py"],
        {"s.py": "import random, json\nprint(random.x, json.x)\n", "random.py": "x = 1\n", "json.py": "x = 2\n"},
        "",
    ),
    "hooks of the interpreter": (
        ["s.py"],
        {
            "s.py": "import gc, signal, sys, threading\n"
            # Of the collector we are told by a function in its list; nothing else is there.
            "others = [c for c in gc.callbacks if c.__module__ != 'cuptimem._core']\n"
            "print(sys.gettrace(), sys.getprofile(), len(sys.path_hooks), others, gc.get_threshold())\n"
            "print([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)])\n"
            "print(threading.enumerate(), sys.getrecursionlimit(), sys.getswitchinterval())\n"
        },
        "",
    ),
    "signal of its own": (
        ["s.py"],
        {"s.py": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('not reached')\n"},
        "",
    ),
    "handled signal": (
        ["s.py"],
        {
            "s.py": "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(6))\n"
            "signal.alarm(5)\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()\n"
        },
        "",
    ),
    "recursion": (["s.py"], {"s.py": "def f(n): return f(n + 1)\nf(0)\n"}, ""),
}

ADDRESS = re.compile(r"0x[0-9a-f]+|pid=\d+|Thread-\d+|started \d+|/tmp/tmp\w+|__mp_main__ \d+")


def _own_lines_removed(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("cuptimem: "))


def both(run: Callable[..., Result], folder: Path, arguments: list[str], stdin: str = "") -> tuple[Result, Result]:
    """Bare, then under cuptimem. Interpreter flags stand before -m cuptimem as they stand before the script."""
    flags: list[str] = []
    program = list(arguments)
    while program[0] in ("-W", "-X", "-O", "-u", "-B"):
        flags.append(program.pop(0))
        if flags[-1] in ("-W", "-X"):
            flags.append(program.pop(0))
    results = []
    for before in ([], ["-m", "cuptimem", "run", "-o", str(folder / "out.cmem")]):
        done = run(*flags, *before, *program, stdin=stdin, cwd=folder / "work")
        results.append(Result(done.code, ADDRESS.sub("#", done.out), ADDRESS.sub("#", _own_lines_removed(done.err))))
    return results[0], results[1]


@pytest.mark.parametrize("name", TABLE)
def test_same_as_bare_python(name: str, run: Callable[..., Result], tmp_path: Path) -> None:
    arguments, files, stdin = TABLE[name]
    (tmp_path / "work").mkdir()
    for path, text in files.items():
        target = tmp_path / "work" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    bare, ours = both(run, tmp_path, arguments, stdin)
    assert ours.out == bare.out
    assert ours.err == bare.err
    assert ours.code == bare.code
    if name not in ("syntax error",):
        assert (tmp_path / "out.cmem").stat().st_size > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_same_death_by_signal(number: signal.Signals, python: str, tmp_path: Path) -> None:
    """From outside, in a blocking call: the collector's thread must not swallow what the main thread waits for."""
    (tmp_path / "s.py").write_text(
        "import atexit, time\natexit.register(print, 'atexit', flush=True)\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\nfinally:\n    print('finally', flush=True)\n"
    )
    seen = []
    for before in ([], ["-m", "cuptimem", "run", "-o", "out.cmem"]):
        process = subprocess.Popen(
            [python, *before, "s.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=clean_environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        seen.append((process.returncode, out, _own_lines_removed(err)))
    assert seen[0] == seen[1]
    assert seen[0][0] == -number


def test_installed_command(python: str, tmp_path: Path) -> None:
    """The `cuptimem` script does as `python -m cuptimem` does."""
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv, sys.flags.isolated)\n")
    (tmp_path / "cuptimem").write_text(
        f"#!{python} -I\nimport sys\nfrom cuptimem.__main__ import main\nsys.exit(main())\n"
    )
    os.chmod(tmp_path / "cuptimem", 0o755)
    done = subprocess.run(
        [tmp_path / "cuptimem", "run", "-q", "-o", "out.cmem", "s.py", "a"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['s.py', 'a'] 0\n", "")
    assert (tmp_path / "out.cmem").exists()


def test_terminal_is_the_scripts(python: str, tmp_path: Path) -> None:
    """On a terminal the script has a terminal."""
    import pty

    (tmp_path / "s.py").write_text("import os, sys\nprint(sys.stdin.isatty(), sys.stdout.isatty(), os.isatty(2))\n")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [python, "-m", "cuptimem", "run", "-q", "-o", "out.cmem", "s.py"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=tmp_path,
        env=clean_environment(),
        close_fds=True,
    )
    os.close(follower)
    assert process.wait(timeout=60) == 0
    assert os.read(leader, 1000).decode().strip() == "True True True"
    os.close(leader)


def test_this_is_a_real_comparison(run: Callable[..., Result], tmp_path: Path) -> None:
    """The comparison would notice: a script that looks for cuptimem finds it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "s.py").write_text("import sys\nprint('cuptimem.recorder' in sys.modules)\n")
    bare, ours = both(run, tmp_path, ["s.py"])
    assert (bare.out, ours.out) == ("False\n", "True\n")
