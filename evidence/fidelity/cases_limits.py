"""Limits, and system calls that fail."""

from evidence.fidelity.case import program

TRAIN = """
import torch
x = torch.ones(1000, requires_grad=True)
for _ in range(20): (x * 2).sum().backward()
print(x.grad.sum().item())
"""


CASES = [
    # Limits.
    program(
        "limit: no descriptors",
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        print('on')
        """,
        shows="on",
    ),
    program(
        "limit: 8 descriptors",
        """
        import os
        n = []
        try:
            while True: n.append(os.dup(0))
        except OSError as e: print(e.strerror, len(n))
        """,
        command="ulimit -n 8; exec python @ s.py",
        shell=True,
        known="the trace and the ring are two open files of the process",
        shows="Too many",
        traces=None,
    ),
    program(
        "limit: 64 descriptors",
        """
        import os
        n = []
        try:
            while True: n.append(os.dup(0))
        except OSError as e: print(e.strerror, len(n))
        """,
        command="ulimit -n 64; exec python @ s.py",
        shell=True,
        known="the trace and the ring are two open files of the process",
        shows="Too many",
    ),
    program(
        "limit: 200 MB of address space",
        "print('on')",
        command="ulimit -v 200000; exec python @ s.py",
        shell=True,
        shows="on",
    ),
    program(
        "limit: 60 MB of address space",
        "print('on')",
        command="ulimit -v 60000; exec python @ s.py",
        shell=True,
        shows="on",
        traces=None,
    ),
    program(
        "limit: address space is used up",
        """
        x = []
        try:
            while True: x.append(bytearray(10_000_000))
        except MemoryError: n = len(x); x.clear(); print('full')
        """,
        command="ulimit -v 1000000; exec python @ s.py",
        shell=True,
        shows="full",
    ),
    program(
        "limit: address space for torch",
        TRAIN,
        command="ulimit -v 6000000; exec python @ s.py",
        shell=True,
        shows="40000.0",
        needs=("torch",),
    ),
    program(
        "limit: address space lowered in the run",
        """
        import resource, threading
        resource.setrlimit(resource.RLIMIT_AS, (1 << 27, -1))
        try: threading.Thread(target=print).start()
        except (RuntimeError, MemoryError) as e: print(e)
        print('on')
        """,
        shows="on",
    ),
    program(
        "limit: files of 100 KiB",
        """
        try:
            with open('f', 'wb') as f: f.write(b'x' * 1_000_000)
        except OSError as e: print(e.strerror)
        """,
        command="ulimit -f 200; exec python @ s.py",
        shell=True,
        shows="File too large",
        traces=None,
    ),
    program(
        "limit: files of no bytes",
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        print('on')
        """,
        shows="on",
        traces=None,
    ),
    program(
        "limit: processes",
        """
        import os
        try: os.fork()
        except OSError as e: print(e.strerror)
        """,
        command="setpriv --reuid 64999 --clear-groups prlimit --nproc=1 python @ s.py",
        needs=("other user", "$prlimit"),
        shows="temporarily unavailable",
        traces=None,
    ),
    program(
        "limit: threads",
        """
        import threading
        try: threading.Thread(target=print).start()
        except RuntimeError as e: print(e)
        """,
        command="setpriv --reuid 64998 --clear-groups prlimit --nproc=2 python @ s.py",
        needs=("other user", "$prlimit"),
        traces=None,
    ),
    program(
        "limit: stack",
        """
        def f(n):
            return n and f(n - 1)
        print(f(900))
        """,
        command="ulimit -s 1024; exec python @ s.py",
        shell=True,
        shows="0",
    ),
    program(
        "limit: unlimited stack",
        "print('on')",
        command="ulimit -s unlimited; exec python @ s.py",
        shell=True,
        shows="on",
    ),
    program("limit: data", "print('on')", command="ulimit -d 100000; exec python @ s.py", shell=True, shows="on"),
    program("limit: locked memory", "print('on')", command="ulimit -l 0; exec python @ s.py", shell=True, shows="on"),
    program(
        "limit: core files",
        """
        import os
        os.abort()
        """,
        command="ulimit -c 0; exec python @ s.py",
        shell=True,
        code=-6,
    ),
    program(
        "lowest priority",
        """
        import os
        print(os.nice(0))
        """,
        command="nice -n 19 python @ s.py",
        shell=True,
        shows="19",
    ),
    program(
        "one processor",
        """
        import os
        print(len(os.sched_getaffinity(0)))
        """,
        command="taskset -c 0 python @ s.py",
        needs=("$taskset",),
        shows="1",
    ),
    program(
        "batch scheduling",
        """
        import os
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        print(os.sched_getscheduler(0))
        """,
        shows="5",
    ),
    program(
        "no randomness from the kernel",
        "print('on')",
        command="strace -f -qq -o /dev/null -e trace=getrandom -e inject=getrandom:error=ENOSYS:when=2+ python @ s.py",
        needs=("$strace",),
        shows="on",
        traces=0,  # a line says which call is refused
        timeout=120,
    ),
    program(
        "no advice to the kernel",
        "print('on')",
        command="strace -f -qq -o /dev/null -e trace=madvise -e inject=madvise:error=EINVAL python @ s.py",
        needs=("$strace",),
        shows="on",
        traces=0,  # a line says which call is refused
        timeout=120,
    ),
    program(
        "no memory file, no shared file",
        "print('on')",
        command="strace -f -qq -o /dev/null -e trace=memfd_create,fallocate "
        "-e inject=memfd_create,fallocate:error=EOPNOTSUPP python @ s.py",
        needs=("$strace",),
        shows="on",
        timeout=120,
    ),
    program(
        "traced by strace",
        "print('on')",
        command="strace -f -qq -o /dev/null python @ s.py",
        needs=("$strace",),
        shows="on",
        timeout=120,
    ),
]
