/* Graphs: nodes in the order in which they were made, each with those it comes behind.
 *
 * A launch does what its nodes say: kernels are counted, copies and fills are made, host functions
 * are called. Memory that a graph allocates is taken when its node is made and belongs to the graph
 * and its executables together: real CUDA takes it at the first launch and may give it back between
 * launches, so this is an upper bound, and said in the report. */
#include "objects_graph.h"
#include "../cupti/cupti_hooks.h"
#include "../core/sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

struct kept {
    cm_sim_user_object *object;
    unsigned count;
};

struct __attribute__((aligned(128))) cm_sim_graph {
    cm_sim_slot slot;
    cm_sim_node **nodes;
    size_t count, room;
    size_t others;  /* nodes that are no kernels */
    bool backwards; /* an edge leads from a later node to an earlier one */
    bool owned;     /* by a node or an executable: not the program's to destroy */
    uint32_t mark;
    struct kept *kept;
    size_t kept_count;
    struct cm_sim_graph_memory *memory;
};

struct __attribute__((aligned(128))) cm_sim_node {
    cm_sim_slot slot;
    cm_sim_graph *graph;
    int type;
    uint32_t index; /* in its graph */
    uint32_t mark;
    cm_sim_nodes after;
    union {
        struct {
            const void *function;
            cm_cuda_dim3 grid, block;
            unsigned shared;
        } kernel;
        cm_cuda_copy3d *copy;
        cm_cuda_set_node set;
        cm_cuda_host_node host;
        cm_sim_graph *child;
        cm_sim_event *event;
        struct {
            void *address;
            size_t bytes;
        } memory;
    };
};

struct __attribute__((aligned(64))) cm_sim_exec {
    cm_sim_slot slot;
    cm_sim_graph *graph; /* a copy of what it was made of */
    unsigned long long flags;
};

struct __attribute__((aligned(64))) cm_sim_user_object {
    cm_sim_slot slot;
    atomic_uint references;
    cm_cuda_host_function destroy;
    void *data;
};

static cm_sim_table graphs = CM_SIM_TABLE(cm_sim_graph);
static cm_sim_table nodes = CM_SIM_TABLE(cm_sim_node);
static cm_sim_table execs = CM_SIM_TABLE(cm_sim_exec);
static cm_sim_table user_objects = CM_SIM_TABLE(cm_sim_user_object);

/* --- lists of nodes -----------------------------------------------------------------------------
 */

static bool make_room(cm_sim_nodes *list, size_t count)
{
    if (count <= list->room)
        return true;
    cm_sim_node **wider = realloc(list->list, count * sizeof *wider);
    if (!wider)
        return false;
    list->list = wider;
    list->room = count;
    return true;
}

bool cm_sim_nodes_set(cm_sim_nodes *list, cm_sim_node *const *from, size_t count)
{
    if (!make_room(list, count))
        return false;
    if (count)
        memmove(list->list, from, count * sizeof *from);
    list->count = count;
    return true;
}

bool cm_sim_nodes_add(cm_sim_nodes *list, cm_sim_node *const *from, size_t count)
{
    if (!make_room(list, list->count + count))
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < list->count && list->list[j] != from[i])
            j++;
        if (j == list->count)
            list->list[list->count++] = from[i];
    }
    return true;
}

void cm_sim_nodes_clear(cm_sim_nodes *list)
{
    free(list->list);
    *list = (cm_sim_nodes){0};
}

bool cm_sim_graph_live(const cm_sim_graph *graph)
{
    return cm_sim_table_has(&graphs, graph);
}

bool cm_sim_exec_live(const cm_sim_exec *exec)
{
    return cm_sim_table_has(&execs, exec);
}

bool cm_sim_node_live(const cm_sim_node *node)
{
    return cm_sim_table_has(&nodes, node);
}

bool cm_sim_node_in(const cm_sim_node *node, const cm_sim_graph *graph)
{
    return cm_sim_node_live(node) && node->graph == graph;
}

