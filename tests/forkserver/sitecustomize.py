"""Imported by every Python that finds it, before its main script: see __init__.py. Requests come on standard input."""

import atexit
import ctypes
import gc
import json
import os
import sys

KEPT = {"__main__", "builtins", "sys"}  # the interpreter ends them itself
HERE = os.path.dirname(os.path.abspath(__file__))


def serve() -> None:
    """Returns in each child, which becomes what was asked for."""
    for name in os.environ.pop("FORKSERVER_IMPORTS", "").split():
        __import__(name)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    alone = len(os.listdir("/proc/self/task")) == 1  # a fork would lose other threads
    if not alone:
        sys.exit("an import has started threads")
    if not os.environ.get("FORKS_END_WHOLE"):
        end_quickly()
    gc.collect()
    gc.freeze()
    os.write(answers, b'{"ready": true}\n')
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(answers)
            become(json.loads(line))
            return
        os.write(answers, b'{"pid": %d}\n' % pid)
        os.write(answers, b'{"status": %d}\n' % os.waitpid(pid, 0)[1])
    os._exit(0)


def end_quickly() -> None:
    """Half a second of each child would go into visiting and freeing PyTorch's objects and into C++ destructors of its
    libraries, all copied on write. What programs and libraries registered later comes before both."""
    imported = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in KEPT}
    atexit.register(leave, imported)
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # with exit's code
    libc.__cxa_atexit(libc.fflush, None, None)


def leave(imported: dict) -> None:
    """Modules that are not in sys.modules, and to which one reference too many is held, are not cleared at the end."""
    gc.freeze()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(imported))
    for name, module in imported.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def hide() -> None:
    """Of what was imported, 200,000 objects of PyTorch's mostly, recordings see what programs put things into: neither
    walks nor collections visit the others, nor copy their pages. Where a program freezes objects, all are seen."""
    main, api = sys.modules["__main__"], ctypes.pythonapi
    for seen in (main, main.__dict__, sys.modules):
        api.PyObject_GC_UnTrack(ctypes.py_object(seen))  # from the list that freeze() made
        api.PyObject_GC_Track(ctypes.py_object(seen))
    count, freeze = gc.get_freeze_count, gc.freeze

    def freeze_too() -> None:
        freeze()
        gc.get_freeze_count = count

    gc.get_freeze_count, gc.freeze = int, freeze_too  # as if nothing were frozen


def become(request: dict) -> None:
    streams = ((os.devnull, os.O_RDONLY), (request["out"], os.O_WRONLY), (request["err"], os.O_WRONLY))
    for number, (path, mode) in enumerate(streams):
        opened = os.open(path, mode | (os.O_CREAT | os.O_TRUNC if mode else 0), 0o600)
        os.dup2(opened, number)
        os.close(opened)
    if request["environment"].pop("FORKS_SEE_ALL", ""):
        gc.unfreeze()
    else:
        hide()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv[1:] = request["arguments"]
    sys.path.remove(HERE)
    if {"CUPTIMEM", "CUPTIMEM_SIM_CHILD"} & os.environ.keys():  # as cuptimem.pth, which has been read
        from cuptimem.record import autostart

        autostart.start()


serve()
