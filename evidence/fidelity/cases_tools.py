"""What tools see of a program, and nothing of us: tracers, debuggers, profilers, test runners, pickles."""

from evidence.fidelity.case import program
from evidence.fidelity.cases_tracers import JEMALLOC, MEMRAY

FAILS = "def f(): g()\ndef g(): 1/0\nf()"

CASES = [
    # What tools see of the program, and nothing of us.
    program(
        "calls seen by sys.setprofile",
        """
        import os, sys
        calls = []
        def seen(frame, event, arg):
            if event in ('call', 'return'): calls.append((event, frame.f_code.co_filename, frame.f_code.co_name))
        def f(): return os.path.join('a', 'b')
        sys.setprofile(seen); f(); pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0); sys.setprofile(None)
        for c in calls: print(*c)
        """,
        shows="posixpath",
        fixed=True,
    ),
    program(
        "calls seen by sys.setprofile to the end",
        """
        import os, sys
        def seen(frame, event, arg):
            if event == 'call': os.write(1, f'{frame.f_code.co_filename} {frame.f_code.co_name}\\n'.encode())
        sys.setprofile(seen)
        """,
        fixed=True,
    ),
    program(
        "lines seen by sys.settrace to the end",
        """
        import os, sys
        def seen(frame, event, arg):
            os.write(1, f'{event} {frame.f_code.co_filename} {frame.f_lineno}\\n'.encode())
            return seen
        sys.settrace(seen)
        """,
    ),
    program(
        "calls seen by sys.setprofile in torch",
        """
        import sys, torch
        net = torch.nn.Linear(2, 2)
        data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
        calls = []
        def seen(frame, event, arg):
            if event == 'call': calls.append((frame.f_code.co_filename, frame.f_code.co_name))
            elif event == 'c_call': calls.append(('C', getattr(arg, '__qualname__', '?')))
        sys.setprofile(seen)
        torch.nn.Linear(3, 3); o = torch.optim.SGD(net.parameters(), lr=.1)
        for b in data: net(b).sum().backward(); o.step()
        sys.setprofile(None)
        for c in calls: print(*c)
        """,
        environment={"PYTHONHASHSEED": "0"},  # the order in which sets are walked
        needs=("torch",),
        shows="dataloader.py",
    ),
    program(
        "events seen by sys.monitoring",
        """
        import os, sys
        m = sys.monitoring; m.use_tool_id(3, 'x')
        calls = []
        m.register_callback(3, m.events.PY_START, lambda code, at: calls.append((code.co_filename, code.co_qualname)))
        m.set_events(3, m.events.PY_START)
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0); m.set_events(3, 0)
        print(calls, [m.get_tool(i) for i in range(6)])
        """,
        needs=("3.12+",),
    ),
    program(
        "rows of cProfile",
        """
        import cProfile, os, pstats
        p = cProfile.Profile(); p.enable()
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        p.disable()
        for (file, line, name), row in sorted(pstats.Stats(p).stats.items()): print(file, line, name, row[:2])
        """,
        shows="fork",
    ),
    program(
        "rows of cProfile in torch",
        """
        import cProfile, pstats, torch
        net = torch.nn.Linear(2, 2); data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
        o = torch.optim.SGD(net.parameters(), lr=.1)
        for b in data: net(b).sum().backward(); o.step()
        p = cProfile.Profile(); p.enable()
        torch.nn.Linear(3, 3); o = torch.optim.SGD(net.parameters(), lr=.1)
        for b in data: net(b).sum().backward(); o.step()
        p.disable()
        for (file, line, name), row in sorted(pstats.Stats(p).stats.items()): print(file, line, name, row[:2])
        """,
        needs=("torch",),
        shows="dataloader.py",
    ),
    program(
        "rows of -m cProfile",
        """
        import torch
        net = torch.nn.Linear(2, 2); o = torch.optim.SGD(net.parameters(), lr=.1)
        for b in torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2): net(b).sum().backward(); o.step()
        import os
        """,
        files={
            "rows.py": """
                import pstats
                for k, row in sorted(pstats.Stats('../stats').stats.items()):
                    if 'cuptimem' in k[0] or 'cuptimem' in k[2]: print(k, row[:2])
                print('shown')
                """
        },
        command="python @ -m cProfile -o ../stats s.py && exec python rows.py",
        shell=True,
        needs=("torch",),
        shows="shown",
    ),
    program(
        "lines of -m trace",
        """
        def f(): return 1
        f()
        """,
        command="python @ -m trace --trace s.py",
        shows="s.py(2)",
    ),
    program(
        "functions of -m trace",
        """
        import os
        def f(): return os.getpid()
        f()
        """,
        command="python @ -m trace --listfuncs s.py",
        shows="funcname: f",
    ),
    program(
        "lines of tracemalloc",
        """
        import tracemalloc
        tracemalloc.start(10)
        x = [bytes(1000) for _ in range(100)]
        import os
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        s = tracemalloc.take_snapshot()
        print([str(t) for t in s.statistics('lineno') if 'cuptimem' in str(t)])
        # Without small ones: a number may come from Python's free list, which holds what ran before.
        print(sum(t.size > 64 for t in s.filter_traces([tracemalloc.Filter(True, __file__, 5)]).traces))
        """,
        shows="[]",
        normal=((r"\] \d+$", "]"),),
        fixed=True,
    ),
    program(
        "lines of tracemalloc in torch",
        """
        import tracemalloc, torch
        net = torch.nn.Linear(2, 2); data = torch.utils.data.DataLoader(torch.ones(4, 2), batch_size=2)
        tracemalloc.start(25)
        keep = [torch.nn.Linear(3, 3) for _ in range(20)]; o = torch.optim.SGD(net.parameters(), lr=.1)
        for b in data: net(b).sum().backward(); o.step()
        s = tracemalloc.take_snapshot()
        print([str(t) for t in s.statistics('lineno') if 'cuptimem' in str(t)])
        print([str(t) for t in s.statistics('traceback') if any('cuptimem' in f.filename for f in t.traceback)])
        """,
        needs=("torch",),
        shows="[]",
        timeout=600,
    ),
    program(
        "stack in a hook",
        """
        import torch, traceback
        net = torch.nn.Linear(2, 2); o = torch.optim.SGD(net.parameters(), lr=.1)
        net.register_forward_hook(lambda *a: traceback.print_stack())
        o.register_step_post_hook(lambda *a: traceback.print_stack())
        class D(torch.utils.data.Dataset):
            def __len__(self): return 1
            def __getitem__(self, i): traceback.print_stack(); return torch.ones(2)
        class M(torch.nn.Module):
            def __init__(self): super().__init__(); traceback.print_stack()
            def __setattr__(self, n, v): traceback.print_stack(limit=3); super().__setattr__(n, v)
        for b in torch.utils.data.DataLoader(D()): net(b).sum().backward(); o.step()
        M()
        """,
        needs=("torch",),
        shows="print_stack",
    ),
    program(
        "frames of all threads",
        """
        import sys, traceback
        for i, f in sys._current_frames().items(): traceback.print_stack(f)
        print(len(sys._current_frames()))
        """,
        shows="s.py",
    ),
    # Debuggers.
    program(
        "pdb's answers",
        """
        def f(x):
            y = x + 1
            return y
        f(3)
        1/0
        """,
        command="python @ -m pdb s.py",
        stdin="b f\nc\nw\nn\np y\nu\nc\nw\nq\n",
        shows="4",
        fixed=True,
    ),
    program(
        "pdb after a failure",
        FAILS,
        command="python @ -m pdb -c continue s.py",
        stdin="w\np 1+1\nq\n",
        shows="ZeroDivisionError",
    ),
    program(
        "pdb.post_mortem",
        """
        import pdb, sys
        try: {}['a']
        except KeyError as e: pdb.post_mortem(e.__traceback__)
        """,
        stdin="w\nq\n",
        shows="s.py(2)",
    ),
    program(
        "pdb within torch",
        """
        import torch
        from torch import nn
        class M(nn.Module):
            def forward(self, x):
                breakpoint()
                return x
        M()(torch.ones(1))
        """,
        stdin="w\nc\n",
        needs=("torch",),
        shows="_call_impl",
    ),
    program(
        "pdb steps into a module",
        """
        import pdb, torch
        class M(torch.nn.Module): pass
        pdb.set_trace()
        m = M()
        print('on')
        """,
        stdin="n\ns\ns\ns\ns\nw\nc\n",
        needs=("torch",),
        shows="on",
    ),
    program(
        "pdb steps into a loader",
        """
        import pdb, torch
        it = iter(torch.utils.data.DataLoader([1, 2]))
        pdb.set_trace()
        x = next(it)
        print('on')
        """,
        stdin="n\ns\ns\ns\nw\nc\n",
        needs=("torch",),
        shows="on",
    ),
    program(
        "coverage's report",
        """
        import torch
        net = torch.nn.Linear(2, 2)
        def f(): return 1
        if net is None:
            f()
        """,
        command="python @ -m coverage run --source=. --data-file=../cover s.py && "
        "exec python -m coverage report -m --data-file=../cover",
        shell=True,
        needs=("torch", "coverage"),
        shows="s.py",
    ),
    program(
        "coverage of processes: what they report",
        """
        import multiprocessing as m
        def f(): print('child')
        if __name__ == '__main__':
            p = m.Process(target=f); p.start(); p.join()
        """,
        files={
            ".coveragerc": """
                [run]
                concurrency = multiprocessing
                parallel = true
                data_file = ../tmp/cov
                """
        },
        command="python @ -m coverage run s.py && python -m coverage combine -q && exec python -m coverage report -m",
        shell=True,
        needs=("coverage",),
        shows="s.py",
    ),
    program(
        "py-spy dump of itself",
        """
        import subprocess, sys, os
        spy = os.path.join(os.path.dirname(sys.executable), 'py-spy')
        def f(): return subprocess.run([spy, 'dump', '--pid', str(os.getpid())], capture_output=True, text=True)
        r = f()
        print(r.stdout, r.stderr, r.returncode)
        """,
        needs=("bin/py-spy", "root"),
        shows="MainThread",
        normal=((r"^(Process )\d+", r"\1"), (r"Thread \d+ \([a-z+]+\)", "Thread")),
    ),
    program(
        "py-spy record",
        """
        import time
        end = time.monotonic() + 1
        while time.monotonic() < end: sum(range(1000))
        print('end')
        """,
        files={
            "spy.py": """
                import os, sys
                spy = os.path.join(os.path.dirname(sys.executable), 'py-spy')
                os.execv(spy, [spy, 'record', '--subprocesses', '-f', 'raw', '-o', '../raw', '--', *sys.argv[1:]])
                """
        },
        command="python spy.py python @ s.py",
        needs=("bin/py-spy", "root"),
        shows="end",
        normal=((r"^py-spy.*\n|^\n|^.*(Samples|samples|Wrote).*\n", ""),),
    ),
    program(
        "gdb's stack",
        """
        import os, subprocess
        r = subprocess.run(['gdb', '-p', str(os.getpid()), '-batch', '-nx', '-ex', 'bt 1'], capture_output=True)
        print(r.returncode)
        """,
        needs=("$gdb", "root"),
        shows="0",
    ),
    program(
        "line_profiler within",
        """
        from line_profiler import LineProfiler
        def f():
            x = 1
            return x
        p = LineProfiler(f); p.runcall(f)
        print(p.get_stats().timings[(__file__, 2, 'f')].__len__())
        """,
        needs=("line_profiler",),
    ),
    program(
        "dill",
        """
        import dill
        print(dill.loads(dill.dumps(lambda x: x + 1))(2))
        """,
        needs=("dill",),
        shows="3",
    ),
    program(
        "dill of the session",
        """
        import dill, os
        x = 4
        dill.dump_module('../session')
        print(os.path.getsize('../session') > 0)
        """,
        needs=("dill",),
        shows="True",
    ),
    program(
        "cloudpickle",
        """
        import cloudpickle, pickle
        x = 3
        def f(y): return x + y
        b = cloudpickle.dumps(f)
        print(len(b), pickle.loads(b)(4))
        """,
        needs=("cloudpickle",),
        shows="7",
    ),
    program(
        "timeit",
        "",
        command="python @ -m timeit -n 1 -r 1 pass",
        shows="per loop",
        normal=((r"[\d.]+ \w+ per loop", "per loop"),),
    ),
    program(
        "unittest",
        """
        import unittest
        class T(unittest.TestCase):
            def test_a(self): self.assertEqual(1, 2)
            def test_b(self): pass
            @unittest.skip('why')
            def test_c(self): pass
        unittest.main()
        """,
        code=1,
        shows="FAILED (failures=1",
        normal=((r"in [\d.]+s", ""),),
    ),
    program(
        "-m unittest",
        """
        import unittest
        class T(unittest.TestCase):
            def test_a(self): self.assertEqual(1, 2)
        """,
        command="python @ -m unittest -v s",
        code=1,
        shows="AssertionError",
        normal=((r"in [\d.]+s", ""),),
    ),
    program(
        "doctest",
        """
        def f():
            '''
            >>> f()
            2
            '''
            return 1
        """,
        command="python @ -m doctest s.py",
        code=1,
        shows="Expected",
    ),
    program(
        "pytest",
        "",
        files={
            "test_s.py": """
                import sys, pytest, warnings
                def test_a(capfd): print('a'); assert capfd.readouterr().out == 'a\\n'
                def test_b(): assert {'a': 1} == {'a': 2}
                @pytest.mark.skip
                def test_c(): pass
                def test_d(recwarn): warnings.warn('x'); assert len(recwarn) == 1
                def test_e(): import gc; gc.collect(); sys.exit(3)
                """
        },
        command="python @ -m pytest -p no:cacheprovider -rA test_s.py",
        code=1,
        shows="1 skipped",
        normal=((r"in [\d.]+s", ""), (r"=+", "=")),
        needs=("pytest",),
    ),
    program(
        "pytest with torch, warnings as errors",
        "",
        files={
            "test_s.py": """
                import torch
                def test_a():
                    n = torch.nn.Linear(2, 2); o = torch.optim.SGD(n.parameters(), lr=.1)
                    n(torch.ones(2)).sum().backward(); o.step()
                def test_b():
                    for b in torch.utils.data.DataLoader([1, 2], num_workers=1): pass
                    1/0
                """
        },
        command="python @ -m pytest -p no:cacheprovider -W error::pytest.PytestUnraisableExceptionWarning test_s.py",
        code=1,
        shows="1 passed",
        normal=((r"in [\d.]+s", ""), (r"=+", "=")),
        needs=("pytest", "torch"),
    ),
    program(
        "pytest with a forked test",
        "",
        files={
            "test_s.py": """
                import os
                def test_a():
                    pid = os.fork()
                    if pid == 0: os._exit(0)
                    assert os.waitpid(pid, 0)[1] == 0
                """
        },
        command="python -W error @ -m pytest -p no:cacheprovider test_s.py",
        shows="1 passed",
        normal=((r"in [\d.]+s", ""),),
        needs=("pytest",),
    ),
    program(
        "pytest in several processes",
        "",
        files={
            "test_s.py": """
                import pytest
                @pytest.mark.parametrize('i', range(4))
                def test_a(i): assert i != 2
                """
        },
        command="python @ -m pytest -p no:cacheprovider -n 2 test_s.py",
        code=1,
        shows="3 passed",
        normal=((r"in [\d.]+s", ""), (r"\[gw\d\]", ""), (r"=+|_+", ""), (r"^bringing up nodes.*\n|^[.F]+.*\n", "")),
        needs=("pytest", "xdist"),
        timeout=120,
    ),
    program(
        "hypothesis",
        """
        from hypothesis import given, settings, strategies as s
        @settings(derandomize=True, database=None)
        @given(s.integers())
        def f(x): assert x < 100
        f()
        """,
        needs=("hypothesis",),
        code=1,
        environment={"HYPOTHESIS_STORAGE_DIRECTORY": "{work}/../hypothesis"},
        shows="AssertionError",
    ),
    program(
        "tqdm",
        """
        import sys, time
        from tqdm import tqdm
        for _ in tqdm(range(3), bar_format='{n}'): pass
        """,
        needs=("tqdm",),
        options="-q",
        shows="3",
    ),
    program(
        "logging",
        """
        import logging, multiprocessing as m
        logging.basicConfig(format='%(processName)s %(threadName)s %(funcName)s %(lineno)d %(message)s', level=0)
        logging.debug('x')
        m.log_to_stderr().warning('y')
        def f(): logging.info('z')
        f()
        """,
        shows="MainThread",
    ),
    program(
        "memory_profiler",
        """
        from memory_profiler import memory_usage
        print(len(memory_usage((sum, ([1, 2],)))) > 0)
        """,
        needs=("memory_profiler",),
        shows="True",
    ),
    program(
        "uvloop",
        """
        import asyncio, uvloop, signal, os
        async def f():
            e = asyncio.Event(); asyncio.get_running_loop().add_signal_handler(10, e.set)
            os.kill(os.getpid(), 10); await e.wait(); print('done')
        uvloop.run(f())
        """,
        needs=("uvloop",),
        shows="done",
    ),
    program(
        "memray's tracker",
        """
        import memray
        with memray.Tracker('../m.bin', native_traces=True):
            x = [bytearray(1000) for _ in range(1000)]
        print('end')
        """,
        needs=("memray",),
        shows="end",
    ),
    program(
        "memray's tracker around torch",
        """
        import memray, torch
        with memray.Tracker('../m.bin', native_traces=True):
            n = torch.nn.Linear(100, 100); n(torch.ones(100)).sum().backward()
        print('end')
        """,
        needs=("memray", "torch"),
        shows="end",
    ),
    program(
        "memray around an import of torch",
        """
        import torch
        print('end')
        """,
        command="python @ -m memray run --native -f -o ../m.bin s.py",
        needs=("memray", "torch"),
        shows="end",
        normal=MEMRAY,
        timeout=300,
    ),
    program(
        "tcmalloc around torch",
        """
        import torch
        x = torch.ones(1000, requires_grad=True)
        for _ in range(50): (x * 2).sum().backward()
        print('end')
        """,
        command="env LD_PRELOAD={libtcmalloc.so.4} HEAPPROFILE={work}/../heap python @ s.py",
        needs=("torch", "libtcmalloc.so.4"),
        shows="end",
        normal=((r"^(Starting tracking|Dumping heap).*\n", ""),),
    ),
    program(
        "jemalloc's profile around torch",
        """
        import torch
        x = torch.ones(1000, requires_grad=True)
        for _ in range(50): (x * 2).sum().backward()
        print('end')
        """,
        command=f"{JEMALLOC},lg_prof_sample:10 python @ s.py",
        needs=("torch", "libjemalloc.so.2"),
        shows="end",
    ),
    program(
        "scalene",
        "x = [bytes(100_000) for _ in range(100)]\nprint('end')",
        command="python @ -m scalene run --cpu-only -o ../s.json s.py",
        needs=("scalene",),
        shows="end",
        normal=((r"^(?!end$).*\n", ""),),  # it speaks of times, of its file, and what it says depends on them
        timeout=240,
    ),
    program(
        "debugpy within",
        """
        import debugpy
        debugpy.listen(('127.0.0.1', 0))
        import os
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        print('end')
        """,
        environment={"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        needs=("debugpy",),
        shows="end",
        timeout=90,
    ),
    program(
        "perf's trampoline",
        """
        def f(): return 1
        print(f())
        """,
        command="python -X perf @ s.py",
        needs=("3.12+",),
        shows="1",
    ),
    program(
        "valgrind",
        "print('end')",
        command="valgrind -q --log-file=../v python @ s.py",
        environment={"PYTHONMALLOC": "malloc"},
        needs=("$valgrind",),
        shows="end",
        timeout=400,
    ),
]
