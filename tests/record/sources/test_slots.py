"""Relocation slots: those of torch against its files, and of small libraries in every state a slot can be in."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FLAGS = ["-std=gnu11", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]


def gcc(*arguments: object) -> None:
    subprocess.run(["gcc", *FLAGS, *map(str, arguments)], check=True)


def test_every_slot_in_torchs_files_is_patched_and_given_back(run):
    answer = run(
        """
import ctypes, os, torch
from elf import relocations
from pathlib import Path

folder = Path(torch.__file__).parent / "lib"
loaded = {os.path.basename(l.split()[-1]) for l in open("/proc/self/maps") if str(folder) in l}
wanted = {row[1] for row in core.sources_rows()}
truth = {}
for name in sorted(loaded):
    for offset, kind, symbol in relocations(str(folder / name)):
        if symbol in wanted and kind != "other":
            truth[name, symbol] = truth.get((name, symbol), 0) + 1
addresses = [a for name, symbol in truth for a in slots(name, symbol)]
read = lambda: [ctypes.c_uint64.from_address(a).value for a in addresses]
before = read()
patched = core.sources_install()
rows = {(r[3], r[1]): r[4] for r in core.sources_rows() if r[3]}
during = read()
again = core.sources_install()
core.sources_remove()
after = read()
zero = sum(r[4] for r in core.sources_rows())
report(same=rows == truth, patched=patched, total=sum(truth.values()), changed=sum(a != b for a, b in zip(before,
       during)),
       restored=before == after, again=again, zero=zero,
       meanings=sorted({r[2] for r in core.sources_rows() if not r[3] and r[0] == "autograd"}),
       cuda=[r[4] for r in core.sources_rows() if r[0] in ("cuda", "driver", "cupti") and r[3]],
       libraries=sorted({name for name, _ in truth}))
"""
    )
    assert answer["same"] and answer["patched"] == answer["total"] == answer["changed"] >= 11
    assert answer["restored"] and answer["again"] == 0 and answer["zero"] == 0
    assert {"libc10.so", "libtorch_cpu.so", "libtorch_python.so"} <= set(answer["libraries"])
    assert answer["cuda"] == [], "a build without CUDA has none of its calls"
    # Of the two ways in which nodes are destroyed, a version of torch has one.
    assert len(answer["meanings"]) == 1 and answer["meanings"][0].startswith("autograd node destroyed")


def test_without_torch_every_symbol_is_shown_as_missing(run):
    answer = run(
        "n = core.sources_install()\nrows = core.sources_rows()\n"
        "report(n=n, rows=[(r[3], r[4]) for r in rows], sources=[r[0] for r in rows])",
        afresh=True,
    )
    assert answer["n"] == 0 and set(map(tuple, answer["rows"])) == {("", 0)}
    counts = {source: answer["sources"].count(source) for source in set(answer["sources"])}
    assert counts["driver"] == 34 and sum(counts[name] for name in ("allocator", "autograd", "cuda")) == 24


HEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sources/slots.h"

static int seen[2];
static cm_slot_symbol symbol;
static int hook0(int x) { seen[0]++; return CM_SLOT_ORIGINAL(symbol, 0, int (*)(int))(x); }
static int hook1(int x) { seen[1]++; return CM_SLOT_ORIGINAL(symbol, 1, int (*)(int))(x); }
static cm_slot_symbol symbol = {
    .source = "test", .meaning = "a function", .names = {"work_on_it_old", "work_on_it"}, .hooks = {hook0, hook1}};

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

static void *load(const char *name, int mode)
{
    void *handle = dlopen(name, mode | RTLD_LOCAL);
    if (handle == NULL) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
    return handle;
}

static int total;
static char last[64];
static void add(void *context, const cm_slot_symbol *s, const char *library, int patched)
{
    (void)context; (void)s;
    total += patched;
    if (library != NULL) snprintf(last, sizeof last, "%s", library);
}
static int patched_now(void) { total = 0; cm_slots_each(add, NULL); return total; }
"""

