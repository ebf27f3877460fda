/* Memory totals of each device, from the driver and NVML.
 *
 * Only a driver that is already in the process is asked, and only about devices with a context:
 * nothing here makes a context or initializes CUDA. A primary context is retained for the time of
 * the calls. Without one, a context is used that the program made (cuCtxCreate) and callbacks
 * reported. No context is used while one is being destroyed, for the driver would make it again.
 * NVML is loaded if it is installed; without it, nothing is known about other processes. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device_totals.h"

#include "../base/clock.h"
#include "../capture/ring_producer.h"
#include "../capture/statm.h"
#include "cupti/callbacks.h"
#include "inflight.h"

enum {
    DEVICES = 64,
    PROCESSES = 256,
    TRIES = 4, /* for a sample without a call in flight */
    NVML_NS = 1000000000,
    NVML_SHARE =
        100, /* NVML may take the driver's locks: it gets one part in so many of the time */
    WRITE_NS = 1000000000,
};
enum { RESERVED_NOW = 5 }; /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
enum { RELAXED = 2 };      /* CU_STREAM_CAPTURE_MODE_RELAXED */
enum { TOTALS = CM_DEVICE_BYTES_CACHE + 1 };
enum { INTEGRATED = 18 }; /* CU_DEVICE_ATTRIBUTE_INTEGRATED */

#define UNKNOWN (-1)

/* --- the driver --------------------------------------------------------------------------------
 */

static struct {
    bool searched;
    int (*DeviceGetCount)(int *count);
    int (*DeviceGetAttribute)(int *value, int attribute, int device);
    int (*DeviceGetUuid)(uint8_t uuid[16], int device);
    int (*DeviceGetPCIBusId)(char *text, int size, int device);
    int (*DevicePrimaryCtxGetState)(int device, unsigned *flags, int *active);
    int (*DevicePrimaryCtxRetain)(void **context, int device);
    int (*DevicePrimaryCtxRelease)(int device);
    int (*CtxPushCurrent)(void *context);
    int (*CtxPopCurrent)(void **context);
    int (*MemGetInfo)(size_t *free, size_t *total);
    int (*DeviceGetDefaultMemPool)(void **pool, int device);                /* since 11.2 */
    int (*MemPoolGetAttribute)(void *pool, int attribute, uint64_t *value); /* since 11.2 */
    int (*ThreadExchangeStreamCaptureMode)(int *mode);
} driver;

