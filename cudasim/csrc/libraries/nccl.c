/* NCCL: communicators with all ranks in this process. Collectives: nccl_collective.c.
 *
 * Each communicator takes device memory for its channels' buffers. How much depends on links,
 * algorithms and releases: NVIDIA/nccl#964 reports 544 MiB for two A100s, 688 MiB for four; a
 * single rank may take 512 MiB (NVIDIA/nccl#2363). So config.nccl_bytes says what each takes of
 * each device; where it is negative, the allowance below, which is above those.
 *
 * Ranks in other processes, and in other threads, are refused. */

#include "nccl.h"

#include <string.h>

enum { NO_COLOR = -1, ID_BYTES = 128 };

#define MIB ((size_t)1 << 20)
#define PART "NCCL communicators"

int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);

typedef struct id {
    char bytes[ID_BYTES];
} id;

/* A rank that is to join others, until its group ends. */
typedef struct joining {
    communicator **result;
    id of;
    int ranks, rank, device;
} joining;

_Thread_local int cm_nccl_group_depth;

static _Thread_local struct {
    joining *list;
    size_t count, room;
    const char *error; /* the last one, as text */
} mine __attribute__((tls_model("initial-exec"))) = {.error = ""};

int cm_nccl_failed(int status, const char *why)
{
    mine.error = why;
    return status;
}

/* --- communicators ---------------------------------------------------------------------------- */

static int elsewhere(void)
{
    cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL between processes", 0);
    return cm_nccl_failed(SYSTEM_ERROR, "only ranks of one process and thread are simulated");
}

static int take(communicator *comm)
{
    int64_t asked = cm_sim_config_get()->nccl_bytes;
    size_t allowance = (comm->of->ranks > 1 ? 1024 : 512) * MIB;
    size_t bytes = asked >= 0 ? (size_t)asked : allowance;
    int before = cm_sim_current_device();
    cm_sim_set_current_device(comm->device);
    int result = cm_sim_library_take(PART, bytes, &comm->memory);
    cm_sim_set_current_device(before);
    if (!bytes)
        cm_sim_note(CM_SIM_NOTE_MODELLED, PART, 0);
    return result ? cm_nccl_failed(CUDA_ERROR, "a communicator found no room on its device")
                  : SUCCESS;
}

static void give(communicator *comm)
{
    cm_sim_library_give(PART, comm->memory);
    comm->memory = NULL;
}

static void leave(communicator *comm)
{
    give(comm);
    comm->self = NULL;
    if (atomic_fetch_sub(&comm->of->members, 1) == 1)
        free(comm->of);
    free(comm);
}

static clique *clique_new(int ranks)
{
    clique *made = calloc(1, sizeof *made);
    if (made)
        made->ranks = ranks;
    return made;
}

/* A clique without members is its maker's to free. */
static int join(clique *of, int rank, int device, communicator **result)
{
    communicator *made = of ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return cm_nccl_failed(SYSTEM_ERROR, "no host memory");
    *made = (communicator){.self = made, .of = of, .rank = rank, .device = device};
    atomic_fetch_add(&of->members, 1);
    int status = take(made);
    if (status) {
        atomic_fetch_sub(&of->members, 1);
        free(made);
        return status;
    }
    *result = made;
    return SUCCESS;
}

/* devices[i] is that of rank i; all or none are made. */
static int join_all(int ranks, const int *devices, communicator **const *results)
{
    clique *made = clique_new(ranks);
    int status = made ? SUCCESS : cm_nccl_failed(SYSTEM_ERROR, "no host memory"), joined = 0;
    for (; !status && joined < ranks; joined += !status)
        status = join(made, joined, devices[joined], results[joined]);
    if (!status)
        return SUCCESS;
    if (!joined)
        free(made);
    while (joined > 0) {
        leave(*results[--joined]);
        *results[joined] = NULL;
    }
    return status;
}

static bool twice(const int *devices, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (devices[i] == devices[j])
                return true;
    return false;
}

