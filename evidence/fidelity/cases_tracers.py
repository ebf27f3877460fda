"""Debuggers, tracers, profilers and allocators, each beside every way to make a process."""

from evidence.fidelity.case import Case, program

# The line that torch.profiler writes has a time and its process and thread.
KINETO = ((r"^\w+:[\d-]+ [\d:]+ \d+:\d+ ", "KINETO "),)

# name: lines before the program's body, lines after it
WITHIN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "sys.settrace": ("import sys\ndef tracer(*a): return tracer\nsys.settrace(tracer)", "sys.settrace(None)", ()),
    "threading.settrace": (
        "import sys, threading\ndef tracer(*a): return tracer\nthreading.settrace(tracer); sys.settrace(tracer)",
        "",
        (),
    ),
    "sys.setprofile": ("import sys\ndef profiler(*a): pass\nsys.setprofile(profiler)", "sys.setprofile(None)", ()),
    "threading.setprofile": (
        "import sys, threading\ndef profiler(*a): pass\nthreading.setprofile(profiler); sys.setprofile(profiler)",
        "",
        (),
    ),
    "cProfile": ("import cProfile\nprof = cProfile.Profile(); prof.enable()", "prof.disable()", ()),
    "bdb": (
        "import bdb, sys\nclass B(bdb.Bdb):\n    def user_line(self, f): self.set_step()\n"
        "b = B(); b.reset(); sys.settrace(b.trace_dispatch)",
        "sys.settrace(None)",
        (),
    ),
    "sys.monitoring": (
        "import sys\nmon = sys.monitoring; mon.use_tool_id(3, 'x')\n"
        "events = mon.events.LINE, mon.events.PY_START, mon.events.CALL\n"
        "for e in events: mon.register_callback(3, e, lambda *a: None)\nmon.set_events(3, sum(events))",
        "mon.set_events(3, 0)",
        ("3.12+",),
    ),
    "tracemalloc": ("import tracemalloc\ntracemalloc.start(25)", "tracemalloc.stop()", ()),
    "torch.profiler": (
        "import torch\nfrom torch.profiler import profile, ProfilerActivity\n"
        "prof = profile(activities=[ProfilerActivity.CPU], with_stack=True); prof.start()",
        "prof.stop()",
        ("torch",),
    ),
}
JEMALLOC = "env LD_PRELOAD={libjemalloc.so.2} MALLOC_CONF=prof:true,prof_prefix:{work}/../jeprof,prof_final:true"
MEMRAY = ((r"^(\[memray\]|Writing profile|.*memray ).*\n|^\n", ""),)  # it names its file and its pid
COVERAGE = {"processes.ini": "[run]\nconcurrency = multiprocessing, thread\nparallel = true\ndata_file = ../cover\n"}
# name: command, needs, what cannot be equal
AROUND: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "-m trace --count": ("python @ -m trace --count --coverdir=../cover --missing s.py", (), ()),
    "-m trace --trackcalls": ("python @ -m trace --trackcalls s.py", (), ()),
    "-m cProfile": ("python @ -m cProfile -o ../stats s.py", (), ()),
    "-m profile": ("python @ -m profile -o ../stats s.py", (), ()),
    "-m pdb": ("python @ -m pdb -c continue -c quit s.py", (), ()),
    "coverage": ("python @ -m coverage run --data-file=../cover s.py", ("coverage",), ()),
    "coverage in Python": ("python @ -m coverage run --timid --data-file=../cover s.py", ("coverage",), ()),
    "coverage of processes": (
        "python @ -m coverage run --rcfile=processes.ini s.py",
        ("coverage",),
        (),
    ),
    "coverage by sys.monitoring": (
        "env COVERAGE_CORE=sysmon python @ -m coverage run --data-file=../cover s.py",
        ("coverage", "3.12+"),
        (),
    ),
    "debugpy": ("python -Xfrozen_modules=off @ -m debugpy --listen 0 s.py", ("debugpy",), ()),
    "memray": (
        "python @ -m memray run -f -o ../m.bin s.py",
        ("memray",),
        MEMRAY,
    ),
    "memray --native": (
        "python @ -m memray run --native -f -o ../m.bin s.py",
        ("memray",),
        MEMRAY,
    ),
    "memray --follow-fork": (
        "python @ -m memray run --native --follow-fork -f -o ../m.bin s.py",
        ("memray",),
        MEMRAY,
    ),
    "memray --trace-python-allocators": (
        "python @ -m memray run --trace-python-allocators -f -o ../m.bin s.py",
        ("memray",),
        MEMRAY,
    ),
    "viztracer": ("python @ -m viztracer --quiet -o ../v.json s.py", ("viztracer",), ()),
    "viztracer of one process": (
        "python @ -m viztracer --quiet --ignore_multiprocess -o ../v.json s.py",
        ("viztracer",),
        (),
    ),
    "pyinstrument": ("python @ -m pyinstrument -o ../p.txt s.py", ("pyinstrument",), ()),
    "kernprof": ("python @ -m kernprof -q -o ../k s.py", ("line_profiler",), ()),
    "ipython": ("python @ -m IPython --no-banner --colors=NoColor s.py", ("IPython",), ()),
    "tcmalloc": ("env LD_PRELOAD={libtcmalloc.so.4} python @ s.py", ("libtcmalloc.so.4",), ()),
    "tcmalloc's heap profile": (
        "env LD_PRELOAD={libtcmalloc.so.4} HEAPPROFILE={work}/../heap python @ s.py",
        ("libtcmalloc.so.4",),
        ((r"^(Starting tracking|Dumping heap).*\n", ""),),
    ),
    "jemalloc": ("env LD_PRELOAD={libjemalloc.so.2} python @ s.py", ("libjemalloc.so.2",), ()),
    "jemalloc's profile": (
        f"{JEMALLOC},lg_prof_sample:0 python @ s.py",
        ("libjemalloc.so.2",),
        (),
    ),
    "checking malloc": (
        "env LD_PRELOAD={libc_malloc_debug.so.0} MALLOC_CHECK_=3 python @ s.py",
        ("libc_malloc_debug.so.0",),
        (),
    ),
}