bool cm_sim_graph_reaches(cm_sim_graph *graph, const cm_sim_nodes *from, const cm_sim_nodes *wanted)
{
    cm_sim_nodes open = {0};
    uint32_t mark = ++graph->mark;
    bool reached = cm_sim_nodes_set(&open, from->list, from->count);
    for (size_t i = 0; reached && i < open.count; i++)
        open.list[i]->mark = mark;
    while (reached && open.count) {
        cm_sim_node *node = open.list[--open.count];
        for (size_t i = 0; reached && i < node->after.count; i++) {
            cm_sim_node *before = node->after.list[i];
            if (before->mark == mark)
                continue;
            before->mark = mark;
            /* Grows by doubling: make_room takes what it is asked for. */
            reached = open.count < open.room || make_room(&open, 2 * open.count + 16);
            if (reached)
                open.list[open.count++] = before;
        }
    }
    for (size_t i = 0; reached && i < wanted->count; i++)
        reached = wanted->list[i]->mark == mark;
    cm_sim_nodes_clear(&open);
    return reached;
}

/* --- memory -------------------------------------------------------------------------------------
 */

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

static int take_memory(cm_sim_graph *graph, int device, size_t bytes, void **address)
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

static int free_memory(const cm_sim_graph *graph, const void *address)
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

static void leave_memory(struct cm_sim_graph_memory *memory)
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

/* --- objects of the program that live as long as a graph ----------------------------------------
 */

int cm_sim_user_object_new(void *data, cm_cuda_host_function destroy, unsigned references,
                           cm_sim_user_object **object)
{
    if (!object || !destroy || !references || references > INT32_MAX)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_user_object *made = cm_sim_table_take(&user_objects);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    made->destroy = destroy;
    made->data = data;
    atomic_store(&made->references, references);
    *object = made;
    return CM_CUDA_OK;
}

int cm_sim_user_object_retain(cm_sim_user_object *object, unsigned count)
{
    if (!cm_sim_table_has(&user_objects, object) || !count || count > INT32_MAX)
        return CM_CUDA_INVALID_VALUE;
    atomic_fetch_add(&object->references, count);
    return CM_CUDA_OK;
}

int cm_sim_user_object_release(cm_sim_user_object *object, unsigned count)
{
    if (!cm_sim_table_has(&user_objects, object) || !count)
        return CM_CUDA_INVALID_VALUE;
    unsigned now = atomic_load(&object->references);
    do {
        if (now < count)
            return CM_CUDA_INVALID_VALUE;
    } while (!atomic_compare_exchange_weak(&object->references, &now, now - count));
    if (now == count) {
        object->destroy(object->data);
        cm_sim_table_drop(&user_objects, object);
    }
    return CM_CUDA_OK;
}

static bool keep(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count)
{
    struct kept *wider = realloc(graph->kept, (graph->kept_count + 1) * sizeof *wider);
    if (!wider)
        return false;
    graph->kept = wider;
    wider[graph->kept_count++] = (struct kept){object, count};
    return true;
}

int cm_sim_graph_retain_object(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count,
                               bool move)
{
    if (!cm_sim_graph_live(graph) || !cm_sim_table_has(&user_objects, object) || !count)
        return CM_CUDA_INVALID_VALUE;
    if (!keep(graph, object, count))
        return CM_CUDA_OUT_OF_MEMORY;
    return move ? CM_CUDA_OK : cm_sim_user_object_retain(object, count);
}

int cm_sim_graph_release_object(cm_sim_graph *graph, cm_sim_user_object *object, unsigned count)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    for (size_t i = 0; i < graph->kept_count; i++)
        if (graph->kept[i].object == object && graph->kept[i].count >= count) {
            graph->kept[i].count -= count;
            if (!graph->kept[i].count)
                graph->kept[i] = graph->kept[--graph->kept_count];
            return cm_sim_user_object_release(object, count);
        }
    return CM_CUDA_INVALID_VALUE;
}

