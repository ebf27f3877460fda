/* NCCL: communicators with all ranks in this process, and what their collectives leave.
 *
 * Each communicator takes device memory for its channels' buffers. How much depends on links,
 * algorithms and releases: NVIDIA/nccl#964 reports 544 MiB for two A100s, 688 MiB for four; a
 * single rank may take 512 MiB (NVIDIA/nccl#2363). So config.nccl_bytes says what each takes of
 * each device; where it is negative, the allowance below, which is above those.
 *
 * A collective is a launch on its stream. Its result is known where it only copies what another
 * rank had; sums are unknown. A call takes effect when its group ends, as in NCCL: all ranks have
 * passed their arguments then.
 *
 * Ranks in other processes, and in other threads, are refused. */

#include "libraries.h"

#include "../objects/objects.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    RESULTS = 9
};
enum { FIRST_OWN_OPERATION = 5, NO_COLOR = -1, ID_BYTES = 128, TYPES = 12, BLOCK = 512 };

#define MIB ((size_t)1 << 20)
#define PART "NCCL communicators"

int cuLaunchKernel(cm_sim_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   cm_sim_stream *stream, void **parameters, void **extra);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);

typedef struct id {
    char bytes[ID_BYTES];
} id;

/* The ranks that belong together. */
typedef struct clique {
    int ranks;
    atomic_int members; /* that are there */
} clique;

typedef struct communicator {
    struct communicator *self; /* differs in what is no communicator */
    clique *of;
    int rank, device;
    void *memory; /* of the device; NULL: none */
    uint64_t calls;
} communicator;

typedef enum kind {
    BROADCAST,
    REDUCE,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    SEND,
    RECEIVE
} kind;

/* A call of a collective, until its group ends. */
typedef struct call {
    kind what;
    communicator *with;
    const void *from;
    void *to; /* NULL: this rank gets nothing */
    size_t bytes;
    int root;
    bool known_operation;
    cm_sim_stream *stream;
    uint64_t number; /* of the communicator's calls */
} call;

/* A rank that is to join others, until its group ends. */
typedef struct joining {
    communicator **result;
    id of;
    int ranks, rank, device;
} joining;

static _Thread_local struct {
    int depth;
    call *calls;
    joining *joinings;
    size_t call_count, call_room, joining_count, joining_room;
    const char *error; /* the last one, for people */
} group __attribute__((tls_model("initial-exec"))) = {.error = ""};

static int failed(int status, const char *why)
{
    group.error = why;
    return status;
}

/* Room for one more. */
static void *grown(void *list, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return list;
    size_t more = *room ? 2 * *room : 16;
    void *made = realloc(list, more * each);
    if (made)
        *room = more;
    return made;
}

/* What ncclXxx does pncclXxx does, for profilers that wrap the former. */
#define PROFILED(name)                                                                             \
    extern __typeof(name) p##name __attribute__((alias(#name), visibility("default")))

/* --- communicators ---------------------------------------------------------------------------- */

static int elsewhere(void)
{
    cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL between processes", 0);
    return failed(SYSTEM_ERROR, "only ranks of one process and thread are simulated");
}

static bool is_there(const communicator *comm)
{
    return comm && comm->self == comm;
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
    return result ? failed(CUDA_ERROR, "a communicator found no room on its device") : SUCCESS;
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
        return failed(SYSTEM_ERROR, "no host memory");
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
    int status = made ? SUCCESS : failed(SYSTEM_ERROR, "no host memory"), joined = 0;
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
        return failed(INVALID_ARGUMENT, "no communicators are asked for");
    if (count > there)
        return failed(INVALID_USAGE, "more ranks than devices");
    for (int i = 0; i < count; i++) {
        devices[i] = list ? list[i] : i;
        results[i] = &comms[i];
        if (devices[i] < 0 || devices[i] >= there)
            return failed(CUDA_ERROR, "no such device");
    }
    if (twice(devices, count))
        return failed(INVALID_USAGE, "two ranks have the same device");
    return join_all(count, devices, results);
}
PROFILED(ncclCommInitAll);

CM_SIM_EXPORT int ncclGetUniqueId(id *result)
{
    static atomic_ullong made;
    CM_SIM_ENTRY;
    if (!result)
        return failed(INVALID_ARGUMENT, "no place for an id");
    *result = (id){{0}};
    unsigned long long number = atomic_fetch_add(&made, 1) + 1;
    memcpy(result->bytes, &number, sizeof number);
    return SUCCESS;
}
PROFILED(ncclGetUniqueId);

