"""Exceptions that end a program or do not: tracebacks, hooks, threads, finalizers."""

from evidence.fidelity.case import program

UNRAISABLE = "Exception ignored"

CASES = [
    # Exceptions.
    program(
        "traceback",
        """
        def f(x):
            return g(x) + 1
        def g(x):
            return 1 / x
        f(0)
        """,
        code=1,
        shows="ZeroDivisionError",
        fixed=True,
    ),
    program(
        "chained",
        """
        try:
            {}['a']
        except KeyError as e:
            raise ValueError('b') from e
        """,
        code=1,
        shows="direct cause",
        fixed=True,
    ),
    program(
        "exception while handling one",
        """
        try:
            1/0
        finally:
            [][1]
        """,
        code=1,
        shows="During handling",
    ),
    program("group", "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])", code=1, shows="KeyError", fixed=True),
    program("notes", "e = ValueError(1); e.add_note('a note'); raise e", code=1, shows="a note"),
    program("syntax error", "def f(:", code=1, shows="SyntaxError", traces=0),
    program(
        "syntax error in a module",
        "import other",
        files={"other.py": "x = = 1"},
        code=1,
        shows="SyntaxError",
        traces=0,
    ),
    program(
        "recursion",
        """
        def f(n): return f(n + 1)
        f(0)
        """,
        code=1,
        shows="RecursionError",
        fixed=True,
    ),
    program(
        "depth of recursion",
        """
        import sys
        sys.setrecursionlimit(60)
        def f(n):
            try: return f(n + 1)
            except RecursionError: return n
        print(f(0))
        """,
        fixed=True,
    ),
    program("assertion", "assert {'a': 1} == {'a': 2}, 'unequal'", code=1, shows="unequal"),
    program("keyboard interrupt", "raise KeyboardInterrupt", code=-2, shows="KeyboardInterrupt", fixed=True),
    program("memory error", "x = bytearray(1 << 62)", code=1, shows="MemoryError"),
    program("missing module", "import not_there", code=1, shows="ModuleNotFoundError", traces=0),
    program(
        "exception whose text fails",
        """
        class E(Exception):
            def __str__(self): raise ValueError
        raise E
        """,
        code=1,
        shows="<exception str() failed>",
    ),
    program(
        "excepthook",
        """
        import sys
        sys.excepthook = lambda *a: print('mine', a[1])
        1/0
        """,
        code=1,
        shows="mine",
        fixed=True,
    ),
    program(
        "excepthook that fails",
        """
        import sys
        sys.excepthook = lambda *a: {}['b']
        1/0
        """,
        code=1,
        shows="Original",
    ),
    program(
        "excepthook of none",
        """
        import sys
        sys.excepthook = None
        1/0
        """,
        code=1,
    ),
    program(
        "exception in a thread",
        """
        import threading
        t = threading.Thread(target=lambda: 1/0); t.start(); t.join()
        print('on')
        """,
        shows="Exception in thread Thread-1",
        fixed=True,
    ),
    program(
        "threading.excepthook",
        """
        import threading
        threading.excepthook = lambda a: print('mine', a.exc_value, a.thread.name)
        t = threading.Thread(target=lambda: 1/0); t.start(); t.join()
        """,
        shows="mine",
    ),
    program(
        "exception in __del__",
        """
        class A:
            def __del__(self): 1/0
        a = A(); del a
        print('on')
        """,
        shows=UNRAISABLE,
        fixed=True,
    ),
    program(
        "exception in __del__ at the end",
        """
        class A:
            def __del__(self): 1/0
        a = A()
        print('end')
        """,
        shows=UNRAISABLE,
    ),
    program(
        "unraisablehook",
        """
        import sys
        sys.unraisablehook = lambda u: print('mine', u.exc_value, u.err_msg)
        class A:
            def __del__(self): 1/0
        a = A(); del a
        """,
        shows="mine",
    ),
    program(
        "exception in a weak reference's callback",
        """
        import weakref
        class A: pass
        a = A(); r = weakref.ref(a, lambda r: 1/0)
        del a
        """,
        shows=UNRAISABLE,
    ),
    program(
        "exception in a callback of gc",
        """
        import gc
        gc.callbacks.append(lambda phase, info: 1/0)
        gc.collect()
        gc.callbacks.pop()
        print(1)
        """,
        shows=UNRAISABLE,
    ),
    program(
        "collections seen by a callback of gc until the end",
        """
        import gc
        gc.disable()
        gc.callbacks.append(lambda phase, info: print(phase, info['generation']))
        print(1)
        """,
    ),
    program(
        "exception in atexit",
        """
        import atexit
        atexit.register(lambda: 1/0)
        print('end')
        """,
        shows="ZeroDivisionError",
        fixed=True,
    ),
    program(
        "atexit order",
        """
        import atexit, sys
        for i in range(3):
            atexit.register(print, 'exit', i, flush=True)
        class A:
            def __del__(self): print('del')
        a = A()
        atexit.register(lambda: 1/0)
        print('end')
        sys.exit(5)
        """,
        code=5,
        shows="del",
        fixed=True,
    ),
    program(
        "atexit from atexit",
        """
        import atexit
        atexit.register(lambda: atexit.register(print, 'inner'))
        """,
    ),
    program(
        "atexit cleared",
        """
        import atexit
        atexit.register(print, 'not seen')
        atexit._clear()
        print(atexit._ncallbacks())
        """,
    ),
    program(
        "atexit count",
        """
        import atexit
        print(atexit._ncallbacks())
        """,
        known="what ends the recording is registered with atexit",
    ),
    program(
        "atexit run by hand",
        """
        import atexit
        atexit.register(print, 'x')
        atexit._run_exitfuncs()
        print('end')
        """,
    ),
    program(
        "thread in atexit",
        """
        import atexit, threading
        def start():
            try:
                t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()
            except RuntimeError as e:
                print(e)
        atexit.register(start)
        """,
    ),
    program(
        "weakref.finalize",
        """
        import weakref
        class A: pass
        a = A(); weakref.finalize(a, print, 'finalized')
        print('end')
        """,
        shows="finalized",
    ),
    program(
        "globals at the end",
        """
        import sys
        class A:
            def __init__(self, name): self.name = name
            def __del__(self): print(self.name, sys is not None, 'helper' in globals())
        def helper(): pass
        a = A('a'); _b = A('_b'); c = [A('in a list')]; c.append(c)
        """,
        shows="in a list",
        fixed=True,
    ),
    program(
        "generator never ended",
        """
        def g():
            try: yield
            finally: print('closed')
        x = g(); next(x)
        """,
    ),
    program(
        "coroutine never awaited",
        """
        async def f(): pass
        f()
        print('on')
        """,
        shows="never awaited",
    ),
    program(
        "file never closed",
        """
        import sys
        f = open(sys.argv[0])
        print('end')
        """,
        command="python -X dev @ s.py",
    ),
]