PROGRAM = r"""
static volatile int stop;
static void *hammer(void *function)
{
    long wrong = 0;
    while (!stop) wrong += ((int (*)(int))function)(20) != 41;
    return (void *)wrong;
}

int main(void)
{
    CHECK(cm_slots_register(&symbol, 1) && cm_slots_register(&symbol, 1));
    CHECK(cm_slots_install() == 0 && patched_now() == 0);

    /* A slot that is not bound yet, found by a scan after the library came; 2*x+1 is what work_on_it does. */
    void *lazy = load("./liblazy.so", RTLD_LAZY);
    int (*call_lazy)(int) = (int (*)(int))dlsym(lazy, "call_lazy");
    CHECK(cm_slots_rescan() == 2 && patched_now() == 2); /* its own, and one of the library that it needs */
    CHECK(call_lazy(20) == 41 && seen[0] == 1);
    CHECK(cm_slots_rescan() == 0);

    /* Bound before we looked, inside RELRO: the page is writable only while we write. */
    void *now = load("./libnow.so", RTLD_NOW);
    int (*call_now)(int) = (int (*)(int))dlsym(now, "call_now");
    CHECK(call_now(20) == 41 && seen[0] == 1);
    CHECK(cm_slots_rescan() >= 1 && call_now(20) == 41 && seen[0] == 2);

    /* The library that defines it calls itself through a slot as well. */
    int (*call_self)(int) = (int (*)(int))dlsym(lazy, "call_self");
    CHECK(call_self(20) == 41 && seen[0] == 3);

    /* A pointer to the function, kept in .got. */
    int (*(*pointer)(void))(int) = (int (*(*)(void))(int))dlsym(now, "pointer_to_it");
    CHECK(pointer() == hook0);

    /* Another tool was here first: its function is forwarded to, by the other variant. */
    void *other = load("./libother.so", RTLD_NOW);
    int (*call_other)(int) = (int (*)(int))dlsym(other, "call_other");
    ((void (*)(void))dlsym(other, "redirect"))();
    CHECK(call_other(20) == 1041);
    CHECK(cm_slots_rescan() >= 1);
    CHECK(call_other(20) == 1041 && seen[1] == 1);

    /* Given back: to each what it had. Twice changes nothing. */
    int all = patched_now();
    cm_slots_remove();
    cm_slots_remove();
    CHECK(patched_now() == 0);
    seen[0] = seen[1] = 0;
    CHECK(call_lazy(20) == 41 && call_now(20) == 41 && call_other(20) == 1041 && call_self(20) == 41);
    CHECK(seen[0] == 0 && seen[1] == 0 && pointer() != hook0);
    CHECK(cm_slots_rescan() == 0); /* not installed: nothing is touched */
    CHECK(cm_slots_install() == all && patched_now() == all);

    /* A tool that comes after us and stays is left in place, and not hooked a second time. */
    ((void (*)(void))dlsym(other, "redirect_on_top"))();
    seen[0] = seen[1] = 0;
    CHECK(call_other(20) == 2041 && seen[1] == 1);
    CHECK(cm_slots_install() == 0 && patched_now() == all - 1);
    cm_slots_remove();
    CHECK(call_other(20) == 2041 && seen[1] == 2); /* ours still forwards what that tool hands it */
    CHECK(cm_slots_install() == all - 1);

    /* A library that goes away before it was ever scanned, and one loaded in its place. */
    cm_slots_remove();
    void *gone = load("./libgone.so", RTLD_NOW);
    dlclose(gone);
    CHECK(cm_slots_install() == all - 1);
    gone = load("./libgone.so", RTLD_NOW);
    CHECK(cm_slots_rescan() == 1);
    int (*call_gone)(int) = (int (*)(int))dlsym(gone, "call_gone");
    seen[0] = 0;
    CHECK(call_gone(20) == 41 && seen[0] == 1);
    dlclose(gone); /* kept loaded: it has a hook */
    CHECK(call_gone(20) == 41 && seen[0] == 2);
    CHECK(cm_slots_find("call_gone") == (void *)call_gone && cm_slots_find("no_such_function") == NULL);

    /* Callers in four threads never see anything but one of the two. */
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, hammer, i % 2 ? (void *)call_now : (void *)call_lazy);
    for (int i = 0; i < 300; i++) { cm_slots_remove(); cm_slots_install(); cm_slots_rescan(); }
    stop = 1;
    long wrong = 0;
    for (int i = 0; i < 4; i++) { void *r; pthread_join(threads[i], &r); wrong += (long)r; }
    CHECK(wrong == 0);
    puts("ok");
    return 0;
}
"""