static bool find_driver(void)
{
    if (driver.searched)
        return driver.MemGetInfo != NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return false; /* not yet */
    driver.searched = true;
#define FIND(field, symbol) *(void **)&driver.field = dlsym(library, symbol)
    FIND(DeviceGetCount, "cuDeviceGetCount");
    FIND(DeviceGetAttribute, "cuDeviceGetAttribute");
    FIND(DeviceGetUuid, "cuDeviceGetUuid_v2"); /* of the MIG instance, where there is one */
    FIND(DeviceGetPCIBusId, "cuDeviceGetPCIBusId");
    FIND(DevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState");
    FIND(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    FIND(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
    FIND(CtxPushCurrent, "cuCtxPushCurrent_v2");
    FIND(CtxPopCurrent, "cuCtxPopCurrent_v2");
    FIND(MemGetInfo, "cuMemGetInfo_v2");
    FIND(DeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool");
    FIND(MemPoolGetAttribute, "cuMemPoolGetAttribute");
    FIND(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
#undef FIND
    if (driver.DeviceGetCount == NULL || driver.DevicePrimaryCtxGetState == NULL ||
        driver.DevicePrimaryCtxRetain == NULL || driver.DevicePrimaryCtxRelease == NULL ||
        driver.CtxPushCurrent == NULL || driver.CtxPopCurrent == NULL)
        driver.MemGetInfo = NULL;
    return driver.MemGetInfo != NULL;
}

/* Makes a context of the device current. false: there is none that may be used. */
static bool enter_device(int device, bool *retained)
{
    unsigned flags;
    int active = 0;
    void *context;

    *retained = false;
    if (cm_cupti_context_ends() || driver.DevicePrimaryCtxGetState(device, &flags, &active) != 0)
        return false;
    if (!active) {
        context = cm_cupti_context_on(device);
        return context != NULL && driver.CtxPushCurrent(context) == 0;
    }
    if (driver.DevicePrimaryCtxRetain(&context, device) != 0)
        return false;
    *retained = driver.CtxPushCurrent(context) == 0;
    if (!*retained)
        driver.DevicePrimaryCtxRelease(device);
    return *retained;
}

static void leave_device(int device, bool retained)
{
    void *context;

    driver.CtxPopCurrent(&context);
    if (retained)
        driver.DevicePrimaryCtxRelease(device);
}

static int64_t pooled_on(int device)
{
    uint64_t bytes = 0;
    void *pool;

    if (driver.DeviceGetDefaultMemPool == NULL || driver.MemPoolGetAttribute == NULL ||
        driver.DeviceGetDefaultMemPool(&pool, device) != 0 ||
        driver.MemPoolGetAttribute(pool, RESERVED_NOW, &bytes) != 0)
        return UNKNOWN;
    return (int64_t)bytes;
}

/* --- NVML --------------------------------------------------------------------------------------
 */

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory_v2;

typedef struct nvml_process {
    unsigned pid;
    unsigned long long bytes; /* all ones: unknown */
    unsigned instance, compute_instance;
} nvml_process;

typedef int (*processes_fn)(void *device, unsigned *count, nvml_process *list);

static struct {
    bool searched, works;
    pid_t owner; /* the process that initialized it */
    int (*DeviceGetHandleByUUID)(const char *uuid, void **device);
    int (*DeviceGetHandleByPciBusId)(const char *bus, void **device);
    int (*DeviceGetMemoryInfo)(void *device, nvml_memory *memory);
    int (*DeviceGetMemoryInfo_v2)(void *device, nvml_memory_v2 *memory);
    processes_fn processes[3]; /* compute, graphics, MPS: one process may be in more than one */
} nvml;

static processes_fn find_processes(void *library, const char *name)
{
    char versioned[64];

    for (int version = 3; version >= 2; version--) {
        snprintf(versioned, sizeof versioned, "%s_v%d", name, version);
        void *found = dlsym(library, versioned);
        if (found != NULL)
            return (processes_fn)found;
    }
    return NULL;
}

static bool find_nvml(void)
{
    if (nvml.searched && nvml.owner == getpid())
        return nvml.works;
    memset(&nvml, 0, sizeof nvml);
    nvml.searched = true;
    nvml.owner = getpid();
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return false;
    int (*initialize)(void);
    *(void **)&initialize = dlsym(library, "nvmlInit_v2");
#define FIND(field, symbol) *(void **)&nvml.field = dlsym(library, symbol)
    FIND(DeviceGetHandleByUUID, "nvmlDeviceGetHandleByUUID");
    FIND(DeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2");
    FIND(DeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo");
    FIND(DeviceGetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo_v2");
#undef FIND
    nvml.processes[0] = find_processes(library, "nvmlDeviceGetComputeRunningProcesses");
    nvml.processes[1] = find_processes(library, "nvmlDeviceGetGraphicsRunningProcesses");
    nvml.processes[2] = find_processes(library, "nvmlDeviceGetMPSComputeRunningProcesses");
    nvml.works = initialize != NULL && initialize() == 0;
    return nvml.works;
}

static bool nvml_total(void *handle, uint64_t *total, int64_t *reserved)
{
    nvml_memory_v2 now = {.version = sizeof now | 2u << 24};
    nvml_memory old;

    *reserved = UNKNOWN;
    if (nvml.DeviceGetMemoryInfo_v2 != NULL && nvml.DeviceGetMemoryInfo_v2(handle, &now) == 0) {
        *total = now.total;
        *reserved = (int64_t)now.reserved;
        return true;
    }
    if (nvml.DeviceGetMemoryInfo == NULL || nvml.DeviceGetMemoryInfo(handle, &old) != 0)
        return false;
    *total = old.total;
    return true;
}

/* NVML's handle of CUDA's device, which may be renumbered or a MIG instance. */
static void *nvml_device(int device, uint64_t total)
{
    static const char *const kinds[] = {"GPU", "MIG"};
    uint8_t b[16];
    char text[64];
    void *handle;
    uint64_t theirs;
    int64_t reserved;

    if (driver.DeviceGetUuid != NULL && nvml.DeviceGetHandleByUUID != NULL &&
        driver.DeviceGetUuid(b, device) == 0)
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof text,
                     "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                     kinds[i], b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
                     b[11], b[12], b[13], b[14], b[15]);
            if (nvml.DeviceGetHandleByUUID(text, &handle) == 0)
                return handle;
        }
    /* A MIG instance has the bus address of the whole device, which has far more memory. */
    if (driver.DeviceGetPCIBusId != NULL && nvml.DeviceGetHandleByPciBusId != NULL &&
        driver.DeviceGetPCIBusId(text, sizeof text, device) == 0 &&
        nvml.DeviceGetHandleByPciBusId(text, &handle) == 0 &&
        nvml_total(handle, &theirs, &reserved) && total >= theirs / 10 * 9)
        return handle;
    return NULL;
}

/* Adds a list's processes to the known ones. false: NVML has no answer. */
static bool add_processes(processes_fn list, void *handle, nvml_process *known, unsigned *count)
{
    enum { SUCCESS = 0, NOT_SUPPORTED = 3 };
    nvml_process found[PROCESSES];
    unsigned n = PROCESSES;
    int result = list(handle, &n, found);

    if (result != SUCCESS)
        return result == NOT_SUPPORTED;
    for (unsigned i = 0; i < n; i++) {
        unsigned at = 0;
        while (at < *count && known[at].pid != found[i].pid)
            at++;
        if (at == PROCESSES)
            return false;
        if (at == *count)
            known[(*count)++] = found[i];
    }
    return true;
}

/* NVML gives the host's process ids. If our own is not among them, this is a container with its own
 * ids, and the processes cannot be told apart. */
static void nvml_shares(void *handle, int64_t *own, int64_t *others)
{
    static nvml_process known[PROCESSES];
    unsigned count = 0;
    uint64_t sum = 0;
    bool all = true, found = false;

    *own = *others = UNKNOWN;
    if (nvml.processes[0] == NULL || !add_processes(nvml.processes[0], handle, known, &count))
        return;
    for (int i = 1; i < 3; i++)
        if (nvml.processes[i] != NULL && !add_processes(nvml.processes[i], handle, known, &count))
            all = false;
    for (unsigned i = 0; i < count; i++) {
        bool known_bytes = known[i].bytes != UINT64_MAX;
        if (known[i].pid == (unsigned)nvml.owner) {
            found = true;
            *own = known_bytes ? (int64_t)known[i].bytes : UNKNOWN;
        } else if (known_bytes) {
            sum += known[i].bytes;
        } else {
            all = false;
        }
    }
    if (found && all)
        *others = (int64_t)sum;
}

/* --- samples -----------------------------------------------------------------------------------
 */

typedef struct sample {
    int64_t total[TOTALS]; /* by cm_device_bytes; UNKNOWN: not emitted */
    bool quiet;
} sample;

static struct {
    pid_t owner;
    uint32_t capture; /* to which the rest belongs */
    struct {
        sample last;                   /* that was written */
        int64_t own, others, reserved; /* NVML's last answer */
        int64_t used_then;             /* the driver's total at that time */
        uint64_t written_ns;
        uint32_t window; /* of that sample */
        uint64_t due_ns; /* when NVML may be asked again */
        void *nvml;
        bool nvml_looked;
    } device[DEVICES];
} state;

static _Atomic uint32_t windows; /* opened so far; wraps */

/* Where the device's memory is the machine's, CUDA's total and free count all that is in it. */
static void add_machine(int device, sample *m)
{
    int integrated = 0;
    cm_meminfo now;

    if (driver.DeviceGetAttribute == NULL ||
        driver.DeviceGetAttribute(&integrated, INTEGRATED, device) != 0 || !integrated ||
        !cm_meminfo_read(&now))
        return;
    m->total[CM_DEVICE_BYTES_HOST] = now.host;
    m->total[CM_DEVICE_BYTES_CACHE] = now.cache;
}

/* Samples what every allocation changes. inflight: cm_inflight_state() before it. */
static bool sample_driver(int device, sample *m, uint64_t *inflight)
{
    size_t free_bytes, total;
    bool retained;

    if (!enter_device(device, &retained))
        return false;
    *inflight = cm_inflight_state();
    bool answered = driver.MemGetInfo(&free_bytes, &total) == 0;
    if (answered) {
        m->total[CM_DEVICE_BYTES_POOLED] = pooled_on(device);
        m->total[CM_DEVICE_BYTES_TOTAL] = (int64_t)total;
        m->total[CM_DEVICE_BYTES_USED] = (int64_t)(total - free_bytes);
        add_machine(device, m);
    }
    leave_device(device, retained);
    return answered;
}

static void ask_nvml(int device, uint64_t total)
{
    uint64_t theirs;

    state.device[device].own = UNKNOWN;
    state.device[device].others = UNKNOWN;
    state.device[device].reserved = UNKNOWN;
    if (!find_nvml())
        return;
    if (!state.device[device].nvml_looked) {
        state.device[device].nvml_looked = true;
        state.device[device].nvml = nvml_device(device, total);
    }
    void *handle = state.device[device].nvml;
    if (handle == NULL)
        return;
    nvml_shares(handle, &state.device[device].own, &state.device[device].others);
    nvml_total(handle, &theirs, &state.device[device].reserved);
}

/* Asks NVML if it is due, and returns whether it did. NVML may be slow, and memory of other
 * processes does not change with each allocation of ours. */
static bool sample_nvml(int device, const sample *m, bool force)
{
    uint64_t now = cm_clock_monotonic_ns();

    if (!force && now < state.device[device].due_ns)
        return false;
    ask_nvml(device, (uint64_t)m->total[CM_DEVICE_BYTES_TOTAL]);
    uint64_t after = cm_clock_monotonic_ns(), rest = (after - now) * NVML_SHARE;
    state.device[device].due_ns = after + (rest > NVML_NS ? rest : NVML_NS);
    state.device[device].used_then = m->total[CM_DEVICE_BYTES_USED];
    return true;
}

/* This process's share changes with each allocation, so it is valid only while `used` is the same.
 */
static void add_nvml(int device, sample *m)
{
    bool then = m->total[CM_DEVICE_BYTES_USED] == state.device[device].used_then;

    m->total[CM_DEVICE_BYTES_OWN] = then ? state.device[device].own : UNKNOWN;
    m->total[CM_DEVICE_BYTES_OTHERS] = state.device[device].others;
    m->total[CM_DEVICE_BYTES_RESERVED] = state.device[device].reserved;
}

/* Emits the whole sample. false: there was no room, and lost events are counted. */
static bool put(cm_producer *t, int device, const sample *m, uint64_t time)
{
    for (int i = CM_DEVICE_BYTES_TOTAL; i < TOTALS; i++) {
        int what = i < CM_DEVICE_BYTES_USED ? i : i < TOTALS - 1 ? i + 1 : CM_DEVICE_BYTES_USED;
        if (m->total[what] == UNKNOWN)
            continue;
        cm_event *e = cm_reserve_hook(t);
        if (e == NULL)
            return false;
        *e = (cm_event){
            .time = time,
            .address = (uint64_t)what,
            .size = m->total[what],
            .kind = CM_EV_DEVICE,
            .flags = m->quiet ? CM_EVF_QUIET : 0,
            .device_type = CM_DEVICE_CUDA,
            .device_index = (int8_t)device,
        };
        cm_commit_hook(t);
    }
    return true;
}

/* Writes a sample that has changed, or is a second old. The last one of a recording is always
 * written: it shows that the program still ran. */
static void write_sample(int device, const sample *m, uint64_t time, uint64_t now, uint32_t window,
                         bool last)
{
    bool same = memcmp(m, &state.device[device].last, sizeof *m) == 0 &&
                state.device[device].window == window;

    if (!last && same && state.device[device].written_ns != 0 &&
        now - state.device[device].written_ns < WRITE_NS)
        return;
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    bool written = put(t, device, m, time);
    cm_leave_hook(t);
    if (!written)
        return;
    state.device[device].last = *m;
    state.device[device].written_ns = now;
    state.device[device].window = window;
}

static void sample_device(int device, bool force)
{
    uint64_t now = cm_clock_monotonic_ns();
    uint32_t window = atomic_load(&windows);
    uint64_t inflight, time;
    sample m;

    memset(&m, 0, sizeof m); /* compared as bytes */
    for (int what = 0; what < TOTALS; what++)
        m.total[what] = UNKNOWN;
    if (!sample_driver(device, &m, &inflight))
        return;
    if (sample_nvml(device, &m, force) && !sample_driver(device, &m, &inflight))
        return;
    /* The sample is quiet if no call was in flight up to its time stamp. Then allocations that it
     * contains have earlier times, and those it lacks have later ones. */
    for (int i = 1;; i++) {
        time = cm_clock_now();
        m.quiet = inflight % 2 == 0 && cm_inflight_state() == inflight;
        if (m.quiet || i == TRIES)
            break;
        if (!sample_driver(device, &m, &inflight))
            return;
    }
    add_nvml(device, &m);
    write_sample(device, &m, time, now, window, force);
}

/* Drops what was remembered in another process or capture. */
static void reset(void)
{
    uint32_t capture = atomic_load(cm_recording);

    if (state.owner == getpid() && state.capture == capture)
        return;
    memset(&state, 0, sizeof state);
    state.owner = getpid();
    state.capture = capture;
    for (int i = 0; i < DEVICES; i++)
        for (int what = 0; what < TOTALS; what++)
            state.device[i].last.total[what] = UNKNOWN;
}

void cm_device_totals_write_next(void)
{
    atomic_fetch_add(&windows, 1);
}

void cm_device_totals_sample(bool force)
{
    int count = 0, mode = RELAXED;

    if (!cm_is_recording() || !find_driver() || driver.DeviceGetCount(&count) != 0)
        return;
    reset();
    bool own = cm_cupti_own_thread;
    cm_cupti_own_thread = true; /* these calls are not the program's */
    /* Otherwise a graph capture on another thread may forbid these calls, or be invalidated. */
    bool relaxed = driver.ThreadExchangeStreamCaptureMode != NULL &&
                   driver.ThreadExchangeStreamCaptureMode(&mode) == 0;
    for (int device = 0; device < count && device < DEVICES; device++)
        sample_device(device, force);
    if (relaxed)
        driver.ThreadExchangeStreamCaptureMode(&mode);
    cm_cupti_own_thread = own;
}
