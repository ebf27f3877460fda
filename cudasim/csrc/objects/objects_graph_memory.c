/* Memory that graphs allocate.
 *
 * It is taken when its node is made and belongs to the graph and its executables together: real
 * CUDA takes it at the first launch and may give it back between launches, so this is an upper
 * bound, and the report states it. */
#include "objects_graph_parts.h"
#include "../core/sim.h"

#include <pthread.h>
#include <stdlib.h>

/* Memory of a graph and of what was made of it. */
struct cm_sim_graph_memory {
    atomic_int users;
    struct taken {
        void *address;
        size_t bytes;
        int device;
        bool idle; /* a free node has passed: a later node of this graph may have it */
    } * list;
    size_t count;
    struct cm_sim_graph_memory *next, **link; /* among all */
};

static struct {
    atomic_ullong used, used_high, reserved, reserved_high;
} graph_memory[CM_SIM_DEVICES];

static void charge(atomic_ullong *now, atomic_ullong *high, size_t bytes)
{
    unsigned long long value = atomic_fetch_add(now, bytes) + bytes, before = atomic_load(high);
    while (before < value && !atomic_compare_exchange_weak(high, &before, value))
        ;
}

int cm_sim_graph_memory_get(int device, int attribute, uint64_t *value)
{
    switch (attribute) {
    case CM_CUDA_GRAPH_MEM_USED_CURRENT:
        *value = atomic_load(&graph_memory[device].used);
        return CM_CUDA_OK;
    case CM_CUDA_GRAPH_MEM_USED_HIGH:
        *value = atomic_load(&graph_memory[device].used_high);
        return CM_CUDA_OK;
    case CM_CUDA_GRAPH_MEM_RESERVED_CURRENT:
        *value = atomic_load(&graph_memory[device].reserved);
        return CM_CUDA_OK;
    case CM_CUDA_GRAPH_MEM_RESERVED_HIGH:
        *value = atomic_load(&graph_memory[device].reserved_high);
        return CM_CUDA_OK;
    default:
        return CM_CUDA_INVALID_VALUE;
    }
}

int cm_sim_graph_memory_reset(int device, int attribute)
{
    if (attribute == CM_CUDA_GRAPH_MEM_USED_HIGH)
        atomic_store(&graph_memory[device].used_high, atomic_load(&graph_memory[device].used));
    else if (attribute == CM_CUDA_GRAPH_MEM_RESERVED_HIGH)
        atomic_store(&graph_memory[device].reserved_high,
                     atomic_load(&graph_memory[device].reserved));
    else
        return CM_CUDA_INVALID_VALUE;
    return CM_CUDA_OK;
}

/* The program may free outside of a graph what the graph allocated, so all are known. */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cm_sim_graph_memory *memories;

void cm_sim_graphs_lock(void)
{
    pthread_mutex_lock(&memory_lock);
}

void cm_sim_graphs_unlock(void)
{
    pthread_mutex_unlock(&memory_lock);
}

static bool have_memory(cm_sim_graph *graph)
{
    if (graph->memory)
        return true;
    struct cm_sim_graph_memory *made = calloc(1, sizeof *made);
    if (!made)
        return false;
    atomic_store(&made->users, 1);
    made->next = memories;
    made->link = &memories;
    if (memories)
        memories->link = &made->next;
    memories = made;
    graph->memory = made;
    return true;
}

/* An idle block that is large enough, or room for a new one. */
static struct taken *place_for(struct cm_sim_graph_memory *memory, int device, size_t bytes)
{
    struct taken *best = NULL;
    for (size_t i = 0; i < memory->count; i++) {
        struct taken *taken = &memory->list[i];
        if (taken->idle && taken->device == device && taken->bytes >= bytes &&
            (!best || taken->bytes < best->bytes))
            best = taken;
    }
    if (best)
        return best;
    struct taken *wider = realloc(memory->list, (memory->count + 1) * sizeof *wider);
    if (!wider)
        return NULL;
    memory->list = wider;
    wider[memory->count] = (struct taken){.bytes = bytes, .device = device};
    return &wider[memory->count];
}

