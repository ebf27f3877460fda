"""Threads, interpreters within the process, event loops, sockets."""

from evidence.fidelity.case import program

CASES = [
    # Threads, interpreters, loops.
    program(
        "threads that come and go",
        """
        import threading
        for i in range(300):
            t = threading.Thread(target=int); t.start(); t.join()
        print(threading.active_count())
        """,
    ),
    program(
        "threads of _thread",
        """
        import _thread, time
        seen = []
        _thread.start_new_thread(seen.append, (1,))
        while not seen: time.sleep(.01)
        print(_thread._count())
        """,
    ),
    program(
        "thread names",
        """
        import threading
        for _ in range(3):
            t = threading.Thread(target=lambda: print(threading.current_thread().name)); t.start(); t.join()
        """,
        shows="Thread-3",
        fixed=True,
    ),
    program(
        "stack size of threads",
        """
        import threading
        print(threading.stack_size(1 << 16))
        t = threading.Thread(target=print, args=('small',)); t.start(); t.join()
        """,
        shows="small",
    ),
    program(
        "small stack of threads beside torch",
        """
        import threading, torch
        threading.stack_size(1 << 18)
        def f(): print(torch.ones(3).sum().item())
        t = threading.Thread(target=f); t.start(); t.join()
        """,
        needs=("torch",),
        shows="3.0",
    ),
    program(
        "subinterpreter",
        """
        import sys
        if sys.version_info >= (3, 13): import _interpreters as i
        else: import _xxsubinterpreters as i
        a = i.create()
        i.run_string(a, 'import sys; print(sorted(m for m in sys.modules if "cup" in m), flush=True)')
        i.destroy(a)
        print('end')
        """,
        shows="end",
        fixed=True,
    ),
    program(
        "subinterpreter left alive",
        """
        import sys
        if sys.version_info >= (3, 13): import _interpreters as i
        else: import _xxsubinterpreters as i
        i.run_string(i.create(), 'import atexit; atexit.register(print, "sub", flush=True); x = 1')
        print('end', flush=True)
        """,
        shows="end",
    ),
    program(
        "subinterpreter whose code raises",
        """
        import sys
        if sys.version_info >= (3, 13): import _interpreters as i
        else: import _xxsubinterpreters as i
        a = i.create()
        try: print(type(i.run_string(a, '1/0')).__name__)
        except Exception as e: print(type(e).__name__, e)
        """,
    ),
    program(
        "subinterpreter that imports us",
        """
        import sys
        if sys.version_info >= (3, 13): import _interpreters as i
        else: import _xxsubinterpreters as i
        i.run_string(i.create(), 'import cuptimem; print("in", flush=True)')
        """,
        shows="in",
    ),
    program(
        "asyncio",
        """
        import asyncio
        async def f(x):
            await asyncio.sleep(.01)
            return x
        async def main():
            print(await asyncio.gather(*map(f, range(3))))
        asyncio.run(main())
        """,
        shows="[0, 1, 2]",
    ),
    program(
        "asyncio in debug mode",
        """
        import asyncio
        async def f(): raise ValueError(1)
        async def main():
            t = asyncio.create_task(f(), name='t')
            await asyncio.sleep(.01)
        asyncio.run(main(), debug=True)
        """,
        shows="never retrieved",
        code=0,
    ),
    program(
        "asyncio's children",
        """
        import asyncio
        async def main():
            p = await asyncio.create_subprocess_exec('echo', 'a', stdout=-1)
            print((await p.communicate())[0], p.returncode)
        asyncio.run(main())
        """,
        shows="b'a",
    ),
    program(
        "asyncio in a thread",
        """
        import asyncio, threading
        async def f(): print(threading.current_thread().name)
        t = threading.Thread(target=lambda: asyncio.run(f()), name='T'); t.start(); t.join()
        """,
        shows="T",
    ),
    program(
        "socket server and client",
        """
        import socket, threading
        s = socket.create_server(('127.0.0.1', 0))
        def f():
            c, _ = s.accept(); c.sendall(b'hello'); c.close()
        t = threading.Thread(target=f); t.start()
        print(socket.create_connection(s.getsockname()).recv(10)); t.join()
        """,
        shows="hello",
    ),
    program(
        "descriptor sent to a child",
        """
        import os, socket
        a, b = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _, fds, _, _ = socket.recv_fds(b, 10, 1); os.write(fds[0], b'sent\\n'); os._exit(0)
        socket.send_fds(a, [b'x'], [1]); os.waitpid(pid, 0)
        """,
        shows="sent",
    ),
    program(
        "no children to wait for",
        """
        import os
        try: os.waitpid(-1, 0)
        except ChildProcessError as e: print(e)
        """,
        shows="No child",
    ),
    program(
        "process group",
        """
        import os
        print(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())
        """,
        shows="True True",
    ),
    program(
        "usage of children",
        """
        import os, resource
        for _ in range(3):
            pid = os.fork()
            if pid == 0: os._exit(0)
            print(os.wait4(pid, 0)[1])
        """,
    ),
    program(
        "death with the parent",
        """
        import ctypes
        ctypes.CDLL(None).prctl(1, 15)
        print('on')
        """,
        shows="on",
    ),
]