static int join_one(communicator **result, int ranks, const id *of, int rank)
{
    int device;
    if (!result || ranks < 1 || rank < 0 || rank >= ranks)
        return failed(INVALID_ARGUMENT, "no such rank");
    *result = NULL;
    if (cm_sim_device_ready(&device) != CM_SIM_OK)
        return failed(CUDA_ERROR, "there is no device");
    if (ranks == 1)
        return join_all(1, &device, &result);
    if (!group.depth)
        return elsewhere(); /* the other ranks would have to come from there */
    joining *list =
        grown(group.joinings, group.joining_count, &group.joining_room, sizeof *group.joinings);
    if (!list)
        return failed(SYSTEM_ERROR, "no host memory");
    group.joinings = list;
    list[group.joining_count++] = (joining){result, *of, ranks, rank, device};
    return SUCCESS;
}

CM_SIM_EXPORT int ncclCommInitRank(communicator **result, int ranks, id of, int rank)
{
    CM_SIM_ENTRY;
    return join_one(result, ranks, &of, rank);
}
PROFILED(ncclCommInitRank);

CM_SIM_EXPORT int ncclCommInitRankConfig(communicator **result, int ranks, id of, int rank,
                                         const void *config)
{
    CM_SIM_ENTRY;
    return join_one(result, ranks, &of, rank);
}
PROFILED(ncclCommInitRankConfig);

CM_SIM_EXPORT int ncclCommInitRankScalable(communicator **result, int ranks, int rank, int ids,
                                           const id *of, const void *config)
{
    CM_SIM_ENTRY;
    if (ids < 1 || !of)
        return failed(INVALID_ARGUMENT, "no id");
    return join_one(result, ranks, of, rank);
}
PROFILED(ncclCommInitRankScalable);

/* All that wait for the same id as the first one of the list. */
static int join_first(void)
{
    const joining first = group.joinings[0];
    communicator **results[CM_SIM_DEVICES] = {NULL};
    int devices[CM_SIM_DEVICES] = {0}, found = 0;
    size_t kept = 0;
    for (size_t i = 0; i < group.joining_count; i++) {
        const joining *one = &group.joinings[i];
        bool same = one->ranks == first.ranks && !memcmp(&one->of, &first.of, sizeof one->of);
        if (!same) {
            group.joinings[kept++] = *one;
        } else if (one->rank < CM_SIM_DEVICES && !results[one->rank]) {
            results[one->rank] = one->result;
            devices[one->rank] = one->device;
            found++;
        }
    }
    group.joining_count = kept;
    if (found != first.ranks)
        return elsewhere();
    if (twice(devices, found))
        return failed(INVALID_USAGE, "two ranks have the same device");
    return join_all(found, devices, results);
}

CM_SIM_EXPORT int ncclCommDestroy(communicator *comm)
{
    CM_SIM_ENTRY;
    if (!comm)
        return SUCCESS;
    if (!is_there(comm))
        return failed(INVALID_ARGUMENT, "no communicator");
    leave(comm);
    return SUCCESS;
}
PROFILED(ncclCommDestroy);

CM_SIM_EXPORT int ncclCommAbort(communicator *comm)
{
    return ncclCommDestroy(comm);
}
PROFILED(ncclCommAbort);

static int accept(const communicator *comm)
{
    return is_there(comm) ? SUCCESS : failed(INVALID_ARGUMENT, "no communicator");
}

CM_SIM_EXPORT int ncclCommFinalize(communicator *comm)
{
    CM_SIM_ENTRY;
    return accept(comm);
}
PROFILED(ncclCommFinalize);

CM_SIM_EXPORT int ncclCommRevoke(communicator *comm, int flags)
{
    CM_SIM_ENTRY;
    return accept(comm);
}
PROFILED(ncclCommRevoke);

/* Only a rank that is to be alone: the others would have to come from elsewhere. */
CM_SIM_EXPORT int ncclCommSplit(communicator *comm, int color, int key, communicator **result,
                                const void *config)
{
    CM_SIM_ENTRY;
    if (accept(comm) || !result)
        return failed(INVALID_ARGUMENT, "no communicator");
    *result = NULL;
    if (color == NO_COLOR)
        return SUCCESS;
    if (comm->of->ranks > 1)
        return elsewhere();
    return join_all(1, &comm->device, &result);
}
PROFILED(ncclCommSplit);

CM_SIM_EXPORT int ncclCommShrink(communicator *comm, const int *without, int count,
                                 communicator **result, const void *config, int flags)
{
    CM_SIM_ENTRY;
    if (accept(comm) || !result)
        return failed(INVALID_ARGUMENT, "no communicator");
    return elsewhere();
}
PROFILED(ncclCommShrink);