int cm_sim_graph_memory_take(cm_sim_graph *graph, int device, size_t bytes, void **address)
{
    if (!bytes || device < 0 || device >= cm_sim_config_get()->devices)
        return CM_CUDA_INVALID_VALUE;
    int result = CM_CUDA_OUT_OF_MEMORY;
    pthread_mutex_lock(&memory_lock);
    struct taken *place = have_memory(graph) ? place_for(graph->memory, device, bytes) : NULL;
    if (place && place->idle) {
        result = CM_CUDA_OK;
    } else if (place) {
        result = cm_sim_alloc(device, CM_SIM_POOL, bytes, NULL, &place->address);
        if (!result) {
            graph->memory->count++;
            charge(&graph_memory[device].reserved, &graph_memory[device].reserved_high, bytes);
            cm_sim_note(CM_SIM_NOTE_MODELLED, "memory of CUDA graphs",
                        atomic_load(&graph_memory[device].reserved));
        }
    }
    if (!result) {
        place->idle = false;
        charge(&graph_memory[device].used, &graph_memory[device].used_high, place->bytes);
        *address = place->address;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}

/* Under the lock. */
static bool free_in(struct cm_sim_graph_memory *memory, const void *address)
{
    for (size_t i = 0; memory && i < memory->count; i++) {
        struct taken *taken = &memory->list[i];
        if (taken->address != address || taken->idle)
            continue;
        taken->idle = true;
        atomic_fetch_sub(&graph_memory[taken->device].used, taken->bytes);
        return true;
    }
    return false;
}

int cm_sim_graph_memory_give(const cm_sim_graph *graph, const void *address)
{
    pthread_mutex_lock(&memory_lock);
    bool freed = free_in(graph->memory, address);
    pthread_mutex_unlock(&memory_lock);
    return freed ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
}
bool cm_sim_graph_memory_free(const void *address)
{
    bool freed = false;
    pthread_mutex_lock(&memory_lock);
    for (struct cm_sim_graph_memory *memory = memories; memory && !freed; memory = memory->next)
        freed = free_in(memory, address);
    pthread_mutex_unlock(&memory_lock);
    return freed;
}

/* The memory goes with the device's last context: this only forgets it. */
void cm_sim_graphs_end(int device)
{
    pthread_mutex_lock(&memory_lock);
    for (struct cm_sim_graph_memory *memory = memories; memory; memory = memory->next) {
        size_t kept = 0;
        for (size_t i = 0; i < memory->count; i++)
            if (memory->list[i].device != device)
                memory->list[kept++] = memory->list[i];
        memory->count = kept;
    }
    atomic_store(&graph_memory[device].reserved, 0);
    atomic_store(&graph_memory[device].used, 0);
    pthread_mutex_unlock(&memory_lock);
}

void cm_sim_graph_memory_join(struct cm_sim_graph_memory *memory)
{
    if (memory)
        atomic_fetch_add(&memory->users, 1);
}

void cm_sim_graph_memory_leave(struct cm_sim_graph_memory *memory)
{
    if (!memory || atomic_fetch_sub(&memory->users, 1) > 1)
        return;
    pthread_mutex_lock(&memory_lock);
    *memory->link = memory->next;
    if (memory->next)
        memory->next->link = memory->link;
    pthread_mutex_unlock(&memory_lock);
    for (size_t i = 0; i < memory->count; i++) {
        struct taken *taken = &memory->list[i];
        (void)cm_sim_free(taken->address, NULL); /* its own */
        atomic_fetch_sub(&graph_memory[taken->device].reserved, taken->bytes);
        if (!taken->idle)
            atomic_fetch_sub(&graph_memory[taken->device].used, taken->bytes);
    }
    free(memory->list);
    free(memory);
}
