/* What the two files of NCCL share: communicators, errors, and how a group ends. */
#ifndef CM_SIM_NCCL_H
#define CM_SIM_NCCL_H

#include <stdlib.h>

#include "../objects/objects.h"
#include "libraries.h"

enum {
    SUCCESS = 0,
    CUDA_ERROR = 1,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    RESULTS = 9
};

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

/* --- nccl.c ----------------------------------------------------------------------------------- */

/* Groups that this thread is inside of. */
extern _Thread_local int cm_nccl_group_depth __attribute__((tls_model("initial-exec")));

/* Returns the status; ncclGetLastError returns the reason. */
int cm_nccl_failed(int status, const char *why);
static inline bool cm_nccl_is_there(const communicator *comm)
{
    return comm && comm->self == comm;
}
int cm_nccl_accept(const communicator *comm);
/* A group ends: makes the communicators that it joins, or forgets them. */
int cm_nccl_end_joining(bool doing);

/* One of so many ranks, on the current device if it is -1: the others are not there, and no
 * collective runs. For PyTorch's fake process group, which stands for NCCL (fake_group.py of
 * cuptimem/simulation). Returns the status. */
CM_SIM_EXPORT int cm_sim_nccl_join(int ranks, int device, communicator **result);
CM_SIM_EXPORT void cm_sim_nccl_leave(communicator *comm);

/* Room for one more. */
static inline void *cm_nccl_grown(void *list, size_t count, size_t *room, size_t each)
{
    if (count < *room)
        return list;
    size_t more = *room ? 2 * *room : 16;
    void *made = realloc(list, more * each);
    if (made)
        *room = more;
    return made;
}

/* What ncclXxx does pncclXxx does. The others are refused: no library calls them. These return
 * text. */
#define PROFILED(name)                                                                             \
    extern __typeof(name) p##name __attribute__((alias(#name), visibility("default")))

#endif