CM_SIM_EXPORT int ncclCommInitAll(communicator **comms, int count, const int *list)
{
    CM_SIM_ENTRY;
    int devices[CM_SIM_DEVICES], there = cm_sim_config_get()->devices;
    communicator **results[CM_SIM_DEVICES];
    if (!comms || count < 1)
        return cm_nccl_failed(INVALID_ARGUMENT, "no communicators are asked for");
    if (count > there)
        return cm_nccl_failed(INVALID_USAGE, "more ranks than devices");
    for (int i = 0; i < count; i++) {
        devices[i] = list ? list[i] : i;
        results[i] = &comms[i];
        if (devices[i] < 0 || devices[i] >= there)
            return cm_nccl_failed(CUDA_ERROR, "no such device");
    }
    if (twice(devices, count))
        return cm_nccl_failed(INVALID_USAGE, "two ranks have the same device");
    return join_all(count, devices, results);
}

CM_SIM_EXPORT int cm_sim_nccl_join(int ranks, int device, communicator **result)
{
    if (device < 0)
        device = cm_sim_current_device();
    if (device >= cm_sim_config_get()->devices || cm_sim_device_hold(device) != CM_SIM_OK)
        return cm_nccl_failed(CUDA_ERROR, "there is no device");
    clique *made = clique_new(ranks);
    int status =
        made ? join(made, 0, device, result) : cm_nccl_failed(SYSTEM_ERROR, "no host memory");
    if (status)
        free(made);
    return status;
}

CM_SIM_EXPORT void cm_sim_nccl_leave(communicator *comm)
{
    leave(comm);
}

CM_SIM_EXPORT int ncclGetUniqueId(id *result)
{
    static atomic_ullong made;
    CM_SIM_ENTRY;
    if (!result)
        return cm_nccl_failed(INVALID_ARGUMENT, "no place for an id");
    *result = (id){{0}};
    unsigned long long number = atomic_fetch_add(&made, 1) + 1;
    memcpy(result->bytes, &number, sizeof number);
    return SUCCESS;
}

static int join_one(communicator **result, int ranks, const id *of, int rank)
{
    int device;
    if (!result || ranks < 1 || rank < 0 || rank >= ranks)
        return cm_nccl_failed(INVALID_ARGUMENT, "no such rank");
    *result = NULL;
    if (cm_sim_device_ready(&device) != CM_SIM_OK)
        return cm_nccl_failed(CUDA_ERROR, "there is no device");
    if (ranks == 1)
        return join_all(1, &device, &result);
    if (!cm_nccl_group_depth)
        return elsewhere(); /* the other ranks would have to come from there */
    joining *list = cm_nccl_grown(mine.list, mine.count, &mine.room, sizeof *mine.list);
    if (!list)
        return cm_nccl_failed(SYSTEM_ERROR, "no host memory");
    mine.list = list;
    list[mine.count++] = (joining){result, *of, ranks, rank, device};
    return SUCCESS;
}

CM_SIM_EXPORT int ncclCommInitRank(communicator **result, int ranks, id of, int rank)
{
    CM_SIM_ENTRY;
    return join_one(result, ranks, &of, rank);
}

CM_SIM_EXPORT int ncclCommInitRankConfig(communicator **result, int ranks, id of, int rank,
                                         const void *config)
{
    CM_SIM_ENTRY;
    return join_one(result, ranks, &of, rank);
}

CM_SIM_EXPORT int ncclCommInitRankScalable(communicator **result, int ranks, int rank, int ids,
                                           const id *of, const void *config)
{
    CM_SIM_ENTRY;
    if (ids < 1 || !of)
        return cm_nccl_failed(INVALID_ARGUMENT, "no id");
    return join_one(result, ranks, of, rank);
}

/* All that wait for the same id as the first one of the list. */
static int join_first(void)
{
    const joining first = mine.list[0];
    communicator **results[CM_SIM_DEVICES] = {NULL};
    int devices[CM_SIM_DEVICES] = {0}, found = 0;
    size_t kept = 0;
    for (size_t i = 0; i < mine.count; i++) {
        const joining *one = &mine.list[i];
        bool same = one->ranks == first.ranks && !memcmp(&one->of, &first.of, sizeof one->of);
        if (!same) {
            mine.list[kept++] = *one;
        } else if (one->rank < CM_SIM_DEVICES && !results[one->rank]) {
            results[one->rank] = one->result;
            devices[one->rank] = one->device;
            found++;
        }
    }
    mine.count = kept;
    if (found != first.ranks)
        return elsewhere();
    if (twice(devices, found))
        return cm_nccl_failed(INVALID_USAGE, "two ranks have the same device");
    return join_all(found, devices, results);
}

