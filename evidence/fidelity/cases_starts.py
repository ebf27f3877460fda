"""How a program starts: scripts, modules, code, standard input, interpreter flags, environment."""

from evidence.fidelity.case import Case, program

PACKAGE = {
    "pkg/__init__.py": "print('pkg', __name__)\n",
    "pkg/__main__.py": "import sys\nprint(__name__, __package__, __spec__.name, sys.argv[1:])\n",
    "pkg/mod.py": "import sys\nfrom . import __name__ as p\n"
    "print(__name__, p, __spec__.name, sys.argv[1:], sys.path[0] == '')\n",
    "pkg/bad.py": "raise RuntimeError('bad')\n",
}
# What a line editor sends to a terminal, and the echo of what is typed, which may come before or after the prompt.
TERMINAL = ((r"\x1b\[[?0-9;]*[a-zA-Z]|\x1b[=>]", ""),)
SEE = """
import os, sys
print(str(sys.flags).replace(', ', '\\n'))
print(sorted(sys._xoptions.items()))
print(sys.warnoptions)
print(sys.argv, sys.path[0], sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.orig_argv[1:])
print(sys.stdin.encoding, sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through, sys.stdout.line_buffering)
print(sorted(k for k in os.environ if k.startswith(('PY', 'LC'))))
"""


def flags(text: str, **more: object) -> Case:
    """A program that shows what it can of its interpreter's flags."""
    return program(f"python {text}", SEE, command=f"python {text} @ s.py a -b", **more)


def variable(name: str, value: str, **more: object) -> Case:
    """The same under a variable of the interpreter's."""
    return program(f"{name}={value}", SEE, environment={name: value}, **more)


