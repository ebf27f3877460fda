"""Python made unusual, forks at odd moments, and programs that use cuptimem themselves."""

from evidence.fidelity.case import program

CASES = [
    # Python itself made unusual.
    program(
        "imports watched",
        """
        import sys
        class Watch:
            def find_spec(self, name, path=None, target=None): print('looks for', name, flush=True)
        sys.meta_path.insert(0, Watch())
        import colorsys
        """,
        shows="looks for colorsys",
    ),
    program(
        "imports watched beside torch",
        """
        import sys
        class Watch:
            def find_spec(self, name, path=None, target=None):
                if not name.startswith(('torch', 'numpy')): print('looks for', name, flush=True)
        sys.meta_path.insert(0, Watch())
        import torch
        torch.ones(3)
        """,
        needs=("torch",),
        known="when torch has come, what hooks into it is imported",
        shows="looks for",
    ),
    program(
        "audit events",
        """
        import sys
        def hook(name, args):
            if not name.startswith(('compile', 'object.__', 'marshal')): sys.stdout.write(f'{name}\\n')
        sys.addaudithook(hook)
        import os
        os.listdir(); pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        """,
        shows="os.listdir",
    ),
    program(
        "collector off",
        """
        import gc
        gc.disable(); print(gc.isenabled())
        """,
        shows="False",
    ),
    program(
        "collector frozen",
        """
        import gc
        gc.freeze(); print(gc.get_freeze_count() > 0)
        """,
        shows="True",
    ),
    program(
        "collector that prints",
        """
        import gc
        gc.set_debug(gc.DEBUG_STATS)
        print('on')
        """,
        shows="on",
        normal=((r"^gc: .*\n", ""),),
    ),
    program(
        "collector that keeps garbage",
        """
        import gc
        gc.set_debug(gc.DEBUG_SAVEALL)
        x = []; x.append(x); del x
        print(gc.collect() >= 1, len(gc.garbage) >= 1)
        """,
        shows="True",
    ),
    program(
        "reference counts",
        """
        import sys
        x = object(); print(sys.getrefcount(x), sys.getrefcount(len.__self__) > 0)
        """,
    ),
    program(
        "all objects walked",
        """
        import gc
        print(sum(1 for o in gc.get_objects() if type(o).__module__.startswith('cuptimem')))
        """,
        known="a few objects of the recording are among the interpreter's",
        shows="0",
    ),
    program(
        "all objects' referrers",
        """
        import gc
        x = []
        print(len(gc.get_referrers(x)))
        """,
        shows="1",
    ),
    program(
        "switch interval",
        """
        import sys
        sys.setswitchinterval(1e-6); print(sys.getswitchinterval())
        """,
    ),
    program(
        "shallow recursion at the end",
        """
        import atexit, sys
        sys.setrecursionlimit(30)
        print('on')
        """,
        shows="on",
    ),
    program(
        "random numbers",
        """
        import random, os
        random.seed(3); print(random.random(), len(os.urandom(4)))
        """,
        shows="0.2379",
    ),
    program(
        "errno kept",
        """
        import ctypes, os
        lib = ctypes.CDLL(None, use_errno=True)
        lib.close(999); print(ctypes.get_errno())
        """,
        shows="9",
    ),
    program(
        "decimal, locale and float state",
        """
        import decimal, sys
        print(decimal.getcontext(), sys.float_info.rounds)
        """,
    ),
    program(
        "dlopen of everything",
        """
        import ctypes, ctypes.util
        for n in ('m', 'z', 'dl', 'rt', 'pthread'):
            ctypes.CDLL(ctypes.util.find_library(n) or None)
        print('on')
        """,
        shows="on",
    ),
    program(
        "libraries loaded in a loop",
        """
        import ctypes, _ctypes
        for _ in range(200):
            h = _ctypes.dlopen('libm.so.6', 2); _ctypes.dlclose(h)
        print('on')
        """,
        shows="on",
    ),
    program(
        "debug of the loader",
        "print('on')",
        command="exec env LD_DEBUG=libs python @ s.py 2>/dev/null",
        shell=True,
        shows="on",
    ),
    program("bound at once", "print('on')", environment={"LD_BIND_NOW": "1"}, shows="on"),
    program(
        "allocator of the C library that checks",
        "x = [bytes(n) for n in range(5000)]; print('on')",
        environment={"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"},
        shows="on",
    ),
    program(
        "vfork in a loop",
        """
        import subprocess
        print(sum(subprocess.run(['true']).returncode for _ in range(50)))
        """,
        shows="0",
    ),
    program(
        "forks in a loop",
        """
        import os
        for i in range(200):
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
        print('on')
        """,
        shows="on",
    ),
    program(
        "forks of several threads",
        """
        import os, threading, warnings
        warnings.simplefilter('ignore')
        def f():
            for _ in range(30):
                pid = os.fork()
                if pid == 0: os._exit(0)
                os.waitpid(pid, 0)
        t = [threading.Thread(target=f) for _ in range(4)]
        for x in t: x.start()
        for x in t: x.join()
        print('on')
        """,
        shows="on",
    ),
    program(
        "fork while the collector collects",
        """
        import gc, os
        class A:
            def __del__(self):
                pid = os.fork()
                if pid == 0: os._exit(0)
                os.waitpid(pid, 0); print('forked')
        a = A(); a.a = a; del a
        gc.collect(); print('on')
        """,
        shows="forked",
    ),
    program(
        "fork in __del__ at the end",
        """
        import os
        class A:
            def __del__(self, os=os):
                pid = os.fork()
                if pid == 0: os._exit(0)
                os.waitpid(pid, 0); print('forked')
        a = A(); a.a = a
        """,
        shows="fork",
    ),
    program(
        "fork in atexit",
        """
        import atexit, os
        def f():
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0); print('forked')
        atexit.register(f)
        """,
        shows="fork",
    ),
    program(
        "fork in a handler of a signal",
        """
        import os, signal
        def f(*a):
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0); print('forked')
        signal.signal(signal.SIGUSR1, f)
        os.kill(os.getpid(), 10); print('on')
        """,
        shows="forked",
    ),
    program(
        "fork during an import",
        """
        import other
        print('on')
        """,
        files={
            "other.py": """
                import os
                pid = os.fork()
                if pid == 0: os._exit(0)
                os.waitpid(pid, 0)
                """
        },
        shows="on",
    ),
    program(
        "ptrace of itself",
        """
        import ctypes
        print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))
        """,
    ),
    program(
        "time stands still for time.time",
        """
        import time
        time.time = time.monotonic = time.perf_counter = lambda: 0.0
        print(time.time())
        """,
        shows="0.0",
    ),
    # Our own interface in a recorded program.
    program(
        "a profile of its own",
        """
        import cuptimem
        with cuptimem.profile('own.cmem') as p: x = bytearray(10)
        print(p.report is not None)
        """,
        shows="True",
        fixed=True,
        normal=((r"^cuptimem: .*\n", ""),),
    ),
    program(
        "a profile without a name",
        """
        import cuptimem
        with cuptimem.profile() as p: pass
        print(type(p.report).__name__)
        """,
        shows="Report",
    ),
    program(
        "a profile left open",
        """
        import cuptimem
        p = cuptimem.profile('own.cmem'); p.__enter__()
        print('end')
        """,
        shows="end",
    ),
    program(
        "a profile whose block raises",
        """
        import cuptimem
        with cuptimem.profile('own.cmem'):
            def f(): 1/0
            f()
        """,
        code=1,
        shows="in f",
    ),
    program(
        "a decorated function that raises",
        """
        import cuptimem
        @cuptimem.profile('own.cmem')
        def f(): 1/0
        f()
        """,
        code=1,
        shows="in f",
    ),
    program(
        "a profile in a thread and a fork",
        """
        import cuptimem, os, threading, warnings
        warnings.simplefilter('ignore')  # a thread that was joined may still be ending
        def f():
            with cuptimem.profile('own.cmem'): pass
        t = threading.Thread(target=f); t.start(); t.join()
        pid = os.fork()
        if pid == 0:
            with cuptimem.profile('child.cmem'): pass
            os._exit(0)
        print(os.waitpid(pid, 0)[1])
        """,
        shows="0",
    ),
    program(
        "a profile beside dill",
        """
        import dill, cuptimem
        with cuptimem.profile('own.cmem') as p: pass
        r = p.report
        keep = dill
        print('end')
        """,
        needs=("dill",),
        shows="end",
        hides="Exception ignored",
    ),
    program(
        "a report opened and kept",
        """
        import cuptimem
        with cuptimem.profile('own.cmem') as p: pass
        r = cuptimem.open('own.cmem'); s = cuptimem.open('own.cmem').steps
        keep = [r]; keep.append(keep)
        print('end')
        """,
        shows="end",
        hides="Exception ignored",
    ),
]
