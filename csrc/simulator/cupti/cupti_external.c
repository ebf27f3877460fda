/* External correlation: a client's own ids around what a thread calls. Kineto finds out by them
 * which operator launched a kernel. */
#include <pthread.h>
#include <stdlib.h>

#include "cupti.h"

enum { KINDS = 6, FIRST_SIZE = 16 }; /* kinds 1 to 5 */

typedef struct ids {
    struct {
        uint64_t *ids;
        size_t count, size;
    } of[KINDS];
} ids;

static _Thread_local ids *mine;
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static void drop(void *memory)
{
    ids *all = memory;

    for (unsigned kind = 0; kind < KINDS; kind++)
        free(all->of[kind].ids);
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

CM_SIM_EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id)
{
    if (!kind || kind >= KINDS)
        return CM_CUPTI_INVALID_PARAMETER;
    if (!prepare())
        return CM_CUPTI_OUT_OF_MEMORY;
    if (mine->of[kind].count == mine->of[kind].size) {
        size_t size = mine->of[kind].size ? mine->of[kind].size * 2 : FIRST_SIZE;
        uint64_t *larger = realloc(mine->of[kind].ids, size * sizeof *larger);
        if (!larger)
            return CM_CUPTI_OUT_OF_MEMORY;
        mine->of[kind].ids = larger;
        mine->of[kind].size = size;
    }
    mine->of[kind].ids[mine->of[kind].count++] = id;
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last)
{
    if (!kind || kind >= KINDS)
        return CM_CUPTI_INVALID_PARAMETER;
    if (!mine || !mine->of[kind].count)
        return CM_CUPTI_QUEUE_EMPTY;
    uint64_t id = mine->of[kind].ids[--mine->of[kind].count];
    if (last)
        *last = id;
    return CM_CUPTI_OK;
}

void cm_sim_cupti_external_emit(uint32_t correlation)
{
    if (!mine || !cm_sim_cupti_kind_on(CM_CUPTI_EXTERNAL_CORRELATION, 0))
        return;
    for (uint32_t kind = 1; kind < KINDS; kind++) {
        if (!mine->of[kind].count)
            continue;
        cm_cupti_external record = {
            .kind = CM_CUPTI_EXTERNAL_CORRELATION,
            .externalKind = kind,
            .externalId = mine->of[kind].ids[mine->of[kind].count - 1],
            .correlationId = correlation,
        };
        cm_sim_cupti_emit(&record, sizeof record);
    }
}
