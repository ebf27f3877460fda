/* NCCL's collectives and groups.
 *
 * A collective is a launch on its stream. Its result is known where it only copies what another
 * rank had; sums are unknown. A call takes effect when its group ends, as in NCCL: all ranks have
 * passed their arguments then. */

#include "nccl.h"

#include <limits.h>
#include <pthread.h>

enum { FIRST_OWN_OPERATION = 5, TYPES = 12, BLOCK = 512 };

int cuLaunchKernel(cm_sim_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   cm_sim_stream *stream, void **parameters, void **extra);

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

/* Of this thread's group. */
static _Thread_local struct {
    call *list;
    size_t count, room;
} calls __attribute__((tls_model("initial-exec")));

/* --- what a collective leaves ----------------------------------------------------------------- */

/* The call of that rank that belongs to this one; NULL: it is in no group with it. */
static const call *of_rank(const call *mine, int rank)
{
    for (size_t i = 0; i < calls.count; i++) {
        const call *other = &calls.list[i];
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
    return result ? cm_nccl_failed(CUDA_ERROR, "the launch of a collective failed") : SUCCESS;
}

static int end_group(bool doing)
{
    int status = cm_nccl_end_joining(doing);
    for (size_t i = 0; doing && i < calls.count; i++) {
        int launched = launch(&calls.list[i]);
        status = status ? status : launched;
    }
    free(calls.list);
    calls.list = NULL;
    calls.count = calls.room = 0;
    return status;
}

CM_SIM_EXPORT int ncclGroupStart(void)
{
    CM_SIM_ENTRY;
    cm_nccl_group_depth++;
    return SUCCESS;
}

static int close_group(bool doing)
{
    if (!cm_nccl_group_depth)
        return cm_nccl_failed(INVALID_USAGE, "no group has begun");
    return --cm_nccl_group_depth ? SUCCESS : end_group(doing);
}

CM_SIM_EXPORT int ncclGroupEnd(void)
{
    CM_SIM_ENTRY;
    return close_group(true);
}

/* How long it would take is unknown. */
CM_SIM_EXPORT int ncclGroupSimulateEnd(void *info)
{
    CM_SIM_ENTRY;
    return close_group(false);
}

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
    if (cm_nccl_accept(with))
        return INVALID_ARGUMENT;
    if (!element(type) || operation < -1 || count > SIZE_MAX / 16 / element(type))
        return cm_nccl_failed(INVALID_ARGUMENT, "no such type or operation");
    if (asked.root < 0 || asked.root >= with->of->ranks)
        return cm_nccl_failed(INVALID_ARGUMENT, "no such rank");
    if (!count)
        return SUCCESS;
    asked.bytes = count * element(type);
    asked.known_operation = operation < FIRST_OWN_OPERATION;
    call *list = cm_nccl_grown(calls.list, calls.count, &calls.room, sizeof *calls.list);
    if (!list)
        return cm_nccl_failed(SYSTEM_ERROR, "no host memory");
    calls.list = list;
    asked.number = ++with->calls;
    list[calls.count++] = asked;
    return cm_nccl_group_depth ? SUCCESS : end_group(true);
}

CM_SIM_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {BROADCAST, comm, from, to, .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}

CM_SIM_EXPORT int ncclBcast(void *buffer, size_t count, int type, int root, communicator *comm,
                            cm_sim_stream *stream)
{
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

/* Where it is only the root that gets something. */
static void *at_root(void *to, int root, const communicator *comm)
{
    return cm_nccl_is_there(comm) && comm->rank == root ? to : NULL;
}

CM_SIM_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation,
                             int root, communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {REDUCE, comm, from, at_root(to, root, comm), .root = root, .stream = stream};
    return collective(asked, count, type, operation);
}

CM_SIM_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_REDUCE, comm, from, to, .stream = stream}, count, type, operation);
}

CM_SIM_EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type,
                                    int operation, communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {REDUCE_SCATTER, comm, from, to, .stream = stream};
    return collective(asked, count, type, operation);
}

CM_SIM_EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type,
                                communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_GATHER, comm, from, to, .stream = stream}, count, type, -1);
}

CM_SIM_EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type,
                               communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    return collective((call){ALL_TO_ALL, comm, from, to, .stream = stream}, count, type, -1);
}

CM_SIM_EXPORT int ncclGather(const void *from, void *to, size_t count, int type, int root,
                             communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {GATHER, comm, from, at_root(to, root, comm), .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}

CM_SIM_EXPORT int ncclScatter(const void *from, void *to, size_t count, int type, int root,
                              communicator *comm, cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {SCATTER, comm, from, to, .root = root, .stream = stream};
    return collective(asked, count, type, -1);
}

CM_SIM_EXPORT int ncclSend(const void *from, size_t count, int type, int peer, communicator *comm,
                           cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {SEND, comm, from, NULL, .root = peer, .stream = stream};
    return collective(asked, count, type, -1);
}

CM_SIM_EXPORT int ncclRecv(void *to, size_t count, int type, int peer, communicator *comm,
                           cm_sim_stream *stream)
{
    CM_SIM_ENTRY;
    call asked = {RECEIVE, comm, NULL, to, .root = peer, .stream = stream};
    return collective(asked, count, type, -1);
}

CM_SIM_EXPORT int ncclRedOpCreatePreMulSum(int *operation, const void *scalar, int type,
                                           int residence, const communicator *comm)
{
    static atomic_int made;
    CM_SIM_ENTRY;
    if (cm_nccl_accept(comm) || !operation || !scalar || !element(type))
        return cm_nccl_failed(INVALID_ARGUMENT, "no operation can be made of this");
    *operation = FIRST_OWN_OPERATION + (atomic_fetch_add(&made, 1) & (INT_MAX >> 1));
    return SUCCESS;
}

CM_SIM_EXPORT int ncclRedOpDestroy(int operation, const communicator *comm)
{
    CM_SIM_ENTRY;
    return cm_nccl_accept(comm);
}