/* --- making -------------------------------------------------------------------------------------
 */

int cm_sim_graph_new(cm_sim_graph **graph)
{
    if (!graph)
        return CM_CUDA_INVALID_VALUE;
    *graph = cm_sim_table_take(&graphs);
    return *graph ? CM_CUDA_OK : CM_CUDA_OUT_OF_MEMORY;
}

static void empty(cm_sim_graph *graph);

static void drop_node(cm_sim_node *node)
{
    if (node->type == CM_CUDA_NODE_COPY)
        free(node->copy);
    else if (node->type == CM_CUDA_NODE_GRAPH)
        empty(node->child);
    cm_sim_nodes_clear(&node->after);
    cm_sim_table_drop(&nodes, node);
}

static void empty(cm_sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        drop_node(graph->nodes[i]);
    for (size_t i = 0; i < graph->kept_count; i++)
        (void)cm_sim_user_object_release(graph->kept[i].object, graph->kept[i].count);
    leave_memory(graph->memory);
    free(graph->kept);
    free(graph->nodes);
    cm_sim_table_drop(&graphs, graph);
}

int cm_sim_graph_delete(cm_sim_graph *graph)
{
    if (!cm_sim_graph_live(graph) || graph->owned)
        return CM_CUDA_INVALID_VALUE;
    empty(graph);
    return CM_CUDA_OK;
}

static int append(cm_sim_graph *graph, int type, cm_sim_node *const *after, size_t count,
                  cm_sim_node **node)
{
    if (graph->count == graph->room) {
        size_t room = graph->room ? 2 * graph->room : 16;
        cm_sim_node **wider = realloc(graph->nodes, room * sizeof *wider);
        if (!wider)
            return CM_CUDA_OUT_OF_MEMORY;
        graph->nodes = wider;
        graph->room = room;
    }
    cm_sim_node *made = cm_sim_table_take(&nodes);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    made->graph = graph;
    made->type = type;
    made->index = (uint32_t)graph->count;
    if (!cm_sim_nodes_add(&made->after, after, count)) {
        cm_sim_table_drop(&nodes, made);
        return CM_CUDA_OUT_OF_MEMORY;
    }
    graph->nodes[graph->count++] = made;
    graph->others += type != CM_CUDA_NODE_KERNEL;
    *node = made;
    return CM_CUDA_OK;
}

static int copy_graph(const cm_sim_graph *from, cm_sim_graph **copy);

/* What a node is to do, from the program's words or from another node. */
static int fill(cm_sim_node *node, cm_cuda_node_params *params)
{
    switch (params->type) {
    case CM_CUDA_NODE_KERNEL:
        node->kernel.function = params->kernel.func;
        node->kernel.grid = params->kernel.gridDim;
        node->kernel.block = params->kernel.blockDim;
        node->kernel.shared = params->kernel.sharedMemBytes;
        return params->kernel.func ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_COPY:
        if (params->memcpy.copyParams.srcArray || params->memcpy.copyParams.dstArray) {
            cm_sim_note(CM_SIM_NOTE_REFUSED, "CUDA arrays", 0);
            return CM_CUDA_NOT_SUPPORTED;
        }
        node->copy = malloc(sizeof *node->copy);
        if (!node->copy)
            return CM_CUDA_OUT_OF_MEMORY;
        *node->copy = params->memcpy.copyParams;
        return CM_CUDA_OK;
    case CM_CUDA_NODE_SET:
        node->set = params->memset;
        return CM_CUDA_OK;
    case CM_CUDA_NODE_HOST:
        node->host = params->host;
        return params->host.fn ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_GRAPH:
        if (!cm_sim_graph_live(params->graph.graph))
            return CM_CUDA_INVALID_VALUE;
        return copy_graph(params->graph.graph, &node->child);
    case CM_CUDA_NODE_EMPTY:
        return CM_CUDA_OK;
    case CM_CUDA_NODE_WAIT_EVENT:
    case CM_CUDA_NODE_RECORD_EVENT:
        node->event = params->eventRecord.event;
        return cm_sim_event_live(node->event) ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
    case CM_CUDA_NODE_ALLOC: {
        int result = take_memory(node->graph, params->alloc.poolProps.location.id,
                                 params->alloc.bytesize, &node->memory.address);
        node->memory.bytes = params->alloc.bytesize;
        params->alloc.dptr = result ? NULL : node->memory.address;
        return result;
    }
    case CM_CUDA_NODE_FREE:
        node->memory.address = params->free.dptr;
        return free_memory(node->graph, params->free.dptr);
    case CM_CUDA_NODE_CONDITIONAL:
        /* Which branch runs is decided by a kernel, and kernels do nothing. */
        cm_sim_note(CM_SIM_NOTE_REFUSED, "conditional nodes of CUDA graphs", 0);
        return CM_CUDA_NOT_SUPPORTED;
    case CM_CUDA_NODE_SIGNAL:
    case CM_CUDA_NODE_WAIT:
        cm_sim_note(CM_SIM_NOTE_REFUSED, "external semaphores", 0);
        return CM_CUDA_NOT_SUPPORTED;
    default:
        return CM_CUDA_INVALID_VALUE;
    }
}

