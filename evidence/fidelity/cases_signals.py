"""Signals, from outside and from the program itself."""

import signal

from evidence.fidelity.case import program

WAITING = """
import atexit, time
atexit.register(print, 'atexit', flush=True)
try:
    print('ready', flush=True)
    time.sleep(60)
finally:
    print('finally', flush=True)
"""

CASES = [
    *(
        program(
            f"{number.name} from outside",
            WAITING,
            signals=(number,),
            code=-number,
            fixed=number.name in ("SIGINT", "SIGKILL", "SIGTERM", "SIGHUP"),
        )
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGKILL,
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGALRM,
            signal.SIGVTALRM,
            signal.SIGPROF,
            signal.SIGXCPU,
        )
    ),
    *(
        program(
            f"{number.name} by itself",
            f"import os\nprint('a', flush=True)\nos.kill(os.getpid(), {number})\n",
            code=-number,
        )
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGRTMIN)
    ),
    program(
        "SIGINT by itself",
        """
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
        print('on')
        """,
        code=-2,
        fixed=True,
    ),
    program(
        "SIGINT twice",
        """
        import time
        try:
            print('ready', flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print('once', flush=True)
        print('ready', flush=True)
        time.sleep(60)
        """,
        signals=(signal.SIGINT, signal.SIGINT),
        code=-2,
        shows="once",
        fixed=True,
    ),
    program(
        "SIGINT caught",
        """
        import time
        try:
            print('ready', flush=True)
            time.sleep(60)
        except KeyboardInterrupt: print('caught')
        """,
        signals=(signal.SIGINT,),
        shows="caught",
    ),
    program(
        "SIGINT in atexit",
        """
        import atexit, time
        atexit.register(lambda: (print('ready', flush=True), time.sleep(60)))
        print('end')
        """,
        signals=(signal.SIGINT,),
        shows="KeyboardInterrupt",
    ),
    program(
        "SIGINT while waiting for a thread",
        """
        import threading, time
        threading.Thread(target=lambda: (print('ready', flush=True), time.sleep(1))).start()
        """,
        signals=(signal.SIGINT,),
        shows="KeyboardInterrupt",
        code=0,
    ),
    program(
        "SIGINT in asyncio",
        """
        import asyncio
        async def f():
            print('ready', flush=True)
            await asyncio.sleep(60)
        asyncio.run(f())
        """,
        signals=(signal.SIGINT,),
        code=-2,
        shows="KeyboardInterrupt",
    ),
    program(
        "SIGINT in asyncio with a handler",
        """
        import asyncio, signal
        async def f():
            done = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
            print('ready', flush=True)
            await done.wait()
            print('done')
        asyncio.run(f())
        """,
        signals=(signal.SIGTERM,),
        shows="done",
    ),
    program(
        "SIGINT ignored",
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print('ready', flush=True)
        time.sleep(.2)
        print('on')
        """,
        signals=(signal.SIGINT,),
        shows="on",
    ),
    program(
        "SIGINT ignored by the parent",
        """
        import signal
        print(signal.getsignal(signal.SIGINT))
        """,
        command="trap '' INT; exec python @ s.py",
        shell=True,
        shows="1",
    ),
    program(
        "signals blocked by the parent",
        """
        import signal
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """,
        files={
            "start.py": """
                import os, signal, sys
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
                os.execv(sys.argv[1], sys.argv[1:])
                """
        },
        command="python start.py python @ s.py",
        shows="SIGUSR1",
    ),
    program(
        "handler that exits",
        """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *a: sys.exit(6))
        signal.alarm(20)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        """,
        code=6,
        fixed=True,
    ),
    program(
        "handler that raises",
        """
        import os, signal
        def h(n, f): raise ValueError(n)
        signal.signal(signal.SIGUSR1, h)
        os.kill(os.getpid(), 10)
        """,
        code=1,
        shows="in h",
    ),
    program(
        "handler that was the default's",
        """
        import os, signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        """,
        code=-2,
    ),
    program(
        "SIGTERM while computing",
        """
        import time
        print('ready', flush=True)
        end = time.monotonic() + 50
        while time.monotonic() < end: pass
        """,
        signals=(signal.SIGTERM,),
        code=-15,
    ),
    program(
        "SIGTERM in a thread's handler",
        """
        import signal, threading, time, sys
        signal.signal(signal.SIGTERM, lambda *a: (print('handled', threading.current_thread().name), sys.exit(2)))
        threading.Thread(target=lambda: (print('ready', flush=True), time.sleep(.3))).start()
        time.sleep(60)
        """,
        signals=(signal.SIGTERM,),
        shows="handled MainThread",
        code=2,
    ),
    program(
        "stopped and continued",
        """
        import os, signal, subprocess, time
        subprocess.Popen(['sh', '-c', f'sleep .2; kill -CONT {os.getpid()}'])
        os.kill(os.getpid(), signal.SIGSTOP)
        print('on')
        """,
        shows="on",
    ),
    program(
        "interval timer",
        """
        import signal
        seen = []
        signal.signal(signal.SIGALRM, lambda *a: seen.append(1))
        signal.setitimer(signal.ITIMER_REAL, .01, .01)
        while len(seen) < 5: signal.pause()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(seen))
        """,
        shows="5",
    ),
    program(
        "profiling timer",
        """
        import signal
        seen = []
        signal.signal(signal.SIGPROF, lambda n, f: seen.append(f.f_code.co_name))
        signal.setitimer(signal.ITIMER_PROF, .01, .01)
        def work():
            while len(seen) < 5: sum(range(1000))
        work()
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(set(seen))
        """,
    ),
    program(
        "wakeup descriptor",
        """
        import os, signal, socket
        a, b = socket.socketpair(); a.setblocking(False); b.setblocking(True)
        print(signal.set_wakeup_fd(a.fileno()))
        signal.signal(signal.SIGUSR1, lambda *x: print('handler'))
        os.kill(os.getpid(), signal.SIGUSR1)
        print(b.recv(1), signal.set_wakeup_fd(-1) == a.fileno())
        """,
        shows="b'\\n' True",
        fixed=True,
    ),
    program(
        "sigwait",
        """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        print(repr(signal.sigwait([signal.SIGUSR1])))
        """,
        shows="SIGUSR1",
    ),
    program(
        "sigtimedwait from outside",
        """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        print('ready', flush=True)
        print(signal.sigtimedwait([signal.SIGTERM], 30).si_signo)
        """,
        signals=(signal.SIGTERM,),
        shows="15",
        fixed=True,
    ),
    program(
        "interrupted calls",
        """
        import os, signal, time
        signal.signal(signal.SIGALRM, lambda *a: print('alarm', flush=True))
        signal.setitimer(signal.ITIMER_REAL, .1)
        r, w = os.pipe()
        if os.fork() == 0:
            time.sleep(.3); os.write(w, b'x'); os._exit(0)
        print(os.read(r, 1)); os.wait()
        """,
        shows="alarm",
    ),
    program(
        "SIGCHLD counted",
        """
        import signal, subprocess
        seen = []
        signal.signal(signal.SIGCHLD, lambda *a: seen.append(1))
        for _ in range(3): subprocess.run(['true'])
        print(len(seen))
        """,
        shows="3",
    ),
    program(
        "SIGCHLD ignored",
        """
        import os, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0: os._exit(3)
        try: print(os.waitpid(pid, 0))
        except ChildProcessError as e: print(e)
        """,
        shows="No child",
    ),
    program(
        "processor time used up",
        """
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (1, 5))
        while True: pass
        """,
        code=-24,
    ),
    program(
        "faulthandler on request",
        """
        import faulthandler, os, signal, sys
        faulthandler.register(signal.SIGUSR1)
        def f(): os.kill(os.getpid(), 10)
        f()
        """,
        shows="in f",
    ),
    program(
        "faulthandler after a time",
        """
        import faulthandler, time
        faulthandler.dump_traceback_later(.2)
        def f(): time.sleep(.6)
        f()
        """,
        shows="Timeout",
    ),
    program(
        "faulthandler's exit after a time",
        """
        import faulthandler, time
        faulthandler.dump_traceback_later(.2, exit=True)
        time.sleep(30)
        """,
        code=1,
        shows="Timeout",
    ),
    program(
        "Ctrl-C on a terminal",
        """
        import time
        try:
            print('ready', flush=True)
            time.sleep(60)
        finally: print('finally')
        """,
        terminal=True,
        signals=(signal.SIGINT,),
        code=-2,
        shows="KeyboardInterrupt",
        fixed=True,
    ),
    program(
        "Ctrl-C on a terminal, with a child",
        """
        import subprocess, sys
        print('started', flush=True)
        subprocess.run([sys.executable, '-c', 'import time; print("ready", flush=True); time.sleep(60)'])
        """,
        terminal=True,
        signals=(signal.SIGINT,),
        code=-2,
        shows="KeyboardInterrupt",
    ),
    program(
        "Ctrl-\\ on a terminal",
        """
        import time
        print('ready', flush=True)
        time.sleep(60)
        """,
        terminal=True,
        signals=(signal.SIGQUIT,),
        code=-3,
    ),
]