CM_SIM_EXPORT int ncclCommGrow(communicator *comm, int ranks, const id *of, int rank,
                               communicator **result, const void *config)
{
    CM_SIM_ENTRY;
    return elsewhere();
}
PROFILED(ncclCommGrow);

CM_SIM_EXPORT int ncclCommGetUniqueId(communicator *comm, id *result)
{
    return accept(comm) ? INVALID_ARGUMENT : ncclGetUniqueId(result);
}
PROFILED(ncclCommGetUniqueId);

#define TELL(name, type, value)                                                                    \
    CM_SIM_EXPORT int name(const communicator *comm, type *result)                                 \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        if (accept(comm) || !result)                                                               \
            return failed(INVALID_ARGUMENT, "no communicator");                                    \
        *result = (value);                                                                         \
        return SUCCESS;                                                                            \
    }                                                                                              \
    PROFILED(name)
TELL(ncclCommCount, int, comm->of->ranks);
TELL(ncclCommUserRank, int, comm->rank);
TELL(ncclCommCuDevice, int, comm->device);
TELL(ncclCommGetAsyncError, int, SUCCESS);

CM_SIM_EXPORT int ncclCommSuspend(communicator *comm, int flags)
{
    CM_SIM_ENTRY;
    if (accept(comm))
        return INVALID_ARGUMENT;
    give(comm);
    return SUCCESS;
}
PROFILED(ncclCommSuspend);

CM_SIM_EXPORT int ncclCommResume(communicator *comm)
{
    CM_SIM_ENTRY;
    if (accept(comm))
        return INVALID_ARGUMENT;
    return comm->memory ? SUCCESS : take(comm);
}
PROFILED(ncclCommResume);

CM_SIM_EXPORT int ncclCommMemStats(const communicator *comm, int which, uint64_t *value)
{
    enum { CAN_BE_SUSPENDED = 0, IS_SUSPENDED = 1, TOTAL = 3 };
    cm_sim_block block = {.bytes = 0};
    CM_SIM_ENTRY;
    if (accept(comm) || !value)
        return failed(INVALID_ARGUMENT, "no communicator");
    bool taken = comm->memory && cm_sim_find(comm->memory, &block);
    *value = which == IS_SUSPENDED                         ? 0
             : which == CAN_BE_SUSPENDED || which == TOTAL ? (taken ? block.bytes : 0)
                                                           : 0;
    return SUCCESS;
}
PROFILED(ncclCommMemStats);

/* --- what a collective leaves ----------------------------------------------------------------- */

/* The call of that rank that belongs to this one; NULL: it is in no group with it. */
static const call *of_rank(const call *mine, int rank)
{
    for (size_t i = 0; i < group.call_count; i++) {
        const call *other = &group.calls[i];
        if (other->with->of == mine->with->of && other->with->rank == rank &&
            other->number == mine->number && other->what == mine->what &&
            other->bytes == mine->bytes)
            return other;
    }
    return NULL;
}

static size_t result_bytes(const call *one)
{
    bool from_all = one->what == ALL_GATHER || one->what == ALL_TO_ALL || one->what == GATHER;
    return one->bytes * (from_all ? (size_t)one->with->of->ranks : 1);
}

static void leave_result(const call *one)
{
    const call *source;
    if (!one->to)
        return;
    int status = CM_CUDA_CAPTURE_NONE;
    cm_sim_capture_info(one->stream, &status, NULL, NULL, NULL, NULL, NULL);
    bool now = status == CM_CUDA_CAPTURE_NONE;
    /* Alone, a rank gets what it gave. */
    if (now && one->with->of->ranks == 1 && one->what != RECEIVE && one->known_operation) {
        cm_sim_copy(one->to, one->from, one->bytes);
    } else if (now && one->what == BROADCAST && (source = of_rank(one, one->root))) {
        cm_sim_copy(one->to, source->from, one->bytes);
    } else if (now && one->what == ALL_GATHER) {
        for (int rank = 0; rank < one->with->of->ranks; rank++) {
            char *to = (char *)one->to + (size_t)rank * one->bytes;
            if ((source = of_rank(one, rank)))
                cm_sim_copy(to, source->from, one->bytes);
            else
                cm_sim_fresh(to, one->bytes);
        }
    } else {
        cm_sim_fresh(one->to, result_bytes(one));
    }
}

/* --- groups ----------------------------------------------------------------------------------- */

static cm_sim_function *kernel;

