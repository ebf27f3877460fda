"""What programs do to a recorder that shares their process: its descriptors, files, folder and rights."""

from evidence.fidelity.case import program

OTHERS_FILES = """
import os
seen = []
for number in range(3, 200):
    try:
        os.fstat(number)
    except OSError:
        continue
    seen.append(number)
"""

# The recording's own files in shared memory, as a program finds them that cleans up there.
RINGS = """
import os
maps = open('/proc/self/maps').read()
rings = [e.path for e in os.scandir('/dev/shm') if e.path in maps]
"""

TRAIN = """
import torch
x = torch.ones(1000, requires_grad=True)
for _ in range(20): (x * 2).sum().backward()
print(x.grad.sum().item())
"""

MOUNT = "unshare -m sh -c"

CASES = [
    program(
        "descriptors closed",
        """
        import os
        os.closerange(3, 5000)
        print('on')
        """,
        traces=1,
        fixed=True,
    ),
    program(
        "descriptors closed and used again",
        """
        import os
        os.closerange(3, 300)
        files = [open(f'f{i}', 'w') for i in range(40)]
        for i in range(200):
            for f in files: f.write(f'{i}\\n')
        for f in files: f.close()
        print(all(open(f'f{i}').read() == ''.join(f'{j}\\n' for j in range(200)) for i in range(40)))
        """,
        shows="True",
        fixed=True,
    ),
    program(
        "descriptors closed in a child",
        """
        import os
        pid = os.fork()
        if pid == 0:
            os.closerange(3, 5000); print('child')
        else:
            os.waitpid(pid, 0)
        """,
        shows="child",
    ),
    program(
        "every descriptor closed, then fork",
        """
        import os
        os.closerange(3, 5000)
        pid = os.fork()
        if pid == 0: os._exit(0)
        print(os.waitpid(pid, 0)[1])
        """,
        shows="0",
    ),
    program(
        "every other descriptor written to",
        """
        for number in seen:
            try: os.write(number, b'x' * 64)
            except OSError: pass
        print('on')
        """,
        before=OTHERS_FILES,
        shows="on",
    ),
    program(
        "every other descriptor truncated",
        """
        for number in seen:
            try: os.ftruncate(number, 0)
            except OSError: pass
        print('on')
        """,
        before=OTHERS_FILES,
        shows="on",
        traces=None,  # the trace is empty, and a line says so
    ),
    program(
        "every other descriptor made blocking or not",
        """
        for n in seen: os.set_blocking(n, False)
        print('on')
        """,
        before=OTHERS_FILES,
        shows="on",
    ),
    program(
        "shared memory emptied",
        """
        for f in rings: os.truncate(f, 0)
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0); print('on')
        """,
        before=RINGS,
        shows="on",
        traces=None,
        fixed=True,
    ),
    program(
        "shared memory emptied in training",
        RINGS + "for f in rings: os.truncate(f, 4096)\n" + TRAIN,
        shows="40000.0",
        traces=None,
        needs=("torch",),
    ),
    program(
        "shared memory removed",
        """
        for f in rings: os.remove(f)
        print('on')
        """,
        before=RINGS,
        shows="on",
    ),
    program(
        "trace truncated",
        """
        import os
        for f in __import__('glob').glob('../traces/*'): os.truncate(f, 0)
        print('on')
        """,
        shows="on",
        traces=None,
    ),
    program(
        "trace removed",
        """
        import os
        for f in __import__('glob').glob('../traces/*'): os.remove(f)
        print('on')
        """,
        shows="on",
        traces=0,
        fixed=True,
    ),
    program(
        "trace replaced",
        """
        import glob, os
        for f in glob.glob('../traces/*'):
            os.rename(f, 'theirs'); open(f, 'w').write('mine')
        print('on')
        for f in glob.glob('theirs'): os.remove(f)
        """,
        shows="on",
        traces=None,
    ),
    program(
        "folder of the trace removed",
        """
        import shutil
        shutil.rmtree('../traces')
        print('on')
        """,
        shows="on",
        traces=0,
    ),
    program(
        "memory locked",
        """
        import ctypes
        print(ctypes.CDLL(None).mlockall(2))
        """,
        needs=("root",),
    ),
    # Where it runs.
    program(
        "folder that is gone",
        """
        import os
        try: os.getcwd()
        except OSError as e: print(e)
        """,
        command="mkdir d; cd d; rmdir ../d; exec python @ {work}/s.py",
        shell=True,
        shows="No such file",
    ),
    program(
        "folder removed in the run",
        """
        import os
        os.mkdir('d'); os.chdir('d'); os.rmdir('../d')
        print('on')
        """,
        shows="on",
        fixed=True,
    ),
    program(
        "folder changed",
        """
        import os
        os.mkdir('d'); os.chdir('d'); print(os.listdir())
        """,
        traces=1,
        fixed=True,
    ),
    program(
        "folder changed, default name",
        """
        import os
        os.mkdir('d'); os.chdir('d'); print(os.listdir())
        """,
        options="-f -o {work}/../traces/other.{pid}.cmem",
    ),
    program(
        "read-only folder",
        "print('on')",
        command="chmod 555 .; exec setpriv --reuid 65534 --clear-groups python @ s.py",
        shell=True,
        needs=("other user",),
        shows="on",
    ),
    program(
        "another user",
        """
        import os
        os.setgid(65534); os.setuid(65534)
        print(os.getuid())
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
        """,
        needs=("root",),
        shows="65534",
    ),
    program(
        "effective user changed",
        """
        import os
        os.seteuid(65534); print(os.geteuid())
        """,
        needs=("root",),
        shows="65534",
    ),
    program(
        "chroot",
        """
        import os
        os.chroot('.'); os.chdir('/'); print(os.listdir())
        """,
        needs=("root",),
        shows="s.py",
    ),
    program(
        "chroot and a failure",
        """
        import os
        os.chroot('.')
        def f(): 1/0
        f()
        """,
        needs=("root",),
        code=1,
        shows="ZeroDivisionError",
    ),
    program(
        "not dumpable",
        """
        import ctypes
        print(ctypes.CDLL(None).prctl(4, 0))
        """,
        shows="0",
    ),
    program(
        "no new privileges",
        """
        import ctypes
        print(ctypes.CDLL(None).prctl(38, 1, 0, 0, 0))
        """,
        shows="0",
    ),
    program(
        "no temporary folder",
        """
        import tempfile
        try: print(tempfile.gettempdir())
        except OSError as e: print(e)
        """,
        environment={"TMPDIR": "/not/there"},
    ),
    program(
        "temporary folder removed",
        """
        import os, shutil
        shutil.rmtree(os.environ['TMPDIR'])
        print('on')
        """,
        shows="on",
    ),
    program(
        "temporary folder removed, with a profile of its own",
        """
        import cuptimem, os, shutil
        with cuptimem.profile() as p:
            shutil.rmtree(os.environ['TMPDIR'])
        print('on')
        """,
        shows="on",
    ),
    program(
        "no home",
        """
        import os
        print(os.path.expanduser('~'))
        """,
        command="env -u HOME python @ s.py",
    ),
    program(
        "umask of all",
        """
        import os
        open('f', 'w').close(); print(os.stat('f').st_mode, os.umask(0))
        """,
        command="umask 777; exec python @ s.py",
        shell=True,
        needs=("root",),
    ),
    program(
        "umask of none",
        """
        import os
        os.umask(0)
        open('f', 'w').close(); print(os.stat('f').st_mode)
        """,
    ),
    program(
        "names of the kernel's files away",
        "print('on')",
        command=f"{MOUNT} 'mount -t tmpfs none /proc; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare"),
        shows="on",
        traces=None,
    ),
    program(
        "shared memory of 64 KiB",
        "print('on')",
        command=f"{MOUNT} 'mount -t tmpfs -o size=64k none /dev/shm; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare"),
        shows="on",
    ),
    program(
        "shared memory of 64 MiB with four workers",
        """
        import torch
        from torch.utils.data import DataLoader
        data = torch.zeros(64, 250_000)
        if __name__ == '__main__':
            for i, batch in enumerate(DataLoader(data, batch_size=4, num_workers=4)): print(i, batch.shape)
        """,
        command=f"{MOUNT} 'mount -t tmpfs -o size=64m none /dev/shm; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare", "torch"),
        shows="15 torch.Size",
    ),
    program(
        "shared memory of 64 MiB with four followed workers",
        """
        import torch
        from torch.utils.data import DataLoader
        data = torch.zeros(64, 250_000)
        if __name__ == '__main__':
            for i, batch in enumerate(DataLoader(data, batch_size=4, num_workers=4)): print(i, batch.shape)
        """,
        command=f"{MOUNT} 'mount -t tmpfs -o size=64m none /dev/shm; exec python @ s.py'",
        shell=True,
        options="--follow",
        needs=("root", "$unshare", "torch"),
        shows="15 torch.Size",
        traces=5,
    ),
    program(
        "no shared memory",
        "print('on')",
        command=f"{MOUNT} 'mount -t tmpfs -o ro none /dev/shm; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare"),
        shows="on",
    ),
    program(
        "disk of 64 KiB for the trace",
        "import torch\n" + TRAIN,
        command=f"{MOUNT} 'mount -t tmpfs -o size=64k none ../traces; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare", "torch"),
        shows="40000.0",
        traces=0,
    ),
    program(
        "disk of 4 KiB for the trace",
        "print('on')",
        command=f"{MOUNT} 'mount -t tmpfs -o size=4k none ../traces; exec python @ s.py'",
        shell=True,
        needs=("root", "$unshare"),
        shows="on",
        traces=0,
    ),
]