BINDING = r"""
#include <sched.h>

static int (*call)(int);
static pthread_t other;
static volatile int arrived, go, bound;

static void *bind(void *unused)
{
    other = pthread_self();
    long result = call(20);
    bound = 1;
    return (void *)result;
}

static void stay(void)
{
    if (pthread_equal(pthread_self(), other))
        for (arrived = 1; !go;) sched_yield();
}

/* A thread knows what to write into the slot, and has not done it when we patch. */
static void bound_after_us(void)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, bind, NULL);
    while (!arrived) sched_yield();
    CHECK(cm_slots_install() == 1 && patched_now() == 1);
    go = 1;
    pthread_join(thread, &result);
    CHECK((long)result == 41 && seen[0] == 0);
    CHECK(patched_now() == 0);
    cm_slots_rescan(); /* nothing was loaded */
}

static void let_it_bind(void)
{
    static pthread_t thread;
    if (arrived++ != 0)
        return;
    pthread_create(&thread, NULL, bind, NULL);
    while (!bound) sched_yield();
    pthread_join(thread, NULL);
}

/* It writes after we have read what the slot holds, while we find out what it will be bound to. */
static void bound_before_us(void)
{
    CHECK(cm_slots_install() == 1 && bound && seen[0] == 0);
}

int main(int count, char **words)
{
    void *library = load("./libbinding.so", RTLD_LAZY);
    bool after = count > 1 && strcmp(words[1], "after") == 0;
    *(void (**)(void))dlsym(library, "meanwhile") = after ? stay : let_it_bind;
    call = (int (*)(int))dlsym(library, "call_it");
    CHECK(cm_slots_register(&symbol, 1));
    if (after) bound_after_us(); else bound_before_us();
    CHECK(patched_now() == 1 && call(20) == 41 && seen[0] == 1);
    cm_slots_remove();
    CHECK(patched_now() == 0 && call(20) == 41 && seen[0] == 1);
    cm_slots_rescan();
    CHECK(patched_now() == 0);
    puts("ok");
    return 0;
}
"""

