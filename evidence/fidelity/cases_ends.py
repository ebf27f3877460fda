"""How a program ends: exit codes, finalizers, threads and standard streams at the end."""

from evidence.fidelity.case import program

UNRAISABLE = "Exception ignored"

CASES = [
    program("exit 3", "import sys; print('x'); sys.exit(3)", code=3, fixed=True),
    program("exit none", "raise SystemExit", fixed=True),
    program("exit text", "raise SystemExit('bye')", code=1, shows="bye", fixed=True),
    program("exit tuple", "raise SystemExit((1, 'a'))", code=1, shows="(1, 'a')", fixed=True),
    program("exit large", "raise SystemExit(300)", code=44, fixed=True),
    program("exit negative", "raise SystemExit(-1)", code=255),
    program("exit true", "raise SystemExit(True)", code=1),
    program("exit float", "raise SystemExit(1.5)", code=1, shows="1.5"),
    program(
        "exit of a subclass",
        """
        class E(SystemExit): pass
        raise E(9)
        """,
        code=9,
    ),
    program(
        "exit whose text fails",
        """
        class T:
            def __str__(self): raise ValueError('no text')
        raise SystemExit(T())
        """,
        code=1,
    ),
    program(
        "exit in a thread",
        """
        import threading as t
        t.Thread(target=exit, args=(4,)).start()
        """,
        fixed=True,
    ),
    program(
        "exit in finally",
        """
        import sys
        try:
            1/0
        finally:
            sys.exit(8)
        """,
        code=8,
    ),
    program(
        "exit in atexit",
        """
        import atexit, sys
        atexit.register(sys.exit, 5)
        print('end')
        """,
        code=0,
        shows="end",
    ),
    program(
        "exit in __del__",
        """
        import sys
        class A:
            def __del__(self): sys.exit(5)
        a = A(); del a
        print('goes on')
        """,
        shows=UNRAISABLE,
    ),
    program(
        "exit in excepthook",
        """
        import sys
        sys.excepthook = lambda *a: sys.exit(6)
        1/0
        """,
        code=6,
    ),
    program(
        "exit in a generator's close",
        """
        import sys
        def g():
            try: yield
            finally: sys.exit(7)
        x = g(); next(x)
        x.close()
        """,
        code=7,
    ),
    program(
        "exit in a coroutine",
        """
        import asyncio, sys
        async def f():
            await asyncio.sleep(0)
            sys.exit(4)
        asyncio.run(f())
        """,
        code=4,
    ),
    program(
        "exit in a weak reference's callback",
        """
        import sys, weakref
        class A: pass
        a = A(); r = weakref.ref(a, lambda r: sys.exit(3))
        del a
        print('on')
        """,
        shows="on",
    ),
    program(
        "exit during import",
        "import other",
        files={
            "other.py": """
                import sys
                sys.exit(11)
                """
        },
        code=11,
    ),
    program(
        "os._exit",
        """
        import os, sys
        print('a'); sys.stdout.flush(); os._exit(7)
        """,
        code=7,
        fixed=True,
    ),
    program(
        "os._exit in atexit",
        """
        import atexit, os
        atexit.register(os._exit, 3)
        print('a', flush=True)
        """,
        code=3,
    ),
    program(
        "os._exit in a thread",
        """
        import os, threading, time
        threading.Thread(target=os._exit, args=(5,)).start()
        time.sleep(30)
        """,
        code=5,
    ),
    program(
        "os.abort",
        """
        import os
        os.abort()
        """,
        code=-6,
    ),
    program(
        "os.abort with faulthandler",
        """
        import faulthandler, os
        faulthandler.enable()
        def f(): os.abort()
        f()
        """,
        code=-6,
        shows="Fatal Python error: Aborted",
        fixed=True,
    ),
    program(
        "a null pointer with faulthandler",
        """
        import ctypes, faulthandler
        faulthandler.enable()
        ctypes.string_at(0)
        """,
        code=-11,
        shows="Segmentation fault",
    ),
    program(
        "a null pointer",
        """
        import ctypes
        ctypes.string_at(0)
        """,
        code=-11,
    ),
    program(
        "faulthandler in a thread",
        """
        import faulthandler, ctypes, threading
        faulthandler.enable()
        t = threading.Thread(target=ctypes.string_at, args=(0,)); t.start(); t.join()
        """,
        code=-11,
        shows="Current thread",
    ),
    program(
        "threads alive at the end",
        """
        import threading, time
        threading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()
        print('main')
        """,
        shows="late",
        fixed=True,
    ),
    program(
        "daemon threads",
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print(threading.active_count())
        """,
        fixed=True,
    ),
    program(
        "daemon thread that computes at the end",
        """
        import threading
        def f():
            x = 0
            while True: x += 1
        for _ in range(3): threading.Thread(target=f, daemon=True).start()
        print('end')
        """,
    ),
    # Standard output and error at the end.
    program(
        "closed output",
        """
        import sys
        print('a')
        sys.stdout.close()
        """,
        fixed=True,
    ),
    program(
        "closed errors",
        """
        import sys
        print('a')
        sys.stderr.close()
        """,
        fixed=True,
    ),
    program(
        "output of none",
        """
        import sys
        sys.stdout = None
        print('a')
        """,
    ),
    program(
        "errors of none",
        """
        import sys
        sys.stderr = None
        1/0
        """,
        code=1,
    ),
    program(
        "errors replaced",
        """
        import io, sys
        sys.stderr = io.StringIO()
        1/0
        """,
        code=1,
    ),
    program(
        "errors without a write",
        """
        import sys
        sys.stderr = object()
        1/0
        """,
        code=120,
    ),
    program(
        "output without a line's end",
        """
        import sys
        sys.stdout.write('a'); sys.stderr.write('b')
        """,
        options="-q",
    ),
    program("much output", "for i in range(200_000): print(i, 'x' * 10)", fixed=True),
    program(
        "output that nobody reads",
        """
        import sys
        for i in range(100_000): print(i, 'x' * 10)
        """,
        command="{ python @ s.py; echo $? >&2; } | head -n 1",
        shell=True,
        shows="BrokenPipeError",
        normal=((r"\d+ x{10}\n", ""),),
    ),
    program(
        "output that nobody reads, died of SIGPIPE",
        """
        import signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        for i in range(100_000): print(i, 'x' * 10)
        """,
        command="{ python @ s.py; echo $? >&2; } | head -n 1",
        shell=True,
        shows="141",
    ),
    program(
        "output on a full device",
        "print('a')",
        command="python @ s.py > /dev/full",
        shell=True,
        code=120,
        shows="No space left",
        fixed=True,
    ),
    program("errors on a full device", "1/0", command="python @ s.py 2> /dev/full", shell=True, code=120),
    program(
        "output closed by the shell",
        """
        import sys
        print(sys.stdout)
        1/0
        """,
        command="python @ s.py >&-",
        shell=True,
        code=1,
    ),
    program(
        "errors closed by the shell",
        """
        import sys
        print(sys.stderr)
        """,
        command="python @ s.py 2>&-",
        shell=True,
    ),
    program(
        "input closed by the shell",
        """
        import sys
        print(sys.stdin)
        """,
        command="python @ s.py <&-",
        shell=True,
    ),
    program(
        "everything closed by the shell",
        """
        import os, sys
        open('seen', 'w').write(repr((sys.stdin, sys.stdout, sys.stderr)))
        """,
        command="python @ s.py <&- >&- 2>&-",
        shell=True,
        outputs=("seen",),
        fixed=True,
    ),
    program(
        "output and errors in one file",
        """
        import sys
        print('a', flush=True)
        print('b', file=sys.stderr)
        print('c', flush=True)
        1/0
        """,
        command="python @ s.py > seen 2>&1",
        shell=True,
        options="-q",
        code=1,
        outputs=("seen",),
    ),
    program(
        "descriptors of standard streams closed",
        """
        import os
        print('a', flush=True)
        os.close(2); os.close(1); os.close(0)
        open('seen', 'w').write('x')
        """,
        outputs=("seen",),
    ),
    # The interpreter pulled apart.
    program(
        "modules cleared",
        """
        import sys
        sys.modules.clear()
        print('end')
        """,
    ),
    program(
        "main module deleted",
        """
        import sys
        del sys.modules['__main__']
        print('end')
        """,
    ),
    program(
        "builtins without print and open",
        """
        import builtins
        del builtins.open, builtins.print, builtins.len
        """,
    ),
    program(
        "import replaced",
        """
        import builtins
        def no(*a, **k): raise ImportError(a[0])
        builtins.__import__ = no
        """,
    ),
    program(
        "path emptied",
        """
        import sys
        sys.path.clear(); sys.meta_path.clear(); sys.path_hooks.clear()
        print('end')
        """,
    ),
    program(
        "os and time pulled apart",
        """
        import os, time
        os.getpid = os.path.getsize = time.monotonic = None
        print('end')
        """,
    ),
]