int cm_sim_graph_add(cm_sim_graph *graph, cm_sim_node *const *after, size_t count,
                     cm_cuda_node_params *params, cm_sim_node **node)
{
    if (!cm_sim_graph_live(graph) || !params || (count && !after))
        return CM_CUDA_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!cm_sim_node_in(after[i], graph))
            return CM_CUDA_INVALID_VALUE;
    cm_sim_node *made;
    int result = append(graph, params->type, after, count, &made);
    if (result)
        return result;
    result = fill(made, params);
    if (result) {
        graph->count--;
        graph->others -= made->type != CM_CUDA_NODE_KERNEL;
        cm_sim_nodes_clear(&made->after);
        cm_sim_table_drop(&nodes, made);
    } else if (node) {
        *node = made;
    }
    return result;
}

int cm_sim_graph_connect(cm_sim_graph *graph, cm_sim_node *const *from, cm_sim_node *const *to,
                         size_t count)
{
    if (!cm_sim_graph_live(graph) || (count && (!from || !to)))
        return CM_CUDA_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!cm_sim_node_in(from[i], graph) || !cm_sim_node_in(to[i], graph) || from[i] == to[i])
            return CM_CUDA_INVALID_VALUE;
        if (!cm_sim_nodes_add(&to[i]->after, &from[i], 1))
            return CM_CUDA_OUT_OF_MEMORY;
        graph->backwards |= from[i]->index > to[i]->index;
    }
    return CM_CUDA_OK;
}

/* Puts every node behind those it depends on. false: a circle. */
static bool sort(cm_sim_graph *graph)
{
    size_t done = 0;
    uint32_t mark = ++graph->mark;
    for (bool moved = true; moved && done < graph->count;) {
        moved = false;
        for (size_t i = done; i < graph->count; i++) {
            cm_sim_node *node = graph->nodes[i];
            size_t ready = 0;
            while (ready < node->after.count && node->after.list[ready]->mark == mark)
                ready++;
            if (ready < node->after.count)
                continue;
            node->mark = mark;
            memmove(&graph->nodes[done + 1], &graph->nodes[done],
                    (i - done) * sizeof *graph->nodes);
            graph->nodes[done++] = node;
            moved = true;
        }
    }
    return done == graph->count;
}

