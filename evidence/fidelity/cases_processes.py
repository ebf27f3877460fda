"""Children: forks, spawned processes, pools."""

from evidence.fidelity.case import program

CASES = [
    program(
        "fork",
        """
        import os, sys
        for i in range(4):
            pid = os.fork()
            if pid == 0: sys.exit(i)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """,
        command="python -W always @ s.py",
        fixed=True,
    ),
    program(
        "multiprocessing by fork",
        """
        import multiprocessing as m, warnings
        warnings.simplefilter('always')
        def f(q): q.put('child')
        c = m.get_context('fork'); q = c.SimpleQueue()
        for _ in range(3):
            p = c.Process(target=f, args=(q,)); p.start()
            print(q.get()); p.join(); print(p.exitcode)
        """,
        fixed=True,
    ),
    *(
        program(
            f"pool by {how}",
            f"""
            import multiprocessing as m, os
            def f(x): return x * x, sorted(k for k in os.environ if 'CUPTI' in k), __name__
            if __name__ == '__main__':
                with m.get_context('{how}').Pool(2) as p: print(p.map(f, range(4)))
            """,
            fixed=how == "spawn",
        )
        for how in ("fork", "spawn", "forkserver")
    ),
    *(
        program(
            f"pool by {how} whose work fails",
            f"""
            import multiprocessing as m
            def f(x): return 1 // x
            if __name__ == '__main__':
                with m.get_context('{how}').Pool(1) as p: print(p.map(f, [1, 0]))
            """,
            code=1,
            shows="RemoteTraceback",
        )
        for how in ("fork", "spawn", "forkserver")
    ),
    *(
        program(
            f"process by {how}, followed",
            f"""
            import multiprocessing as m, sys
            def f(): print('child', flush=True); sys.exit(3)
            if __name__ == '__main__':
                p = m.get_context('{how}').Process(target=f); p.start(); p.join(); print(p.exitcode)
            """,
            options="--follow",
            shows="child",
            traces=traces,
        )
        for how, traces in (("fork", 2), ("spawn", None), ("forkserver", None))
    ),
    *(
        program(
            f"process by {how} whose target raises",
            f"""
            import multiprocessing as m
            def f(): raise ValueError('in the child')
            if __name__ == '__main__':
                p = m.get_context('{how}').Process(target=f, name='P'); p.start(); p.join(); print(p.exitcode)
            """,
            shows="in the child",
        )
        for how in ("fork", "spawn", "forkserver")
    ),
    program(
        "executor of processes",
        """
        from concurrent.futures import ProcessPoolExecutor as E
        if __name__ == '__main__':
            with E(2) as e: print(list(e.map(abs, [-1, 2, -3])))
        """,
        shows="[1, 2, 3]",
    ),
    program(
        "executor whose worker dies",
        """
        import os
        from concurrent.futures import ProcessPoolExecutor as E
        if __name__ == '__main__':
            with E(1) as e: e.submit(os._exit, 3).result()
        """,
        code=1,
        shows="BrokenProcessPool",
    ),
    program(
        "manager",
        """
        import multiprocessing as m
        if __name__ == '__main__':
            with m.Manager() as g:
                d = g.dict(a=1); d['b'] = 2; print(dict(d))
        """,
        shows="'b': 2",
    ),
    program(
        "shared memory",
        """
        from multiprocessing import shared_memory as s, Process
        def f(name):
            b = s.SharedMemory(name); b.buf[0] = 7; b.close()
        if __name__ == '__main__':
            b = s.SharedMemory(create=True, size=100)
            p = Process(target=f, args=(b.name,)); p.start(); p.join()
            print(b.buf[0]); b.close(); b.unlink()
        """,
        shows="7",
    ),
    program(
        "shared memory that leaks",
        """
        from multiprocessing import shared_memory as s
        b = s.SharedMemory('fidelity_leak', create=True, size=100)
        """,
        shows="leaked shared_memory",
    ),
    program(
        "daemon process",
        """
        import multiprocessing as m, time
        if __name__ == '__main__':
            m.get_context('fork').Process(target=time.sleep, args=(60,), daemon=True).start()
            print('end')
        """,
        shows="end",
    ),
    program(
        "fork with preexec_fn",
        """
        import subprocess as s
        print(s.run(['true'], preexec_fn=int).returncode)
        """,
        command="python -W always @ s.py",
        fixed=True,
    ),
    program(
        "preexec_fn that fails",
        """
        import subprocess as s
        s.run(['true'], preexec_fn=lambda: 1/0)
        """,
        code=1,
        shows="preexec_fn",
    ),
    program(
        "setsid and preexec_fn",
        """
        import os, subprocess as s
        print(s.run(['true'], preexec_fn=os.setsid).returncode)
        """,
        command="python -W error @ s.py",
    ),
    program(
        "descriptors passed on",
        """
        import os, subprocess as s
        r, w = os.pipe()
        s.run(['sh', '-c', f'echo from the child >&{w}'], pass_fds=(w,))
        print(os.read(r, 100))
        """,
        shows="from the child",
    ),
    program(
        "descriptors left open",
        """
        import os, subprocess as s
        r, w = os.pipe(); os.set_inheritable(w, True)
        s.run(['sh', '-c', f'echo x >&{w}'], close_fds=False)
        print(os.read(r, 100))
        """,
        shows="x",
    ),
    program(
        "child that fails to start",
        """
        import subprocess as s
        s.run(['/not/there'])
        """,
        code=1,
        shows="/not/there",
    ),
    program(
        "child killed",
        """
        import subprocess as s
        p = s.Popen(['sleep', '60']); p.kill(); print(p.wait())
        """,
        shows="-9",
    ),
    program(
        "child that times out",
        """
        import subprocess as s
        s.run(['sleep', '60'], timeout=.2)
        """,
        code=1,
        shows="TimeoutExpired",
        normal=((r"after [\d.]+ seconds", ""),),
    ),
    program(
        "os.system",
        """
        import os
        print(os.waitstatus_to_exitcode(os.system('exit 5')))
        """,
        shows="5",
    ),
    program(
        "os.popen",
        """
        import os
        print(os.popen('echo a').read())
        """,
    ),
    program(
        "posix_spawn",
        """
        import os
        p = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 4'], os.environ)
        print(os.waitpid(p, 0)[1] >> 8)
        """,
        shows="4",
        fixed=True,
    ),
    program(
        "spawn family",
        """
        import os
        print(os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', 'exit 3'))
        """,
        shows="3",
    ),
    program(
        "fork whose child raises",
        """
        import os
        pid = os.fork()
        if pid == 0: 1/0
        print(os.waitpid(pid, 0)[1] >> 8)
        """,
        shows="ZeroDivisionError",
        fixed=True,
    ),
    program(
        "fork whose child is killed",
        """
        import os
        pid = os.fork()
        if pid == 0: os.kill(os.getpid(), 9)
        print(os.waitpid(pid, 0)[1])
        """,
        shows="9",
    ),
    program(
        "grandchildren",
        """
        import os
        for name in 'abc':
            pid = os.fork()
            if pid: os.waitpid(pid, 0); print(name, flush=True); os._exit(0)
        print('last', flush=True)
        """,
        traces=1,
        shows="last",
    ),
    program(
        "the parent ends first",
        """
        import os, time
        r, w = os.pipe()
        if os.fork():
            os._exit(0)
        time.sleep(.2); print('child', flush=True)
        """,
        shows="child",
    ),
    program(
        "daemon in two forks",
        """
        import os, sys
        if os.fork(): os._exit(0)
        os.setsid()
        if os.fork(): os._exit(0)
        null = os.open('/dev/null', os.O_RDWR); os.dup2(null, 0)
        open('seen', 'w').write('daemon'); print('daemon', flush=True)
        """,
        outputs=("seen",),
        shows="daemon",
    ),
    program(
        "fork handlers' order",
        """
        import os
        def before(): print('before', flush=True)
        def parent(): os.wait(); print('parent', flush=True)
        def child(): print('child', flush=True)
        os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)
        pid = os.fork()
        if pid == 0: os._exit(0)
        """,
        shows="before",
        fixed=True,
    ),
    program(
        "fork handler that raises",
        """
        import os
        os.register_at_fork(after_in_parent=lambda: 1/0)
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        """,
        shows="Exception ignored",
    ),
    program(
        "fork in a thread",
        """
        import os, threading
        def f():
            pid = os.fork()
            if pid == 0: os._exit(4)
            print(os.waitpid(pid, 0)[1] >> 8)
        t = threading.Thread(target=f); t.start(); t.join()
        """,
        command="python -W always @ s.py",
        shows="4",
        fixed=True,
    ),
    program(
        "fork beside a thread, warnings as errors",
        """
        import os, threading, time
        threading.Thread(target=time.sleep, args=(.3,)).start()
        try:
            pid = os.fork()
        except DeprecationWarning as e:
            print(type(e).__name__); raise SystemExit
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0); print('no warning')
        """,
        command="python -W error @ s.py",
        traces=1,
        normal=((r"^DeprecationWarning\n(?=DeprecationWarning)", ""),),
    ),
    program(
        "fork without threads, warnings as errors",
        """
        import os
        for _ in range(20):
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
        print('end')
        """,
        command="python -W error @ s.py",
        shows="end",
        fixed=True,
    ),
    program(
        "forkpty",
        """
        import os
        pid, fd = os.forkpty()
        if pid == 0:
            print('on a terminal', os.isatty(1), flush=True); os._exit(0)
        seen = b''
        while not seen.endswith(b'\\n'): seen += os.read(fd, 100)
        print(seen); os.waitpid(pid, 0)
        """,
        command="python -W error @ s.py",
        shows="True",
        fixed=True,
    ),
    program(
        "pty.spawn",
        """
        import pty
        print(pty.spawn(['echo', 'a']))
        """,
        shows="a",
    ),
    program(
        "fork followed",
        """
        import os
        pid = os.fork()
        if pid == 0: print('child')
        else: os.waitpid(pid, 0)
        """,
        options="--follow",
        traces=2,
        shows="child",
    ),
    program(
        "fork followed, child by os._exit",
        """
        import os
        pid = os.fork()
        if pid == 0: os._exit(3)
        print(os.waitpid(pid, 0)[1] >> 8)
        """,
        options="--follow",
        traces=2,
        shows="3",
    ),
    program(
        "Python followed",
        """
        import subprocess, sys
        print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)
        """,
        options="--follow",
        traces=2,
        shows="5",
    ),
]
