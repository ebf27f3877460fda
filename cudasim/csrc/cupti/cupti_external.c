/* External correlation: a client's own ids around what a thread calls. Kineto finds out by them
 * which operator launched a kernel. */
#include <pthread.h>
#include <stdlib.h>

#include "cupti.h"

enum { KINDS = 6, FIRST_SIZE = 16 }; /* kinds 1 to 5 */

struct stack {
    uint64_t *ids;
    size_t count, size;
};

typedef struct ids {
    struct stack of[CM_CUPTI_CLIENTS][KINDS];
} ids;

static _Thread_local ids *mine;
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static void drop(void *memory)
{
    ids *all = memory;

    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        for (unsigned kind = 0; kind < KINDS; kind++)
            free(all->of[client][kind].ids);
    free(all);
    mine = NULL;
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, drop) == 0;
}

static bool prepare(void)
{
    if (mine)
        return true;
    pthread_once(&once, make_key);
    ids *all = have_key ? calloc(1, sizeof *all) : NULL;
    if (!all || pthread_setspecific(at_thread_end, all) != 0) {
        free(all);
        return false;
    }
    mine = all;
    return true;
}

int cm_sim_cupti_external_push(unsigned client, uint32_t kind, uint64_t id)
{
    CM_CUPTI_NEEDS_DRIVER;
    if (!kind || kind >= KINDS)
        return CM_CUPTI_INVALID_PARAMETER;
    if (!prepare())
        return CM_CUPTI_OUT_OF_MEMORY;
    struct stack *of = &mine->of[client][kind];
    if (of->count == of->size) {
        size_t size = of->size ? of->size * 2 : FIRST_SIZE;
        uint64_t *larger = realloc(of->ids, size * sizeof *larger);
        if (!larger)
            return CM_CUPTI_OUT_OF_MEMORY;
        of->ids = larger;
        of->size = size;
    }
    of->ids[of->count++] = id;
    return CM_CUPTI_OK;
}

int cm_sim_cupti_external_pop(unsigned client, uint32_t kind, uint64_t *last)
{
    CM_CUPTI_NEEDS_DRIVER;
    if (!kind || kind >= KINDS)
        return CM_CUPTI_INVALID_PARAMETER;
    struct stack *of = mine ? &mine->of[client][kind] : NULL;
    if (!of || !of->count)
        return CM_CUPTI_QUEUE_EMPTY;
    uint64_t id = of->ids[--of->count];
    if (last)
        *last = id;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_external_push(CM_CUPTI_FIRST, kind, id);
}

CM_SIM_EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_external_pop(CM_CUPTI_FIRST, kind, last);
}

void cm_sim_cupti_external_emit(uint32_t clients, uint32_t correlation)
{
    clients = mine ? clients & cm_sim_cupti_clients(CM_CUPTI_EXTERNAL_CORRELATION, 0) : 0;
    for (; clients; clients &= clients - 1) {
        unsigned client = (unsigned)__builtin_ctz(clients);
        for (uint32_t kind = 1; kind < KINDS; kind++) {
            const struct stack *of = &mine->of[client][kind];
            if (!of->count)
                continue;
            cm_cupti_external record = {
                .kind = CM_CUPTI_EXTERNAL_CORRELATION,
                .externalKind = kind,
                .externalId = of->ids[of->count - 1],
                .correlationId = correlation,
            };
            cm_sim_cupti_emit(1u << client, &record, sizeof record);
        }
    }
}