static void make_kernel(void)
{
    kernel = cm_sim_function_new("ncclDevKernel_Generic");
}

static int launch(const call *one)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_kernel);
    int before = cm_sim_current_device(), device;
    cm_sim_set_current_device(one->with->device);
    int result = cm_sim_device_ready(&device);
    if (!result)
        result = cuLaunchKernel(kernel, 1, 1, 1, BLOCK, 1, 1, 0, one->stream, NULL, NULL);
    if (!result)
        leave_result(one);
    cm_sim_set_current_device(before);
    return result ? failed(CUDA_ERROR, "the launch of a collective failed") : SUCCESS;
}

static int end_group(bool doing)
{
    int status = SUCCESS;
    while (group.joining_count && doing) {
        int joined = join_first();
        status = status ? status : joined;
    }
    for (size_t i = 0; doing && i < group.call_count; i++) {
        int launched = launch(&group.calls[i]);
        status = status ? status : launched;
    }
    free(group.calls);
    free(group.joinings);
    group.calls = NULL;
    group.joinings = NULL;
    group.call_count = group.call_room = group.joining_count = group.joining_room = 0;
    return status;
}

CM_SIM_EXPORT int ncclGroupStart(void)
{
    CM_SIM_ENTRY;
    group.depth++;
    return SUCCESS;
}
PROFILED(ncclGroupStart);

static int close_group(bool doing)
{
    if (!group.depth)
        return failed(INVALID_USAGE, "no group has begun");
    return --group.depth ? SUCCESS : end_group(doing);
}

CM_SIM_EXPORT int ncclGroupEnd(void)
{
    CM_SIM_ENTRY;
    return close_group(true);
}
PROFILED(ncclGroupEnd);

/* How long it would take is unknown. */
CM_SIM_EXPORT int ncclGroupSimulateEnd(void *info)
{
    CM_SIM_ENTRY;
    return close_group(false);
}
PROFILED(ncclGroupSimulateEnd);

/* --- collectives ------------------------------------------------------------------------------ */

static size_t element(int type)
{
    static const unsigned char bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < TYPES ? bytes[type] : 0;
}

/* operation -1: of a call that has none. */
static int collective(call asked, size_t count, int type, int operation)
{
    communicator *with = asked.with;
    if (accept(with))
        return INVALID_ARGUMENT;
    if (!element(type) || operation < -1 || count > SIZE_MAX / 16 / element(type))
        return failed(INVALID_ARGUMENT, "no such type or operation");
    if (asked.root < 0 || asked.root >= with->of->ranks)
        return failed(INVALID_ARGUMENT, "no such rank");
    if (!count)
        return SUCCESS;
    asked.bytes = count * element(type);
    asked.known_operation = operation < FIRST_OWN_OPERATION;
    call *list = grown(group.calls, group.call_count, &group.call_room, sizeof *group.calls);
    if (!list)
        return failed(SYSTEM_ERROR, "no host memory");
    group.calls = list;
    asked.number = ++with->calls;
    list[group.call_count++] = asked;
    return group.depth ? SUCCESS : end_group(true);
}

CM_SIM_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {BROADCAST, comm, from, to, .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}
PROFILED(ncclBroadcast);

CM_SIM_EXPORT int ncclBcast(void *buffer, size_t count, int type, int root, communicator *comm,
                            cm_sim_stream *stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
PROFILED(ncclBcast);

/* Where it is only the root that gets something. */
static void *at_root(void *to, int root, const communicator *comm)
{
    return is_there(comm) && comm->rank == root ? to : NULL;
}

CM_SIM_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation,
                             int root, communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {REDUCE, comm, from, at_root(to, root, comm), .root = root, .stream = stream};
    return collective(asked, count, type, operation);
}
PROFILED(ncclReduce);

CM_SIM_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_REDUCE, comm, from, to, .stream = stream}, count, type, operation);
}
PROFILED(ncclAllReduce);

CM_SIM_EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type,
                                    int operation, communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {REDUCE_SCATTER, comm, from, to, .stream = stream};
    return collective(asked, count, type, operation);
}
PROFILED(ncclReduceScatter);

CM_SIM_EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_GATHER, comm, from, to, .stream = stream}, count, type, -1);
}
PROFILED(ncclAllGather);

CM_SIM_EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type,
                               communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_TO_ALL, comm, from, to, .stream = stream}, count, type, -1);
}
PROFILED(ncclAlltoAll);