CALLERS = "what waits for torch, and for what starts processes, is a finder that asks the others: it is their caller"

# name: the body, indented by its block; what it needs
BODIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "os.fork": (
        "import os\nfor i in range(3):\n    pid = os.fork()\n    if pid == 0: os._exit(i)\n"
        "    print(os.waitpid(pid, 0)[1] >> 8, flush=True)",
        (),
    ),
    "fork": (
        "import multiprocessing as m\nc = m.get_context('fork'); p = c.Process(target=print, args=('child',))\n"
        "p.start(); p.join(); print(p.exitcode)",
        (),
    ),
    "spawn": (
        "import multiprocessing as m\nc = m.get_context('spawn'); p = c.Process(target=print, args=('child',))\n"
        "p.start(); p.join(); print(p.exitcode)",
        (),
    ),
    "forkserver": (
        "import multiprocessing as m\nc = m.get_context('forkserver'); p = c.Process(target=print, args=('child',))\n"
        "p.start(); p.join(); print(p.exitcode)",
        (),
    ),
    "workers": (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "print([b.tolist() for b in DataLoader(list(range(6)), batch_size=2, num_workers=2)])",
        ("torch",),
    ),
}


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def _within() -> list[Case]:
    return [
        program(
            f"{body} under {tool}",
            "if __name__ == '__main__':\n" + _indented(f"{before}\n{text}\n{after}\nprint('end')"),
            needs=(*needs, *wants),
            shows="end",
            fixed=body == "os.fork" and not wants,
            timeout=60 if body != "workers" else 120,
            normal=KINETO if tool == "torch.profiler" else (),
        )
        for tool, (before, after, wants) in WITHIN.items()
        for body, (text, needs) in BODIES.items()
    ]


def _around() -> list[Case]:
    found = []
    for tool, (command, wants, normal) in AROUND.items():
        for body, (text, needs) in BODIES.items():
            found.append(
                program(
                    f"{body} under {tool}",
                    "if __name__ == '__main__':\n" + _indented(f"{text}\nprint('end')"),
                    files=COVERAGE if tool == "coverage of processes" else {},
                    command=command,
                    needs=(*needs, *wants),
                    # Under pdb the program has no spec, and multiprocessing says so.
                    shows="" if tool == "-m pdb" and body in ("spawn", "forkserver") else "end",
                    normal=normal,
                    known=CALLERS if tool == "-m trace --trackcalls" and body != "os.fork" else "",
                    timeout=180 if body != "workers" else 900,
                )
            )
    return found


CASES = [*_within(), *_around()]