CASES = [
    program(
        "argv", "import sys; print(sys.argv)", command="python @ s.py a -m --force -o x -- '' -h --follow", fixed=True
    ),
    program(
        "names",
        """
        print(__name__, __file__, __spec__, __package__, __cached__ if '__cached__' in globals() else 0)
        print(sorted(globals()), type(__loader__).__name__, __doc__, __builtins__.__name__)
        """,
        command="python @ ./s.py",
        fixed=True,
    ),
    Case(
        "sys.path",
        {"d/s.py": "import sys, helper; print(sys.path[0], helper)\n", "d/helper.py": ""},
        "python @ d/s.py",
        fixed=True,
    ),
    program(
        "the whole of sys.path",
        """
        import sys
        print(sys.path)
        """,
    ),
    Case("module", PACKAGE, "python @ -m pkg.mod a -m", fixed=True),
    Case("package", PACKAGE, "python @ -m pkg -x", fixed=True),
    Case("module traceback", PACKAGE, "python @ -m pkg.bad", code=1, shows="bad", fixed=True),
    Case("module that is not there", {}, "python @ -m not_there", code=1, shows="No module named", traces=0),
    Case(
        "package without a main", {"p/__init__.py": ""}, "python @ -m p", code=1, shows="cannot be directly", traces=0
    ),
    Case(
        "code",
        {},
        """python @ -c "import sys; print(sys.argv, __name__, sys.path[0] == ''); 1/0" -c b""",
        code=1,
        shows="ZeroDivisionError",
        fixed=True,
    ),
    Case("code of two lines", {}, "python @ -c 'def f():\n  return 1\nprint(f())'"),
    Case(
        "program on standard input",
        {},
        "python @ - a",
        stdin="import sys; print(sys.argv, __name__, sys.path[0])\n",
        fixed=True,
    ),
    Case("program on standard input that fails", {}, "python @ -", stdin="def f(): 1/0\nf()\n", code=1, shows="line 1"),
    program(
        "program by a file of a descriptor",
        """
        print(__file__)
        1/0
        """,
        command="python @ /dev/fd/7 7<s.py",
        shell=True,
        code=1,
    ),
    Case("folder", {"d/__main__.py": "import sys; print(__name__, sys.path[0], sys.argv)\n"}, "python @ d", fixed=True),
    program(
        "zip file",
        """
        import sys, zipfile
        with zipfile.ZipFile('a.zip', 'w') as z:
            z.writestr('__main__.py', 'import sys, m\\nprint(__file__, sys.path[0], sys.argv)\\nm.f()')
            z.writestr('m.py', 'def f(): 1/0')
        """,
        command="python s.py && exec python @ a.zip x",
        shell=True,
        code=1,
        shows="a.zip",
        fixed=True,
    ),
    program(
        "zipapp",
        "print('in an app', __file__)",
        files={
            "app/__main__.py": """
                import sys
                print('app', sys.argv)
                sys.exit(3)
                """
        },
        command="python -m zipapp app -o app.pyz && exec python @ app.pyz -x",
        shell=True,
        code=3,
        shows="app.pyz",
    ),
    program(
        "compiled file",
        """
        import sys
        print(__file__, sys.argv)
        def f(): 1/0
        f()
        """,
        command='python -c \'import py_compile; py_compile.compile("s.py", "t.pyc")\' && exec python @ t.pyc a',
        shell=True,
        code=1,
        shows="t.pyc",
    ),
    program(
        "link",
        """
        import sys
        print(__file__, sys.path[0])
        """,
        command="mkdir d; ln -s ../s.py d/l; exec python @ d/l",
        shell=True,
    ),
    program(
        "script's absolute path",
        """
        import sys
        print(__file__)
        """,
        command="python @ {work}/s.py",
    ),
    Case("script with spaces", {"a b/s t.py": "print(__file__)\n1/0"}, "python @ 'a b/s t.py' 'c d'", code=1),
    Case("script with another suffix", {"train": "print(__file__, __name__)"}, "python @ train"),
    Case("script with a mark of its encoding", {"s.py": "# -*- coding: latin-1 -*-\nprint('\\xe4')\n1/0"}, code=1),
    Case("script with dashes", {"-s.py": "import sys\nprint(sys.argv)"}, "python @ ./-s.py"),
    Case("script named like a module", {"random.py": "import sys\nprint(__name__, sys.path[0])"}, "python @ random.py"),
    program(
        "script's name is not text",
        "print(ascii(__file__))",
        command="cp s.py $(printf 's\\377.py'); exec python @ $(printf 's\\377.py')",
        shell=True,
    ),
    program(
        "arguments that are not text",
        """
        import sys
        print(ascii(sys.argv))
        """,
        command="exec python @ s.py $(printf 'a\\377')",
        shell=True,
        shows="udcff",
    ),
    program(
        "runpy.run_path",
        """
        import runpy
        print(runpy.run_path('o.py')['x'])
        """,
        files={"o.py": "x = __name__"},
    ),
    program(
        "runpy.run_module",
        """
        import runpy
        runpy.run_module('pkg', run_name='__main__')
        """,
        files=PACKAGE,
    ),
    program(
        "runpy that alters sys",
        """
        import runpy, sys
        sys.argv = ['x', 'y']
        runpy.run_module('pkg.mod', run_name='__main__', alter_sys=True)
        print(sys.argv)
        """,
        files=PACKAGE,
    ),
    program("exec of a source", "exec(compile('def f(): 1/0\\nf()', 'a name', 'exec'))", code=1, shows="a name"),
    program(
        "code.interact",
        """
        import code
        code.interact(local={'x': 4})
        """,
        stdin="x + 1\n1/0\n",
        shows="5",
    ),
    program(
        "site imported again",
        """
        import site
        site.main()
        print('on')
        """,
    ),
    program(
        "another Python of its own",
        """
        import subprocess, sys
        see = 'import sys, os; print([n for n in (*sys.modules, *os.environ) if "cuptimem" in n.lower()])'
        print(subprocess.run([sys.executable, '-c', see], capture_output=True, text=True))
        """,
        fixed=True,
    ),
    program(
        "breakpoint",
        """
        x = 41
        breakpoint()
        print(x)
        """,
        stdin="p x + 1\nx = 5\nwhere\nc\n",
        shows="42",
        fixed=True,
    ),
    program("input", "print(input('? ')); print(input())", stdin="a\n", code=1, shows="EOFError", fixed=True),
    program(
        "pickled __main__ class",
        """
        import pickle
        class A:
            x = 1
        b = pickle.dumps(A())
        print(b)
        print(type(pickle.loads(b)) is A, A.__module__)
        """,
        fixed=True,
    ),
    program(
        "environment",
        """
        import os
        print(sorted(os.environ.items()))
        print(os.getcwd(), os.getppid() > 1)
        """,
        fixed=True,
    ),
    program(
        "environment of a child",
        """
        import subprocess
        subprocess.run(['env'])
        """,
        command="python @ s.py",
        fixed=True,
    ),
    program(
        "environment as the kernel has it",
        "print(sorted(x.split('=')[0] for x in open('/proc/self/environ').read().split('\\0') if x))",
        known="the settings come in variables: the kernel's copy of them cannot be changed",
    ),
    program("command line as the kernel has it", "print(open('/proc/self/cmdline').read().split('\\0')[1:])"),
    program(
        "names of the process",
        """
        import sys
        print(sys.orig_argv, open('/proc/self/comm').read(), sys.executable, sys.prefix)
        """,
    ),
    program(
        "modules",
        """
        import sys
        seen = {m for m in sys.modules if not m.startswith('cuptimem')}
        print(sorted(seen - set(sys.builtin_module_names)))
        """,
        fixed=True,
    ),
    program(
        "modules that are built in",
        "import sys\nprint(sorted(set(sys.builtin_module_names) & set(sys.modules)))",
        known="atexit and gc are imported at the start",
    ),
    program(
        "shadowed standard modules",
        """
        import random, json
        print(random.x, json.x)
        """,
        files={"random.py": "x = 1", "json.py": "x = 2"},
        fixed=True,
    ),
    *(
        program(
            f"shadowed {name}",
            "print('script')",
            files={f"{name}.py": f"print('this is not the standard {name}')"},
            known="`python -m` itself imports contextlib from the current folder; the installed command does not"
            if name == "contextlib"
            else "",
        )
        for name in ("subprocess", "contextlib", "weakref", "typing", "rich", "torch", "errors", "struct")
    ),
    Case("script named as an option", {"-x.py": "print(__file__)"}, "python @ -- -x.py", shows="-x.py", fixed=True),
    program("folder named cuptimem", "print('script')", files={"cuptimem/readme.txt": "data of the user"}),
    program(
        "hooks of the interpreter",
        """
        import gc, signal, sys, threading
        # A function in gc's list reports collections to us; nothing else is there.
        others = [c for c in gc.callbacks if c.__module__ != 'cuptimem._core']
        print(sys.gettrace(), sys.getprofile(), len(sys.path_hooks), others, gc.get_threshold())
        print([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)])
        print(threading.enumerate(), sys.getrecursionlimit(), sys.getswitchinterval())
        """,
        fixed=True,
    ),
    program(
        "finders",
        """
        import sys
        print(sys.meta_path, sys.path_hooks, sorted(sys.path_importer_cache)[:0])
        """,
        known="a finder waits for torch, and goes when it has come",
    ),
    program(
        "warnings' filters",
        """
        import warnings
        print(warnings.filters)
        """,
    ),
    program(
        "locale",
        """
        import locale, sys
        print(locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding())
        """,
    ),
    program(
        "first descriptor",
        """
        import os
        print(os.open('s.py', 0), os.dup(0), os.pipe())
        """,
    ),
    program(
        "descriptors that a child has",
        """
        import os, subprocess
        print(subprocess.run(['ls', '/proc/self/fd'], close_fds=False, capture_output=True).stdout)
        """,
    ),
    program(
        "limits",
        """
        import resource
        print([resource.getrlimit(n) for n in range(16)])
        """,
    ),
    program(
        "terminal",
        """
        import os, sys
        print(sys.stdin.isatty(), sys.stdout.isatty(), os.isatty(2), os.get_terminal_size())
        """,
        terminal=True,
        shows="True True True",
        fixed=True,
    ),
    program(
        "traceback on a terminal",
        "1/0",
        terminal=True,
        code=1,
        shows="ZeroDivisionError",
        environment={"NO_COLOR": "", "TERM": "xterm"},
    ),
    # Flags.
    flags("-X dev", fixed=True),
    flags("-Xdev"),
    flags("-X utf8=0", environment={"LC_ALL": "C"}),
    flags("-X utf8"),
    flags("-X faulthandler"),
    flags("-X tracemalloc=5"),
    flags("-X frozen_modules=off"),
    flags("-X no_debug_ranges"),
    flags("-X int_max_str_digits=5000"),
    flags("-X pycache_prefix={work}/../pre"),
    flags("-X warn_default_encoding"),
    flags("-X anything -X other=3", fixed=True),
    flags("-X perf", needs=("3.12+",)),
    flags("-X cpu_count=3", needs=("3.13+",)),
    flags("-W error"),
    flags("-W error::DeprecationWarning -W ignore::UserWarning"),
    flags("-Wd"),
    flags("-u"),
    flags("-O"),
    flags("-OO"),
    flags("-B"),
    flags("-d"),
    flags("-q"),
    flags("-b"),
    flags("-bb"),
    flags("-R"),
    flags("-s"),
    flags("-P"),
    flags("-E", fixed=True),
    flags("-I", fixed=True),
    flags("-S", known="python -S leaves site-packages out, and with it cuptimem"),
    flags("-sBu"),
    flags("-O -u -B -X dev -W error -s", fixed=True),
    flags("-i", stdin="print(1 + 1)\nprint(sys.flags.interactive)\n", shows="2"),
    flags("--check-hash-based-pycs always"),
    program(
        "python -x",
        """
        this line is not Python
        print(__file__)
        """,
        command="python -x @ s.py",
    ),
    program(
        "python -i after a failure",
        """
        x = 3
        1/0
        """,
        command="python -i @ s.py",
        stdin="x + 4\n",
        shows="7",
    ),
    Case("python -i -c", {}, "python -i @ -c 'x = 5'", stdin="x + 4\n", shows="9"),
    Case(
        "python -i on a terminal",
        {"s.py": "x = 5\n"},
        "python -i @ s.py",
        stdin="x + 4\nexit()\n",
        terminal=True,
        shows="9",
        normal=TERMINAL,
    ),
    program("python -I -c", "", command="python -I @ -c 'import sys; print(sys.path[0], sys.flags)'"),
    Case("python -P -m", PACKAGE, "python -P @ -m pkg.mod", code=1, shows="No module named", traces=0),
    Case(
        "python -E with variables",
        {"s.py": SEE},
        "python -E @ s.py",
        environment={"PYTHONUTF8": "0", "PYTHONOPTIMIZE": "2"},
    ),
    Case("python -O -m", {"m.py": SEE}, "python -O @ -m m a"),
    program("python -v", "print('on')", command="python -v @ s.py 2>/dev/null", shell=True, shows="on"),
    program("python -X importtime", "print('on')", command="python -X importtime @ s.py 2>/dev/null", shell=True),
    program(
        "-I without us",
        SEE,
        command="python -I @ s.py",
        by_environment=True,
        traces=0,
        fixed=True,
    ),
    program("-E without us", SEE, command="python -E @ s.py", by_environment=True, traces=0),
    program("-S without us", SEE, command="python -S @ s.py", by_environment=True, traces=0),
    program("CUPTIMEM=1", SEE, by_environment=True, fixed=True),
    program(
        "CUPTIMEM=1 and a child with -I",
        """
        import subprocess, sys
        print(subprocess.run([sys.executable, '-I', '-c', 'print(1)'], capture_output=True))
        """,
        by_environment=True,
        environment={"CUPTIMEM_FOLLOW": "1"},
        normal=((r"'CUPTIMEM_\w+'", ""),),
    ),
    # Variables.
    variable("PYTHONDEVMODE", "1"),
    variable("PYTHONHASHSEED", "0"),
    program("PYTHONHASHSEED's order", "print(hash('a'), set('abcdef'))", environment={"PYTHONHASHSEED": "7"}),
    variable("PYTHONUNBUFFERED", "1"),
    variable("PYTHONWARNINGS", "error", fixed=True),
    variable("PYTHONWARNINGS", "default"),
    variable("PYTHONOPTIMIZE", "1"),
    variable("PYTHONNOUSERSITE", "1"),
    variable("PYTHONUTF8", "1"),
    variable("PYTHONIOENCODING", "latin-1:replace"),
    variable("PYTHONTRACEMALLOC", "3"),
    variable("PYTHONFAULTHANDLER", "1"),
    variable("PYTHONMALLOC", "debug"),
    variable("PYTHONMALLOC", "malloc"),
    variable("PYTHONASYNCIODEBUG", "1"),
    variable("PYTHONSAFEPATH", "1"),
    variable("PYTHONPYCACHEPREFIX", "{work}/../pre"),
    variable("PYTHONBREAKPOINT", "0"),
    variable("PYTHONCOERCECLOCALE", "warn"),
    variable("PYTHONNODEBUGRANGES", "1"),
    variable("PYTHONDONTWRITEBYTECODE", "1", fixed=True),
    variable("LC_ALL", "C"),
    variable("LANG", "C"),
    program(
        "PYTHONINSPECT",
        "x = 5",
        environment={"PYTHONINSPECT": "1"},
        stdin="x + 4\nexit()\n",
        terminal=True,
        shows="9",
        normal=TERMINAL,
    ),
    program("PYTHONSTARTUP", "print(1)", files={"u.py": "print('startup')"}, environment={"PYTHONSTARTUP": "u.py"}),
    program(
        "PYTHONPATH",
        """
        import h, sys
        print(h.x, sys.path[:2])
        """,
        files={"lib/h.py": "x = 1"},
        environment={"PYTHONPATH": "lib"},
    ),
    program(
        "PYTHONPATH with a sitecustomize",
        """
        import sys
        print('script', 'sitecustomize' in sys.modules)
        """,
        files={
            "lib/sitecustomize.py": """
                import atexit
                atexit.register(print, 'end of site')
                print('site', __name__)
                """
        },
        environment={"PYTHONPATH": "lib"},
        normal=(("^site sitecustomize\n(?=site sitecustomize\n)", ""),),
    ),
    program(
        "the current folder in PYTHONPATH",
        "print('script')",
        files={"typing.py": "print('not the standard one')"},
        environment={"PYTHONPATH": "."},
    ),
    program(
        "PYTHONBREAKPOINT of its own",
        "breakpoint()",
        files={"h.py": "def f(): print('mine')"},
        environment={"PYTHONBREAKPOINT": "h.f"},
    ),
    program("empty environment", SEE, command="env -i python @ s.py"),
    program(
        "huge environment",
        """
        import os
        print(sum(len(v) for v in os.environ.values() if v[:9] == 'xxxxxxxxx'))
        """,
        files={
            "start.py": """
                import os, sys
                os.environ.update({f"V{i}": "x" * 100_000 for i in range(15)})
                os.execv(sys.argv[1], sys.argv[1:])
            """
        },
        command="python start.py python @ s.py",
        shows="1500000",
    ),
    program(
        "arguments at the limit",
        """
        import sys
        print(len(sys.argv), sum(map(len, sys.argv)))
        """,
        files={"start.py": "import os, sys\nos.execv(sys.argv[1], [*sys.argv[1:], *['y' * 100_000] * 15])"},
        command="python start.py python @ s.py",
    ),
]