/* Nodes keep their index, which is what joins a copy's node to its original. */
static int copy_nodes(const cm_sim_graph *from, cm_sim_graph *copy)
{
    for (size_t i = 0; i < from->count; i++) {
        const cm_sim_node *node = from->nodes[i];
        cm_sim_node *made;
        int result = append(copy, node->type, NULL, 0, &made);
        if (result)
            return result;
        cm_sim_slot slot = made->slot;
        switch (node->type) {
        case CM_CUDA_NODE_COPY:
            made->copy = malloc(sizeof *made->copy);
            if (!made->copy)
                return CM_CUDA_OUT_OF_MEMORY;
            *made->copy = *node->copy;
            break;
        case CM_CUDA_NODE_GRAPH:
            made->type = CM_CUDA_NODE_EMPTY; /* while there is no child to drop */
            result = copy_graph(node->child, &made->child);
            if (result)
                return result;
            made->type = CM_CUDA_NODE_GRAPH;
            break;
        default:
            memcpy(&made->kernel, &node->kernel,
                   sizeof *made - offsetof(struct cm_sim_node, kernel));
        }
        made->slot = slot;
    }
    /* Only now are all there. An original that was not sorted has its indices all the same. */
    for (size_t i = 0; i < from->count; i++) {
        cm_sim_node *made = copy->nodes[i];
        const cm_sim_nodes *after = &from->nodes[i]->after;
        for (size_t j = 0; j < after->count; j++)
            if (!cm_sim_nodes_add(&made->after, &copy->nodes[after->list[j]->index], 1))
                return CM_CUDA_OUT_OF_MEMORY;
    }
    copy->backwards = from->backwards;
    return CM_CUDA_OK;
}

static int copy_graph(const cm_sim_graph *from, cm_sim_graph **copy)
{
    cm_sim_graph *made;
    int result = cm_sim_graph_new(&made);
    if (result)
        return result;
    made->owned = true;
    result = copy_nodes(from, made);
    for (size_t i = 0; !result && i < from->kept_count; i++) {
        const struct kept *kept = &from->kept[i];
        if (!keep(made, kept->object, kept->count))
            result = CM_CUDA_OUT_OF_MEMORY;
        else
            result = cm_sim_user_object_retain(kept->object, kept->count);
    }
    if (result) {
        empty(made);
        return result;
    }
    made->memory = from->memory;
    if (made->memory)
        atomic_fetch_add(&made->memory->users, 1);
    *copy = made;
    return CM_CUDA_OK;
}

int cm_sim_graph_clone(cm_sim_graph *graph, cm_sim_graph **clone)
{
    if (!cm_sim_graph_live(graph) || !clone)
        return CM_CUDA_INVALID_VALUE;
    int result = copy_graph(graph, clone);
    if (!result)
        (*clone)->owned = false;
    return result;
}

/* --- asking -------------------------------------------------------------------------------------
 */

static int answer(cm_sim_node *const *list, size_t there, cm_sim_node **out, size_t *count)
{
    if (!count)
        return CM_CUDA_INVALID_VALUE;
    if (out)
        for (size_t i = 0; i < *count; i++)
            out[i] = i < there ? list[i] : NULL;
    if (!out || *count > there)
        *count = there;
    return CM_CUDA_OK;
}

int cm_sim_graph_nodes(cm_sim_graph *graph, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    return answer(graph->nodes, graph->count, out, count);
}

int cm_sim_graph_roots(cm_sim_graph *graph, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_nodes roots = {0};
    int result = CM_CUDA_OK;
    for (size_t i = 0; !result && i < graph->count; i++)
        if (!graph->nodes[i]->after.count && !cm_sim_nodes_add(&roots, &graph->nodes[i], 1))
            result = CM_CUDA_OUT_OF_MEMORY;
    if (!result)
        result = answer(roots.list, roots.count, out, count);
    cm_sim_nodes_clear(&roots);
    return result;
}

int cm_sim_node_before(cm_sim_node *node, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_node_live(node))
        return CM_CUDA_INVALID_VALUE;
    return answer(node->after.list, node->after.count, out, count);
}

