"""The hooks around a CUDA allocator, without PyTorch and without CUDA: small libraries that call each other as
PyTorch's do."""

import subprocess
from pathlib import Path

import pytest

FLAGS = ["-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]

RUNTIME = """
#include <stdlib.h>
static __thread int current;
size_t limit = 1 << 30;
int cudaMalloc(void **p, size_t n)
{
    *p = n <= limit ? aligned_alloc(512, (n + 511) / 512 * 512) : NULL;
    return *p != NULL ? 0 : 2;
}
int cudaFree(void *p)
{
    if (p == (void *)1)
        return 1;
    free(p);
    return 0;
}
int cudaMallocAsync(void **p, size_t n, void *stream) { return cudaMalloc(p, n); }
int cudaFreeAsync(void *p, void *stream) { free(p); return 0; }
int cudaGetDevice(int *device) { *device = current; return 0; }
int cudaSetDevice(int device) { current = device; return 0; }
int cudaHostAlloc(void **p, size_t n, unsigned flags) { *p = flags == 7 ? malloc(n) : NULL; return 0; }
int cudaFreeHost(void *p) { free(p); return 0; }
int cuMemMap(unsigned long long at, size_t size, size_t offset, unsigned long long handle, unsigned long long flags)
{
    return at == 0x10000 && size == 0x4000 && offset == 8 && handle == 0x77 && flags == 5 ? 0 : 1;
}
"""

PROFILER = """
#include <stddef.h>
#include <stdint.h>
struct device { int8_t type, index; };
unsigned reports;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *p, int64_t n, size_t a, size_t r, struct device d)
{
    reports++;
}
"""

ALLOCATOR = """
#include <stddef.h>
#include <stdint.h>
struct device { int8_t type, index; };
struct data_ptr { void *data, *context[2]; struct device on; };
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *), cudaGetDevice(int *), cudaSetDevice(int);
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, struct device);
#define tell _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE

int caching = 1, telling = 1;
static size_t allocated, reserved;

__attribute__((noinline)) static void *uncached(size_t n)
{
    void *p = NULL;
    return cudaMalloc(&p, n) == 0 ? p : NULL;
}

/* A segment of 2 MiB for each block, of which the block is the second half. */
__attribute__((noinline)) static void *cached(size_t n, int device)
{
    char *segment = NULL;
    if (cudaMalloc((void **)&segment, 1 << 21) != 0)
        return NULL;
    size_t size = (n + 511) / 512 * 512;
    reserved += 1 << 21;
    allocated += size;
    if (telling)
        tell(segment + (1 << 20), (int64_t)size, allocated, reserved, (struct device){1, (int8_t)device});
    return segment + (1 << 20);
}

static void *one(size_t n, int device)
{
    return caching ? cached(n, device) : uncached(n);
}

static struct data_ptr native(void *self, size_t n)
{
    int device = 0;
    cudaGetDevice(&device);
    void *p = one(n, device);
    return (struct data_ptr){p, {p, NULL}, {1, (int8_t)device}};
}

static struct data_ptr async(void *self, size_t n)
{
    int device = 0;
    void *p = NULL;
    cudaGetDevice(&device);
    cudaMallocAsync(&p, n, NULL);
    return (struct data_ptr){p, {p, NULL}, {1, (int8_t)device}};
}

static struct data_ptr silent(void *self, size_t n)
{
    static char memory[4096];
    return (struct data_ptr){memory, {memory, NULL}, {1, 0}};
}

struct type { void *vtable; const char *name; };
struct class { ptrdiff_t offset; const struct type *type; void *slots[4]; };
static const struct type native_type = {NULL, "N3c104cuda6NativeE"}, silent_type = {NULL, "N2my8OtherOneE"};
static const struct type async_type = {NULL, "N3c104cuda15CudaMallocAsync24CudaMallocAsyncAllocatorE"};
static const struct class native_class = {0, &native_type, {NULL, NULL, (void *)native}};
static const struct class async_class = {0, &async_type, {NULL, NULL, (void *)async}};
static const struct class silent_class = {0, &silent_type, {NULL, NULL, (void *)silent}};
static const void *native_object = native_class.slots, *async_object = async_class.slots;
static const void *silent_object = silent_class.slots;
const void *_ZN3c104cuda20CUDACachingAllocator9allocatorE;
#define current _ZN3c104cuda20CUDACachingAllocator9allocatorE

void use(int which)
{
    current = which == 0 ? (void *)&native_object : which == 1 ? (void *)&async_object : (void *)&silent_object;
}
void on(int device) { cudaSetDevice(device); }
void *ask(size_t n)
{
    void *const *slots = *(void *const *const *)current;
    return ((struct data_ptr(*)(void *, size_t))slots[2])((void *)current, n).data;
}
void *raw(size_t n)
{
    int device = 0;
    cudaGetDevice(&device);
    return one(n, device);
}
void *raw_async(size_t n) { void *p = NULL; int d; cudaGetDevice(&d); cudaMallocAsync(&p, n, NULL); return p; }
void end_block(void *p, size_t size, int device)
{
    allocated -= size;
    tell(p, -(int64_t)size, allocated, reserved, (struct device){1, (int8_t)device});
}
void end_segment(void *p) { reserved -= 1 << 21; cudaFree(p); }
void end_direct(void *p) { cudaFree(p); }
void end_async(void *p) { cudaFreeAsync(p, NULL); }
"""

OTHER = """
#include <stddef.h>
int cudaMalloc(void **, size_t), cudaFree(void *);
void users_own(void) { void *p; if (cudaMalloc(&p, 77) == 0) cudaFree(p); }
int cudaHostAlloc(void **, size_t, unsigned), cudaFreeHost(void *), cudaSetDevice(int);
int cuMemMap(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
int many(void)
{
    void *p;
    int result = cudaSetDevice(1) + cudaMalloc(&p, 300) + cudaHostAlloc(&p, 55, 7) + cudaFreeHost(p);
    return result + 10 * cuMemMap(0x10000, 0x4000, 8, 0x77, 5) + 100 * cudaFree((void *)1);
}
"""

BEGIN = """
import ctypes
folder = {folder!r}
for name in ("libruntime.so", "libprofiler.so"):
    ctypes.CDLL(folder + "/" + name, mode=ctypes.RTLD_GLOBAL)
lib = ctypes.CDLL(folder + "/libc10_cuda.so")
other = ctypes.CDLL(folder + "/libother.so")
for name in ("ask", "raw", "raw_async"):
    getattr(lib, name).restype = ctypes.c_void_p
    getattr(lib, name).argtypes = [ctypes.c_size_t]
for name in ("end_segment", "end_direct", "end_async"):
    getattr(lib, name).argtypes = [ctypes.c_void_p]
lib.end_block.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def caching(on):
    ctypes.c_int.in_dll(lib, "caching").value = on
def told():
    return [(e.kind, e.size, e.flags, e.index) for e in events() if e.type == 1]
def begin(which=0):
    lib.use(which)
    core.sources_install()
    core.capture_record(True)
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    for name, text in (("runtime", RUNTIME), ("profiler", PROFILER), ("c10_cuda", ALLOCATOR), ("other", OTHER)):
        (folder / f"{name}.c").write_text(text)
        command = ["gcc", *FLAGS, "-o", str(folder / f"lib{name}.so"), str(folder / f"{name}.c")]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture
def fake(run, libraries):
    return lambda program: run(BEGIN.format(folder=str(libraries)) + program)


def test_segments_and_requested_sizes(fake):
    answer = fake(
        """
begin()
a = lib.ask(1000)
b = lib.raw(1000)   # past `allocate`: nobody knows what was asked for
lib.on(1)
c = lib.ask(512)    # as large as the block
lib.end_block(a, 1024, 0)
lib.end_segment(a - (1 << 20))
other.users_own()
report(events=told(), allocator=core.cuda_allocator())
"""
    )
    segment, totals = 1 << 21, 1 << 21
    assert answer["events"] == [
        ["segment_new", segment, 0, 0],
        ["alloc", 1024, 0, 0],
        ["requested", 1000, 0, 0],
        ["reserved", totals, 0, 0],
        ["segment_new", segment, 0, 0],
        ["alloc", 1024, 0, 0],
        ["reserved", 2 * totals, 0, 0],
        ["segment_new", segment, 0, 1],
        ["alloc", 512, 0, 1],
        ["reserved", 3 * totals, 0, 1],
        ["free", 1024, 0, 0],
        ["reserved", 3 * totals, 0, 0],
        ["segment_free", 0, 0, -1],
    ]
    assert answer["allocator"] == ["N3c104cuda6NativeE", True, 0, 0]


def test_blocks_that_are_not_cached(fake):
    answer = fake(
        """
import os, threading
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
ctypes.CDLL(None).setenv(b"PYTORCH_NO_CUDA_MEMORY_CACHING", b"1", 1)
begin()
caching(0)
lib.on(1)
a = lib.ask(1000)
lib.on(0)
b = lib.raw(777)    # by the same way to CUDA, past `allocate`
thread = threading.Thread(target=lib.end_direct, args=(b,))
thread.start(); thread.join()
caching(1)
c = lib.ask(10)
caching(0)
lib.end_direct(a)
report(events=told(), allocator=core.cuda_allocator())
"""
    )
    direct = 8
    assert answer["events"] == [
        ["alloc", 1000, direct, 1],
        ["alloc", 777, direct, 0],
        ["segment_free", 0, 0, -1],
        ["segment_new", 1 << 21, 0, 0],
        ["alloc", 512, 0, 0],
        ["requested", 10, 0, 0],
        ["reserved", 1 << 21, 0, 0],
        ["segment_free", 0, 0, -1],
    ]
    assert answer["allocator"][2:] == [0, 0]


def test_what_no_report_explains_is_counted(fake):
    answer = fake(
        """
begin()
caching(0)
lib.raw(777)        # before anything has shown where such calls come from
caching(1)
lib.ask(1000)
ctypes.c_int.in_dll(lib, "telling").value = 0
lib.ask(1000)       # a caching allocator that does not tell
report(kinds=[kind for kind, *_ in told()], allocator=core.cuda_allocator())
"""
    )
    assert answer["kinds"] == ["segment_new", "alloc", "requested", "reserved"]
    assert answer["allocator"][2:] == [1, 1]


def test_cuda_malloc_async(fake):
    answer = fake(
        """
begin(1)
lib.on(1)
a = lib.ask(1000)
lib.on(0)
b = lib.raw_async(300)
lib.end_async(a)
report(events=told(), allocator=core.cuda_allocator(), watched=[r[4] for r in core.sources_rows()
       if r[0] == "cuda" and r[1] in ("cudaGetDevice", "cudaSetDevice")])
"""
    )
    assert answer["events"] == [["alloc", 1000, 0, 1], ["alloc", 300, 0, 0], ["free", 0, 0, -1]]
    assert answer["watched"] == [1, 1] and answer["allocator"][1:] == [True, 0, 0]


def test_the_allocator_may_be_replaced(fake):
    answer = fake(
        """
begin()
lib.ask(1000)
lib.use(2)
core.sources_rescan()
for _ in range(3): lib.ask(100)
during = core.cuda_allocator()
rows = [r[4] for r in core.sources_rows() if r[2] == "sizes as asked for"]
core.capture_record(False)
core.sources_remove()
off = [r[4] for r in core.sources_rows() if r[0] == "cuda"]
lib.ask(100)
report(events=len(told()), during=during, rows=rows, off=off)
"""
    )
    assert answer["during"] == ["N2my8OtherOneE", True, 3, 0]
    assert answer["rows"] == [1, 1] and set(answer["off"]) == {0} and answer["events"] == 4


def test_nothing_is_watched_that_need_not_be(fake):
    answer = fake("begin()\nlib.ask(1)\nreport(symbols=sorted({r[1] for r in core.sources_rows() if r[0] == 'cuda'}))")
    workspaces = ["cublasLtMatmul", "cublasSetWorkspace_v2", "cudnnBackendSetAttribute"]
    workspaces += ["cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"]
    workspaces += ["cudnnSetDropoutDescriptor", "cudnnRestoreDropoutDescriptor"]
    taken = ["cudaFree", "cudaFreeAsync", "cudaMalloc", "cudaMallocAsync"]
    assert answer["symbols"] == sorted(["N3c104cuda6NativeE", *taken, *workspaces])


DRIVER = """
KINDS = {"driver_new": "new", "driver_free": "free", "driver_more": "more"}
def driver():
    return [(KINDS[e.kind], e.address if e.kind == "driver_more" or e.flags == 74 else 0, e.size, e.flags, e.type,
             e.index, e.origin if e.kind == "driver_more" else None) for e in events() if e.kind in KINDS]
lib.use(0)
core.sources_install()
core.sources_driver(True)
core.sources_rescan()
core.capture_record(True)
"""


def test_the_driver_level_by_slots(fake):
    answer = fake(
        DRIVER
        + """
lib.on(1)
a = lib.ask(1000)
lib.end_block(a, 1024, 1)
lib.end_segment(a - (1 << 20))
result = other.many()
lib.raw_async(500)  # this runtime makes it by cudaMalloc, through a slot, too
core.sources_driver(False)
other.users_own()
report(events=driver(), result=result, segments=[e.kind for e in events("segment_new", "segment_free")],
       rows=sorted((r[0], r[3]) for r in core.sources_rows() if r[1] == "cudaMalloc"))
"""
    )
    by_slot, segment, failed = 0x40, 1 << 21, 5
    assert answer["result"] == 100  # every argument came through; the one free failed
    assert answer["events"] == [
        ["new", 0, segment, by_slot | 1, 1, 1, None],
        ["more", 0, 1, 0, 0, -1, "libc10_cuda.so"],
        ["free", 0, 0, by_slot, 1, 1, None],
        ["new", 0, 300, by_slot | 1, 1, 1, None],
        ["more", 0, 1, 0, 0, -1, "libother.so"],
        ["new", 0, 55, by_slot | 3, 0, -1, None],
        ["more", 0, 1, 0, 0, -1, "libother.so"],
        ["free", 0, 0, by_slot | 3, 0, -1, None],
        ["new", 0x10000, 0x4000, by_slot | 10, 1, 1, None],
        ["more", 0x77, 4, 0, 0, -1, None],
        ["more", 0, 1, 0, 0, -1, "libother.so"],
        ["free", 0, 0, by_slot, 1, 1, None],
        ["more", 1, failed, 0, 0, -1, None],
        ["new", 0, 500, by_slot | 5, 1, 1, None],
        ["more", 0, 1, 0, 0, -1, "libc10_cuda.so"],
    ]
    assert answer["segments"] == ["segment_new", "segment_free"]  # as without
    assert answer["rows"] == [["cuda", "libc10_cuda.so"], ["driver", "libother.so"], ["driver", "libruntime.so"]]


def test_a_device_that_nobody_was_seen_choosing(fake):
    """Where CUDA was not in use before, it is the default one."""
    answer = fake(DRIVER + "other.users_own()\ncore.sources_driver(False)\nreport(events=[e[:6] for e in driver()])")
    assert answer["events"][0] == ["new", 0, 77, 0x41, 1, 0] and answer["events"][-1][:2] == ["free", 0]