int cm_nccl_end_joining(bool doing)
{
    int status = SUCCESS;
    while (mine.count && doing) {
        int joined = join_first();
        status = status ? status : joined;
    }
    free(mine.list);
    mine.list = NULL;
    mine.count = mine.room = 0;
    return status;
}

CM_SIM_EXPORT int ncclCommDestroy(communicator *comm)
{
    CM_SIM_ENTRY;
    if (!comm)
        return SUCCESS;
    if (!cm_nccl_is_there(comm))
        return cm_nccl_failed(INVALID_ARGUMENT, "no communicator");
    leave(comm);
    return SUCCESS;
}

CM_SIM_EXPORT int ncclCommAbort(communicator *comm)
{
    return ncclCommDestroy(comm);
}

int cm_nccl_accept(const communicator *comm)
{
    return cm_nccl_is_there(comm) ? SUCCESS : cm_nccl_failed(INVALID_ARGUMENT, "no communicator");
}

CM_SIM_EXPORT int ncclCommFinalize(communicator *comm)
{
    CM_SIM_ENTRY;
    return cm_nccl_accept(comm);
}

CM_SIM_EXPORT int ncclCommRevoke(communicator *comm, int flags)
{
    CM_SIM_ENTRY;
    return cm_nccl_accept(comm);
}

/* Only a rank that is to be alone: the others would have to come from elsewhere. */
CM_SIM_EXPORT int ncclCommSplit(communicator *comm, int color, int key, communicator **result,
                                const void *config)
{
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm) || !result)
        return cm_nccl_failed(INVALID_ARGUMENT, "no communicator");
    *result = NULL;
    if (color == NO_COLOR)
        return SUCCESS;
    if (comm->of->ranks > 1)
        return elsewhere();
    return join_all(1, &comm->device, &result);
}

CM_SIM_EXPORT int ncclCommShrink(communicator *comm, const int *without, int count,
                                 communicator **result, const void *config, int flags)
{
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm) || !result)
        return cm_nccl_failed(INVALID_ARGUMENT, "no communicator");
    return elsewhere();
}

CM_SIM_EXPORT int ncclCommGrow(communicator *comm, int ranks, const id *of, int rank,
                               communicator **result, const void *config)
{
    CM_SIM_ENTRY;
    return elsewhere();
}

CM_SIM_EXPORT int ncclCommGetUniqueId(communicator *comm, id *result)
{
    return cm_nccl_accept(comm) ? INVALID_ARGUMENT : ncclGetUniqueId(result);
}

#define GETTER(name, type, value)                                                                  \
    CM_SIM_EXPORT int name(const communicator *comm, type *result)                                 \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        if (cm_nccl_accept(comm) || !result)                                                       \
            return cm_nccl_failed(INVALID_ARGUMENT, "no communicator");                            \
        *result = (value);                                                                         \
        return SUCCESS;                                                                            \
    }
GETTER(ncclCommCount, int, comm->of->ranks);
GETTER(ncclCommUserRank, int, comm->rank);
GETTER(ncclCommCuDevice, int, comm->device);
GETTER(ncclCommGetAsyncError, int, SUCCESS);

CM_SIM_EXPORT int ncclCommSuspend(communicator *comm, int flags)
{
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm))
        return INVALID_ARGUMENT;
    give(comm);
    return SUCCESS;
}

CM_SIM_EXPORT int ncclCommResume(communicator *comm)
{
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm))
        return INVALID_ARGUMENT;
    return comm->memory ? SUCCESS : take(comm);
}