LIBRARIES = {
    # name: (source, flags)
    "libdef.so": ("int work_on_it(int x) { return 2 * x + 1; }\nint call_self(int x) { return work_on_it(x); }", []),
    "liblazy.so": ("int work_on_it(int);\nint call_lazy(int x) { return work_on_it(x) + 0; }", ["-Wl,-z,lazy"]),
    "libnow.so": (
        "int work_on_it(int);\nint call_now(int x) { return work_on_it(x); }\n"
        "int (*pointer_to_it(void))(int) { return work_on_it; }",
        ["-Wl,-z,now", "-Wl,-z,relro"],
    ),
    # What is called is chosen when it is bound, and the program has a say in what happens meanwhile.
    "libchosen.so": (
        "void (*volatile meanwhile)(void);\n"
        "static int real(int x) { return 2 * x + 1; }\n"
        "static int (*choose(void))(int)\n{\n    if (meanwhile) meanwhile();\n    return real;\n}\n"
        'int work_on_it(int) __attribute__((ifunc("choose")));\n',
        [],
    ),
    "libbinding.so": (
        "int work_on_it(int);\nint call_it(int x) { return work_on_it(x) + 0; }",
        ["-Wl,-z,lazy"],
    ),
    "libgone.so": ("int work_on_it(int);\nint call_gone(int x) { return work_on_it(x); }", ["-Wl,-z,now"]),
    "libother.so": (
        r"""
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <string.h>
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
int work_on_it(int);
static int (*next)(int), (*below)(int);
static int mine(int x) { return next(x) + 1000; }
static int top(int x) { return below(x) + 1000; }
int call_other(int x) { return work_on_it(x); }
static void **slot(void)
{
    struct link_map *map;
    Dl_info info;
    dladdr1((void *)call_other, &info, (void **)&map, RTLD_DL_LINKMAP);
    const ElfW(Sym) *symbols = 0; const char *strings = 0; const ElfW(Rela) *r[2] = {0, 0}; size_t n[2] = {0, 0};
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag; d++) {
        if (d->d_tag == DT_SYMTAB) symbols = (void *)d->d_un.d_ptr;
        if (d->d_tag == DT_STRTAB) strings = (void *)d->d_un.d_ptr;
        if (d->d_tag == DT_JMPREL) r[0] = (void *)d->d_un.d_ptr;
        if (d->d_tag == DT_PLTRELSZ) n[0] = d->d_un.d_val / sizeof(ElfW(Rela));
        if (d->d_tag == DT_RELA) r[1] = (void *)d->d_un.d_ptr;
        if (d->d_tag == DT_RELASZ) n[1] = d->d_un.d_val / sizeof(ElfW(Rela));
    }
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < n[t]; i++)
            if (!strcmp(strings + symbols[ELF64_R_SYM(r[t][i].r_info)].st_name, "work_on_it"))
                return (void **)(map->l_addr + r[t][i].r_offset);
    return 0;
}
static void put(void *value)
{
    mprotect((void *)((uintptr_t)slot() & ~4095ul), 4096, PROT_READ | PROT_WRITE);
    *slot() = value;
}
void redirect(void) { next = *(int (**)(int))slot(); put((void *)mine); }
void redirect_on_top(void) { below = *(int (**)(int))slot(); put((void *)top); }
""",
        ["-Wl,-z,now", "-Wl,-z,norelro"],
    ),
}


NEEDS = {"libdef.so": [], "libchosen.so": [], "libbinding.so": ["-lchosen"]}  # all others: -ldef


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slots")
    for name, (source, flags) in LIBRARIES.items():
        (folder / f"{name}.c").write_text(source)
        needs = [f"-L{folder}", *NEEDS.get(name, ["-ldef"]), "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
        gcc("-shared", folder / f"{name}.c", *flags, *needs, "-ldl", "-o", folder / name)
    code = [ROOT / "csrc/sources" / name for name in ("slots.c", "elf.c", "loaded.c")]
    for name, text in (("main", PROGRAM), ("binding", BINDING)):
        (folder / f"{name}.c").write_text(HEAD + text)
        gcc(f"-I{ROOT / 'csrc'}", folder / f"{name}.c", *code, "-ldl", "-lpthread", "-o", folder / name)
    return folder / "main"


def test_slots_in_every_state(program: Path) -> None:
    done = subprocess.run([str(program)], cwd=program.parent, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("written", ["after", "before"])
def test_a_slot_that_another_thread_is_binding(program: Path, written: str) -> None:
    """What it writes over the hook is put back at the next look, though no library came or went; what it writes in
    the moment before the hook would have been, at once."""
    binding = program.with_name("binding")
    done = subprocess.run([str(binding), written], cwd=program.parent, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_slots_with_everything_bound_at_start(program: Path) -> None:
    done = subprocess.run(
        [str(program)], cwd=program.parent, capture_output=True, text=True, timeout=300, env={"LD_BIND_NOW": "1"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