int cm_sim_node_behind(cm_sim_node *node, cm_sim_node **out, size_t *count)
{
    if (!cm_sim_node_live(node))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_nodes behind = {0};
    int result = CM_CUDA_OK;
    const cm_sim_graph *graph = node->graph;
    for (size_t i = 0; !result && i < graph->count; i++)
        for (size_t j = 0; !result && j < graph->nodes[i]->after.count; j++)
            if (graph->nodes[i]->after.list[j] == node &&
                !cm_sim_nodes_add(&behind, &graph->nodes[i], 1))
                result = CM_CUDA_OUT_OF_MEMORY;
    if (!result)
        result = answer(behind.list, behind.count, out, count);
    cm_sim_nodes_clear(&behind);
    return result;
}

int cm_sim_graph_edges(cm_sim_graph *graph, cm_sim_node **from, cm_sim_node **to, size_t *count)
{
    if (!cm_sim_graph_live(graph) || !count || !from != !to)
        return CM_CUDA_INVALID_VALUE;
    size_t there = 0;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->after.count; j++, there++)
            if (from && there < *count) {
                from[there] = graph->nodes[i]->after.list[j];
                to[there] = graph->nodes[i];
            }
    if (!from || *count > there)
        *count = there;
    return CM_CUDA_OK;
}

int cm_sim_node_type(const cm_sim_node *node, int *type)
{
    if (!cm_sim_node_live(node) || !type)
        return CM_CUDA_INVALID_VALUE;
    *type = node->type;
    return CM_CUDA_OK;
}

int cm_sim_node_kernel(const cm_sim_node *node, cm_cuda_kernel_node *kernel)
{
    if (!cm_sim_node_live(node) || node->type != CM_CUDA_NODE_KERNEL || !kernel)
        return CM_CUDA_INVALID_VALUE;
    *kernel = (cm_cuda_kernel_node){.func = (void *)(uintptr_t)node->kernel.function,
                                    .gridDim = node->kernel.grid,
                                    .blockDim = node->kernel.block,
                                    .sharedMemBytes = node->kernel.shared};
    return CM_CUDA_OK;
}

int cm_sim_node_set_kernel(cm_sim_exec *exec, cm_sim_node *node, const cm_cuda_kernel_node *kernel)
{
    if (!cm_sim_node_live(node) || node->type != CM_CUDA_NODE_KERNEL || !kernel)
        return CM_CUDA_INVALID_VALUE;
    if (exec) {
        const cm_sim_graph *graph = cm_sim_exec_live(exec) ? exec->graph : NULL;
        cm_sim_node *same = NULL;
        for (size_t i = 0; graph && i < graph->count; i++)
            if (graph->nodes[i]->index == node->index)
                same = graph->nodes[i];
        if (!same || same->type != CM_CUDA_NODE_KERNEL)
            return CM_CUDA_INVALID_VALUE;
        node = same;
    }
    cm_cuda_node_params params = {.type = CM_CUDA_NODE_KERNEL, .kernel = *kernel};
    return fill(node, &params);
}

/* --- executing ----------------------------------------------------------------------------------
 */