CM_SIM_EXPORT int ncclGather(const void *from, void *to, size_t count, int type, int root,
                             communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {GATHER, comm, from, at_root(to, root, comm), .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}
PROFILED(ncclGather);

CM_SIM_EXPORT int ncclScatter(const void *from, void *to, size_t count, int type, int root,
                              communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {SCATTER, comm, from, to, .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}
PROFILED(ncclScatter);

CM_SIM_EXPORT int ncclSend(const void *from, size_t count, int type, int peer, communicator *comm,
                           cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {SEND, comm, from, NULL, .root = peer, .stream = stream};
    return collective(asked, count, type, -1);
}
PROFILED(ncclSend);

CM_SIM_EXPORT int ncclRecv(void *to, size_t count, int type, int peer, communicator *comm,
                           cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {RECEIVE, comm, NULL, to, .root = peer, .stream = stream};
    return collective(asked, count, type, -1);
}
PROFILED(ncclRecv);

CM_SIM_EXPORT int ncclRedOpCreatePreMulSum(int *operation, const void *scalar, int type,
                                           int residence, const communicator *comm)
{
    static atomic_int made;
    CM_SIM_ENTRY;
    if (accept(comm) || !operation || !scalar || !element(type))
        return failed(INVALID_ARGUMENT, "no operation can be made of this");
    *operation = FIRST_OWN_OPERATION + (atomic_fetch_add(&made, 1) & (INT_MAX >> 1));
    return SUCCESS;
}
PROFILED(ncclRedOpCreatePreMulSum);

CM_SIM_EXPORT int ncclRedOpDestroy(int operation, const communicator *comm)
{
    CM_SIM_ENTRY;
    return accept(comm);
}
PROFILED(ncclRedOpDestroy);

/* --- memory ----------------------------------------------------------------------------------- */

/* The program's own, to be registered: no part of a communicator. */
CM_SIM_EXPORT int ncclMemAlloc(void **result, size_t bytes)
{
    CM_SIM_ENTRY;
    uint64_t address = 0;
    int device;
    if (!result)
        return failed(INVALID_ARGUMENT, "no place for an address");
    *result = NULL;
    if (cm_sim_device_ready(&device) || (bytes && cuMemAlloc_v2(&address, bytes)))
        return failed(CUDA_ERROR, "out of device memory");
    *result = (void *)(uintptr_t)address;
    return SUCCESS;
}
PROFILED(ncclMemAlloc);

CM_SIM_EXPORT int ncclMemFree(void *memory)
{
    CM_SIM_ENTRY;
    return memory && cuMemFree_v2((uintptr_t)memory) ? failed(CUDA_ERROR, "no such memory")
                                                     : SUCCESS;
}
PROFILED(ncclMemFree);

/* A registration is known by the address. */
CM_SIM_EXPORT int ncclCommRegister(const communicator *comm, void *memory, size_t bytes,
                                   void **result)
{
    CM_SIM_ENTRY;
    if (accept(comm) || !memory || !result)
        return failed(INVALID_ARGUMENT, "nothing to register");
    *result = memory;
    return SUCCESS;
}
PROFILED(ncclCommRegister);

CM_SIM_EXPORT int ncclCommDeregister(const communicator *comm, void *registered)
{
    CM_SIM_ENTRY;
    return accept(comm);
}
PROFILED(ncclCommDeregister);

CM_SIM_EXPORT int ncclCommWindowRegister(const communicator *comm, void *memory, size_t bytes,
                                         void **result, int flags)
{
    return ncclCommRegister(comm, memory, bytes, result);
}
PROFILED(ncclCommWindowRegister);

CM_SIM_EXPORT int ncclCommWindowDeregister(const communicator *comm, void *window)
{
    return ncclCommDeregister(comm, window);
}
PROFILED(ncclCommWindowDeregister);

CM_SIM_EXPORT int ncclWinGetUserPtr(const communicator *comm, void *window, void **result)
{
    return ncclCommRegister(comm, window, 0, result);
}
PROFILED(ncclWinGetUserPtr);

/* --- kernels of the program's own that would talk to each other ------------------------------- */

#define REFUSED(name)                                                                              \
    CM_SIM_EXPORT int name(void)                                                                   \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL's one-sided and device calls", 0);                  \
        return failed(INVALID_USAGE, #name " is not simulated");                                   \
    }                                                                                              \
    PROFILED(name)
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
        return failed(INVALID_ARGUMENT, "no place for a version");
    *version = CM_SIM_NCCL_VERSION;
    return SUCCESS;
}
PROFILED(ncclGetVersion);

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
    return group.error;
}
PROFILED(ncclGetLastError);
