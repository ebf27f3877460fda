"""Another image in place of the program."""

from evidence.fidelity.case import program

CASES = [
    # Another image.
    program(
        "exec",
        """
        import os, sys
        print('a', flush=True)
        new = 'import os; print(sorted(k for k in os.environ if "CUP" in k)); exit(9)'
        os.execv(sys.executable, [sys.executable, '-c', new])
        """,
        code=9,
        fixed=True,
    ),
    program(
        "exec of another program",
        """
        import os
        os.execvp('echo', ['echo', 'other'])
        """,
        shows="other",
    ),
    program(
        "exec with an environment",
        """
        import os
        os.execve('/usr/bin/env', ['env'], {'A': '1'})
        """,
        shows="A=1",
    ),
    program(
        "exec of what is not there, then on",
        """
        import os, torch_or_not
        for call in (os.execv, lambda p, a: os.execve(p, a, os.environ)):
            try: call('/not/there', ['x'])
            except OSError as e: print(e)
        print('on'); pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        """,
        files={"torch_or_not.py": ""},
        shows="on",
        fixed=True,
    ),
    program(
        "exec in a thread",
        """
        import os, threading
        t = threading.Thread(target=os.execvp, args=('echo', ['echo', 'other'])); t.start(); t.join()
        """,
        shows="other",
    ),
    program(
        "exec in a child",
        """
        import os
        pid = os.fork()
        if pid == 0: os.execvp('echo', ['echo', 'other'])
        os.waitpid(pid, 0)
        """,
        shows="other",
    ),
    program(
        "exec in atexit",
        """
        import atexit, os
        atexit.register(os.execvp, 'echo', ['echo', 'other'])
        """,
        shows="other",
    ),
    program(
        "exec followed",
        """
        import os, sys
        print('image', sys.argv[1:], flush=True)
        if len(sys.argv) < 3: os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])
        """,
        options="--follow",
        traces=3,
        shows="['again', 'again']",
    ),
    program(
        "exec followed, replacing traces",
        """
        import os, sys
        print('image', sys.argv[1:], flush=True)
        if len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])
        """,
        options="--follow -f",
        traces=2,
        shows="['again']",
    ),
    program(
        "exec of what is not there, followed",
        """
        import os
        try: os.execv('/not/there', ['x'])
        except OSError as e: print(e)
        print('on')
        """,
        options="--follow",
        shows="on",
    ),
    program(
        "exec with closed descriptors",
        """
        import os, sys
        os.closerange(3, 1000)
        os.execv(sys.executable, [sys.executable, '-c', 'print(2)'])
        """,
        shows="2",
    ),
    program(
        "exec under a trace function",
        """
        import os, sys
        sys.settrace(lambda *a: None)
        os.execvp('echo', ['echo', 'other'])
        """,
        shows="other",
    ),
]