static int prepare(cm_sim_graph *graph, cm_sim_graph **copy)
{
    if (!cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    int result = copy_graph(graph, copy);
    if (!result && (*copy)->backwards && !sort(*copy)) {
        empty(*copy);
        return CM_CUDA_INVALID_VALUE;
    }
    return result;
}

int cm_sim_graph_instantiate(cm_sim_graph *graph, unsigned long long flags, cm_sim_exec **exec)
{
    enum { FLAGS = 15 };
    cm_sim_graph *copy;
    if (!exec || (flags & ~(unsigned long long)FLAGS))
        return CM_CUDA_INVALID_VALUE;
    int result = prepare(graph, &copy);
    if (result)
        return result;
    cm_sim_exec *made = cm_sim_table_take(&execs);
    if (!made) {
        empty(copy);
        return CM_CUDA_OUT_OF_MEMORY;
    }
    made->graph = copy;
    made->flags = flags;
    *exec = made;
    return CM_CUDA_OK;
}

int cm_sim_exec_delete(cm_sim_exec *exec)
{
    if (!cm_sim_exec_live(exec))
        return CM_CUDA_INVALID_VALUE;
    empty(exec->graph);
    cm_sim_table_drop(&execs, exec);
    return CM_CUDA_OK;
}

int cm_sim_exec_flags(const cm_sim_exec *exec, unsigned long long *flags)
{
    if (!cm_sim_exec_live(exec) || !flags)
        return CM_CUDA_INVALID_VALUE;
    *flags = exec->flags;
    return CM_CUDA_OK;
}

int cm_sim_exec_update(cm_sim_exec *exec, cm_sim_graph *graph, cm_cuda_update_result *told)
{
    enum { TOPOLOGY = 2, NODE_TYPE = 3 };
    if (!cm_sim_exec_live(exec) || !cm_sim_graph_live(graph))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_graph *copy;
    int failed = prepare(graph, &copy);
    if (failed)
        return failed;
    cm_cuda_update_result result = {0};
    if (exec->graph->count != copy->count)
        result.result = TOPOLOGY;
    for (size_t i = 0; !result.result && i < copy->count; i++) {
        const cm_sim_node *now = exec->graph->nodes[i], *then = copy->nodes[i];
        if (now->after.count != then->after.count)
            result.result = TOPOLOGY;
        else if (now->type != then->type)
            result.result = NODE_TYPE;
        if (result.result)
            result.errorNode = graph->nodes[then->index];
    }
    if (told)
        *told = result;
    if (result.result) {
        empty(copy);
        return CM_CUDA_GRAPH_UPDATE_FAILURE;
    }
    empty(exec->graph);
    exec->graph = copy;
    return CM_CUDA_OK;
}

static int perform(const cm_sim_graph *graph, cm_sim_stream *stream, const cm_sim_call *call)
{
    int result = CM_CUDA_OK;
    if (!graph->others && !call) {
        for (size_t i = 0; i < graph->count; i++)
            cm_sim_stream_launched(stream);
        return CM_CUDA_OK;
    }
    for (size_t i = 0; !result && i < graph->count; i++) {
        const cm_sim_node *node = graph->nodes[i];
        switch (node->type) {
        case CM_CUDA_NODE_KERNEL:
            cm_sim_stream_launched(stream);
            if (call) {
                const cm_cuda_dim3 *g = &node->kernel.grid, *b = &node->kernel.block;
                cm_sim_record_kernel(call, cm_sim_function_name(node->kernel.function),
                                     (unsigned[]){g->x, g->y, g->z}, (unsigned[]){b->x, b->y, b->z},
                                     node->kernel.shared, stream);
            }
            break;
        case CM_CUDA_NODE_COPY:
            result = cm_sim_copy3d(node->copy);
            break;
        case CM_CUDA_NODE_SET:
            result = cm_sim_set2d(&node->set);
            break;
        case CM_CUDA_NODE_HOST:
            node->host.fn(node->host.userData);
            break;
        case CM_CUDA_NODE_GRAPH:
            result = perform(node->child, stream, call);
            break;
        case CM_CUDA_NODE_RECORD_EVENT:
            result = cm_sim_event_record(node->event, stream, 0);
            break;
        default:
            break;
        }
    }
    return result;
}

int cm_sim_exec_launch(cm_sim_exec *exec, cm_sim_stream *handle, const cm_sim_call *call)
{
    bool capturing;
    int result = CM_CUDA_OK;
    if (!cm_sim_exec_live(exec))
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (capturing) {
        cm_cuda_node_params params = {.type = CM_CUDA_NODE_GRAPH, .graph = {exec->graph, 0}};
        return cm_sim_capture_add(stream, &params, NULL);
    }
    result = perform(exec->graph, stream, call);
    /* Memory that the graph's copies name and that is gone: a fault on the device, which spoils
     * its context for good. */
    if (result == CM_CUDA_INVALID_VALUE) {
        cm_sim_device_break(stream->device, CM_CUDA_ILLEGAL_ADDRESS);
        result = CM_CUDA_ILLEGAL_ADDRESS;
    }
    return result;
}
