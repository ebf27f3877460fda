"""The wall clock jumps; the counter is not to be trusted. Order and durations stay what they were."""

import platform
import subprocess

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <stdlib.h>
static long step_s;
void clock_step(long seconds) { step_s = seconds; }
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(id, t);
    if (status == 0 && id == CLOCK_REALTIME) t->tv_sec += step_s;
    return status;
}
/* A machine whose kernel has left the counter for another clock. */
int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (!real) real = dlsym(RTLD_NEXT, "open");
    if (getenv("OTHER_CLOCK") && strstr(path, "current_clocksource")) path = getenv("OTHER_CLOCK");
    return real(path, flags, mode);
}
"""

PROGRAM = """
import ctypes, time
step = ctypes.CDLL(os.environ["LD_PRELOAD"]).clock_step
with cuptimem.profile("run.cmem", overwrite=True) as prof:
    n, began = 0, time.monotonic()
    for i, seconds in enumerate((0, 86400, -86400, -10**9, 3, -3, 10**6, 0)):
        step(ctypes.c_long(seconds))
        n += core.capture_emit(2, 50, first=10 * i + 1)
        prof.step()
        core.capture_sync()
        time.sleep(0.06)
    took = time.monotonic() - began
events = [r for r in rows("run.cmem") if r.kind in ("alloc", "free")]
ticks = [r.time_ns for r in rows("run.cmem") if r.kind == "tick"]
gaps = [b - a for a, b in zip(ticks, ticks[1:])]
sorted_by_thread = all(a.time_ns <= b.time_ns for t in {r.thread for r in events}
                       for a, b in zip([r for r in events if r.thread == t], [r for r in events if r.thread == t][1:]))
found = heap("run.cmem")
report = prof.report
say(n=n, found=len(events), gaps=gaps, ordered=sorted_by_thread and ticks == sorted(ticks), lost=found["lost"],
    unknown=found["unknown"], took=took, steps=len(report.steps), complete=report.complete)
"""


def build(tmp_path):
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "shim.so", tmp_path / "shim.c", "-ldl"], check=True)
    return str(tmp_path / "shim.so")


def check(answer):
    assert answer["n"] == answer["found"] == 1600 and answer["lost"] == answer["unknown"] == 0 and answer["complete"]
    assert answer["ordered"]
    assert len(answer["gaps"]) == 7
    # Slept between two ticks; and all of them lie within what the monotonic clock has seen.
    assert min(answer["gaps"]) >= 0.06e9 and sum(answer["gaps"]) <= answer["took"] * 1e9


def test_steps_of_the_wall_clock(child, tmp_path):
    check(child(PROGRAM, LD_PRELOAD=build(tmp_path)))


def test_without_a_counter_that_can_be_trusted(child, tmp_path):
    for name in ("hpet\n",):
        (tmp_path / "source").write_text(name)
        check(child(PROGRAM, LD_PRELOAD=build(tmp_path), OTHER_CLOCK=str(tmp_path / "source")))


def test_which_clock_is_taken(tmp_path):
    """The counter where the kernel itself keeps time with it, the monotonic clock everywhere else."""
    from tests.conftest import ROOT

    program = tmp_path / "clock.c"
    program.write_text(
        '#include <stdio.h>\n#include "base/clock.h"\n'
        "int main(void) { cm_clock_init(); uint64_t a = cm_clock_now(), b = cm_clock_monotonic_ns();\n"
        'printf("%d %d\\n", cm_clock_uses_counter, a <= b && b - a < 60000000000u); return 0; }\n'
    )
    source = [
        "gcc",
        "-D_GNU_SOURCE",
        "-I",
        ROOT / "csrc",
        program,
        ROOT / "csrc/base/clock.c",
        "-o",
        tmp_path / "clock",
    ]
    subprocess.run(source, check=True)
    answers = {}
    for name in ("tsc\n", "hpet\n", "kvm-clock\n", "", "ts", "tsc-early\n"):
        (tmp_path / "source").write_text(name)
        environment = {"LD_PRELOAD": build(tmp_path), "OTHER_CLOCK": str(tmp_path / "source")}
        done = subprocess.run([tmp_path / "clock"], env=environment, capture_output=True, text=True, check=True)
        answers[name.strip()] = done.stdout.split()
    for name in ("hpet", "kvm-clock", "", "ts", "tsc-early"):
        assert answers[name] == ["0", "1"], (name, answers)
    assert answers["tsc"][0] == "1" or platform.machine() != "x86_64"