CM_SIM_EXPORT int ncclCommMemStats(const communicator *comm, int which, uint64_t *value)
{
    enum { CAN_BE_SUSPENDED = 0, IS_SUSPENDED = 1, TOTAL = 3 };
    cm_sim_block block = {.bytes = 0};
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm) || !value)
        return cm_nccl_failed(INVALID_ARGUMENT, "no communicator");
    bool taken = comm->memory && cm_sim_find(comm->memory, &block);
    *value = which == IS_SUSPENDED                         ? 0
             : which == CAN_BE_SUSPENDED || which == TOTAL ? (taken ? block.bytes : 0)
                                                           : 0;
    return SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Memory the program owns; not charged to a communicator. */
CM_SIM_EXPORT int ncclMemAlloc(void **result, size_t bytes)
{
    CM_SIM_ENTRY;
    uint64_t address = 0;
    int device;
    if (!result)
        return cm_nccl_failed(INVALID_ARGUMENT, "no place for an address");
    *result = NULL;
    if (cm_sim_device_ready(&device) || (bytes && cuMemAlloc_v2(&address, bytes)))
        return cm_nccl_failed(CUDA_ERROR, "out of device memory");
    *result = (void *)(uintptr_t)address;
    return SUCCESS;
}

CM_SIM_EXPORT int ncclMemFree(void *memory)
{
    CM_SIM_ENTRY;
    return memory && cuMemFree_v2((uintptr_t)memory) ? cm_nccl_failed(CUDA_ERROR, "no such memory")
                                                     : SUCCESS;
}

/* A registration is known by the address. */
CM_SIM_EXPORT int ncclCommRegister(const communicator *comm, void *memory, size_t bytes,
                                   void **result)
{
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm) || !memory || !result)
        return cm_nccl_failed(INVALID_ARGUMENT, "nothing to register");
    *result = memory;
    return SUCCESS;
}

CM_SIM_EXPORT int ncclCommDeregister(const communicator *comm, void *registered)
{
    CM_SIM_ENTRY;
    return cm_nccl_accept(comm);
}

CM_SIM_EXPORT int ncclCommWindowRegister(const communicator *comm, void *memory, size_t bytes,
                                         void **result, int flags)
{
    return ncclCommRegister(comm, memory, bytes, result);
}

CM_SIM_EXPORT int ncclCommWindowDeregister(const communicator *comm, void *window)
{
    return ncclCommDeregister(comm, window);
}

CM_SIM_EXPORT int ncclWinGetUserPtr(const communicator *comm, void *window, void **result)
{
    return ncclCommRegister(comm, window, 0, result);
}

/* --- kernels of the program's own that would talk to each other ------------------------------- */

#define REFUSED(name)                                                                              \
    CM_SIM_EXPORT int name(void)                                                                   \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL's one-sided and device calls", 0);                  \
        return cm_nccl_failed(INVALID_USAGE, #name " is not simulated");                           \
    }
REFUSED(ncclDevCommCreate);
REFUSED(ncclDevCommDestroy);
REFUSED(ncclGetLsaDevicePointer);
REFUSED(ncclGetLsaMultimemDevicePointer);
REFUSED(ncclGetMultimemDevicePointer);
REFUSED(ncclGetPeerDevicePointer);
REFUSED(ncclPutSignal);
REFUSED(ncclSignal);
REFUSED(ncclWaitSignal);

/* --- itself ----------------------------------------------------------------------------------- */

CM_SIM_EXPORT int ncclGetVersion(int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return cm_nccl_failed(INVALID_ARGUMENT, "no place for a version");
    *version = CM_SIM_NCCL_VERSION;
    return SUCCESS;
}

CM_SIM_EXPORT const char *ncclGetErrorString(int status)
{
    static const char *const texts[RESULTS] = {
        "no error",         "CUDA failed",   "the system failed",   "internal error",
        "invalid argument", "invalid usage", "another rank failed", "in progress",
        "timeout",
    };
    return status >= 0 && status < RESULTS ? texts[status] : "unknown result";
}
PROFILED(ncclGetErrorString);

CM_SIM_EXPORT const char *ncclGetLastError(const communicator *comm)
{
    return mine.error;
}
PROFILED(ncclGetLastError);
