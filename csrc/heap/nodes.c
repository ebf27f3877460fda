#include "nodes.h"

#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"

enum {
    RING_MIN = 1 << 4,       /* small: programs may start many threads, and all are kept */
    RING_MAX = 1 << 20,      /* entries of one thread */
    RINGS_MAX = 1 << 22,     /* entries of all threads */
    OLD_MAX = 1 << 20,       /* nodes that outlived their place in the ring */
    OLD_FREED_MAX = 1 << 24, /* ... if ended ones are removed */
    DEPTH_MAX = 1 << 16,     /* of distinguished nested nodes */
    SEQUENCE_BITS = 40
};

typedef struct node {
    uint64_t sequence; /* + 1; 0 = empty */
    uint32_t stack;    /* the forward line, resolved when the node was made */
    int32_t step : 31; /* of birth; none beyond a thousand million steps */
    uint32_t ran : 1;
} node;

/* A node that outlived its place in the ring. */
typedef struct old_node {
    uint32_t stack; /* of an unused entry: the next one + 1 */
    int32_t step : 31;
    uint32_t ran : 1;
} old_node;

typedef struct running {
    uint32_t stack, name;
    uint32_t previous; /* line of the last node run directly inside this one */
    bool has_previous;
} running;

typedef struct thread {
    uint64_t kernel_id, autograd_id;
    uint32_t number;
    node *ring; /* by sequence number */
    size_t slots, collisions;
    running *frame;                /* frame[0] stands for the thread outside of any node */
    size_t frames, frame_capacity; /* frames - 1 nodes are running */
    uint64_t unseen;               /* running ones beyond DEPTH_MAX */
} thread;

struct cm_nodes {
    thread *thread;
    size_t threads, thread_capacity;
    cm_idmap by_number, by_autograd; /* -> index */
    uint32_t last_number, last_index;
    uint64_t last_creator; /* an autograd id; 0: none */
    uint32_t creator_index;
    cm_idmap old; /* thread index, sequence -> index of old_node */
    old_node *old_node;
    size_t old_nodes, old_capacity;
    uint32_t unused; /* first unused old_node + 1 */
    size_t ring_slots;
    int32_t step;
    uint64_t alive; /* without inherited ones */
    bool frees, destroyed;
    cm_node_life last_destroyed;
    cm_nodes_judge library_alone;
    void *judge;
};

cm_nodes *cm_nodes_new(void)
{
    cm_nodes *nodes = calloc(1, sizeof *nodes);
    if (nodes != NULL)
        nodes->step = CM_NODE_INHERITED;
    return nodes;
}

static bool copy_thread(thread *copy, const thread *t)
{
    *copy = *t;
    copy->frame_capacity = t->frames;
    copy->frame = NULL;
    return cm_copy((void **)&copy->ring, t->ring, t->slots, sizeof *t->ring) &&
           cm_copy((void **)&copy->frame, t->frame, t->frames, sizeof *t->frame);
}

cm_nodes *cm_nodes_copy(const cm_nodes *nodes)
{
    cm_nodes *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return NULL;
    *copy = *nodes;
    copy->by_number = copy->by_autograd = copy->old = (cm_idmap){0};
    copy->threads = 0;
    copy->thread_capacity = nodes->threads;
    copy->old_capacity = nodes->old_nodes;
    copy->thread = malloc((nodes->threads + 1) * sizeof *copy->thread);
    copy->old_node = NULL;
    copy->library_alone = NULL;
    bool fine = copy->thread != NULL &&
                cm_copy((void **)&copy->old_node, nodes->old_node, nodes->old_nodes,
                        sizeof *nodes->old_node) &&
                cm_idmap_copy(&copy->by_number, &nodes->by_number) &&
                cm_idmap_copy(&copy->by_autograd, &nodes->by_autograd) &&
                cm_idmap_copy(&copy->old, &nodes->old);
    for (size_t i = 0; fine && i < nodes->threads; i++)
        fine = copy_thread(&copy->thread[copy->threads++], &nodes->thread[i]);
    if (fine)
        return copy;
    cm_nodes_free(copy);
    return NULL;
}

void cm_nodes_free(cm_nodes *nodes)
{
    if (nodes == NULL)
        return;
    for (size_t i = 0; i < nodes->threads; i++) {
        free(nodes->thread[i].ring);
        free(nodes->thread[i].frame);
    }
    free(nodes->thread);
    cm_idmap_clear(&nodes->by_number);
    cm_idmap_clear(&nodes->by_autograd);
    cm_idmap_clear(&nodes->old);
    free(nodes->old_node);
    free(nodes);
}

void cm_nodes_judge_by(cm_nodes *nodes, cm_nodes_judge library_alone, void *context)
{
    nodes->library_alone = library_alone;
    nodes->judge = context;
}

/* Whether Python frames are newer than the running node's start, and none is user code. */
static bool is_routed(const cm_nodes *nodes, const cm_event *e)
{
    return (e->flags & (CM_EVF_IN_NODE | CM_EVF_NODE_STACK)) == CM_EVF_IN_NODE &&
           nodes->library_alone != NULL && nodes->library_alone(nodes->judge, e->stack);
}

static CM_OWN_FRAME thread *lookup_thread(cm_nodes *nodes, uint32_t number)
{
    uint32_t index;
    if (!cm_idmap_get(&nodes->by_number, number, &index)) {
        index = (uint32_t)nodes->threads;
        thread t = {.number = number};
        if (!cm_grow((void **)&t.frame, &t.frame_capacity, 1, sizeof *t.frame))
            return NULL;
        t.frame[t.frames++] = (running){.stack = CM_NODE_UNRESOLVED};
        if (!cm_grow((void **)&nodes->thread, &nodes->thread_capacity, nodes->threads + 1,
                     sizeof *nodes->thread) ||
            !cm_idmap_put(&nodes->by_number, number, index)) {
            free(t.frame);
            return NULL;
        }
        nodes->thread[nodes->threads++] = t;
    }
    nodes->last_number = number;
    nodes->last_index = index;
    return &nodes->thread[index];
}

static inline thread *find_thread(cm_nodes *nodes, uint32_t number)
{
    return nodes->threads > 0 && nodes->last_number == number ? &nodes->thread[nodes->last_index]
                                                              : lookup_thread(nodes, number);
}

static bool old_key(const cm_nodes *nodes, const thread *t, uint64_t sequence, uint64_t *key)
{
    uint64_t index = (uint64_t)(t - nodes->thread);
    *key = index << SEQUENCE_BITS | sequence;
    return index < (uint64_t)1 << (63 - SEQUENCE_BITS) && sequence < (uint64_t)1 << SEQUENCE_BITS;
}

static void forget(cm_nodes *nodes, int32_t step)
{
    nodes->alive -= step != CM_NODE_INHERITED;
}

/* An older node leaves the ring alive. Beyond the bound it is dropped, and its backward bytes count
 * as unresolved. */
static bool keep_old(cm_nodes *nodes, const thread *t, const node *leaving)
{
    uint64_t key;
    uint32_t index = nodes->unused;
    if (nodes->old.count >= (nodes->frees ? OLD_FREED_MAX : OLD_MAX) ||
        !old_key(nodes, t, leaving->sequence - 1, &key)) {
        forget(nodes, leaving->step);
        return true;
    }
    if (cm_idmap_get(&nodes->old, key, &index)) { /* this number was used twice */
        forget(nodes, nodes->old_node[index].step);
    } else if (index > 0) {
        nodes->unused = nodes->old_node[--index].stack;
    } else {
        if (!cm_grow((void **)&nodes->old_node, &nodes->old_capacity, nodes->old_nodes + 1,
                     sizeof *nodes->old_node))
            return false;
        index = (uint32_t)nodes->old_nodes++;
    }
    nodes->old_node[index] = (old_node){leaving->stack, leaving->step, leaving->ran};
    return cm_idmap_put(&nodes->old, key, index);
}

static bool put_node(cm_nodes *nodes, thread *t, uint64_t sequence, uint32_t stack)
{
    if (sequence == CM_NODE_NO_SEQUENCE)
        return true;
    node entry = {.sequence = sequence + 1, .stack = stack, .step = nodes->step};
    /* A ring is too small if many live nodes fall out of it; one immortal node is no reason to
     * grow. Freed nodes leave holes, so collisions count both. */
    bool small = t->slots == 0 || (t->collisions > t->slots / 4 && t->slots < RING_MAX);
    if (small && (t->slots == 0 || nodes->ring_slots + t->slots <= RINGS_MAX)) {
        size_t slots = t->slots ? t->slots * 2 : RING_MIN;
        node *ring = calloc(slots, sizeof *ring);
        if (ring == NULL)
            return false;
        for (size_t i = 0; i < t->slots; i++)
            if (t->ring[i].sequence != 0)
                ring[t->ring[i].sequence & (slots - 1)] = t->ring[i];
        free(t->ring);
        nodes->ring_slots += slots - t->slots;
        t->ring = ring;
        t->slots = slots;
        t->collisions = 0;
    }
    node *slot = &t->ring[entry.sequence & (t->slots - 1)];
    if (slot->sequence == entry.sequence) {
        forget(nodes, slot->step);
    } else if (slot->sequence != 0) {
        t->collisions++;
        if (!keep_old(nodes, t, slot))
            return false;
    }
    *slot = entry;
    nodes->alive += nodes->step != CM_NODE_INHERITED;
    return true;
}

static const thread *creator_of(cm_nodes *nodes, uint64_t autograd_id)
{
    if (autograd_id == 0 || autograd_id == UINT64_MAX)
        return NULL;
    if (autograd_id != nodes->last_creator) {
        if (!cm_idmap_get(&nodes->by_autograd, autograd_id, &nodes->creator_index))
            return NULL;
        nodes->last_creator = autograd_id;
    }
    return &nodes->thread[nodes->creator_index];
}

/* Returns its stack; it runs from now on. */
static uint32_t start_node(cm_nodes *nodes, uint64_t autograd_id, uint64_t sequence)
{
    const thread *t = creator_of(nodes, autograd_id);
    uint64_t key;
    uint32_t index;
    if (t == NULL || t->slots == 0)
        return CM_NODE_UNRESOLVED;
    node *slot = &t->ring[(sequence + 1) & (t->slots - 1)];
    if (slot->sequence == sequence + 1) {
        slot->ran = true;
        return slot->stack;
    }
    if (old_key(nodes, t, sequence, &key) && cm_idmap_get(&nodes->old, key, &index)) {
        nodes->old_node[index].ran = true;
        return nodes->old_node[index].stack;
    }
    return CM_NODE_UNRESOLVED;
}

static CM_OWN_FRAME void drop_node(cm_nodes *nodes, uint64_t autograd_id, uint64_t sequence)
{
    const thread *t = creator_of(nodes, autograd_id);
    uint64_t key;
    uint32_t index;
    nodes->frees = true;
    if (t == NULL || t->slots == 0 || sequence == CM_NODE_NO_SEQUENCE)
        return;
    node *slot = &t->ring[(sequence + 1) & (t->slots - 1)];
    if (slot->sequence == sequence + 1) {
        nodes->last_destroyed = (cm_node_life){sequence, slot->stack, slot->step, slot->ran};
        *slot = (node){0};
    } else if (nodes->old.count > 0 && old_key(nodes, t, sequence, &key) &&
               cm_idmap_get(&nodes->old, key, &index)) {
        old_node *old = &nodes->old_node[index];
        nodes->last_destroyed = (cm_node_life){sequence, old->stack, old->step, old->ran};
        cm_idmap_remove(&nodes->old, key);
        old->stack = nodes->unused;
        nodes->unused = index + 1;
    } else {
        return;
    }
    nodes->destroyed = true;
    forget(nodes, nodes->last_destroyed.step);
}

static running *innermost(thread *t)
{
    return &t->frame[t->frames - 1];
}

static CM_OWN_FRAME bool make_node(cm_nodes *nodes, thread *t, const cm_event *e)
{
    uint32_t stack = e->stack, outer = innermost(t)->stack;
    if (e->flags & CM_EVF_NODE_STACK) /* create_graph: it stands for the node that made it */
        stack = outer;
    else if (outer < CM_NODE_ACCUMULATION && is_routed(nodes, e))
        stack = outer;
    else if (stack < CM_STACK_FIRST)
        stack = CM_NODE_UNRESOLVED;
    if (!(e->flags & CM_EVF_IN_NODE) && t->frames == 1)
        t->frame[0].has_previous = false; /* forward again: another backward will follow */
    return put_node(nodes, t, e->address, stack);
}

static CM_OWN_FRAME bool run_node(cm_nodes *nodes, thread *t, const cm_event *e)
{
    running *outer = innermost(t);
    running entered = {.name = e->stack};
    if (e->address != CM_NODE_NO_SEQUENCE)
        entered.stack = start_node(nodes, (uint64_t)e->size, e->address);
    else
        entered.stack = outer->has_previous ? outer->previous : CM_NODE_ACCUMULATION;
    /* Gradients of two leaves in a row belong to the same previous node. */
    outer->previous = entered.stack;
    outer->has_previous = true;
    if (t->frames > DEPTH_MAX) {
        t->unseen++;
        return true;
    }
    if (!cm_grow((void **)&t->frame, &t->frame_capacity, t->frames + 1, sizeof *t->frame))
        return false;
    t->frame[t->frames++] = entered;
    return true;
}

static CM_OWN_FRAME bool name_thread(cm_nodes *nodes, thread *t, const cm_event *e)
{
    uint64_t autograd_id = (uint64_t)e->size;
    t->kernel_id = e->address;
    if (autograd_id == 0 || autograd_id == UINT64_MAX)
        return true;
    t->autograd_id = autograd_id;
    nodes->last_creator = 0;
    return cm_idmap_put(&nodes->by_autograd, autograd_id, (uint32_t)(t - nodes->thread));
}

bool cm_nodes_apply(cm_nodes *nodes, uint32_t number, const cm_event *e)
{
    nodes->destroyed = false;
    if (e->kind == CM_EV_NODE_FREE) {
        drop_node(nodes, (uint64_t)e->size, e->address);
        return true;
    }
    thread *t = find_thread(nodes, number);
    if (t == NULL)
        return false;
    switch (e->kind) {
    case CM_EV_THREAD:
        return name_thread(nodes, t, e);
    case CM_EV_NODE_NEW:
        return make_node(nodes, t, e);
    case CM_EV_NODE_RUN:
        return run_node(nodes, t, e);
    case CM_EV_NODE_DONE:
        if (t->unseen > 0)
            t->unseen--;
        else if (t->frames > 1)
            t->frames--;
        return true;
    case CM_EV_LOST: /* perhaps the end of a node: the running one is unknown until the next start
                      */
        t->frames = 1;
        t->unseen = 0;
        t->frame[0].has_previous = false;
        return true;
    case CM_EV_ALLOC:
        if (!(e->flags & CM_EVF_IN_NODE) && t->frames == 1)
            t->frame[0].has_previous = false;
        return true;
    default:
        return true;
    }
}

cm_charge cm_nodes_charge(cm_nodes *nodes, const cm_record *record)
{
    const cm_event *e = &record->event;
    cm_charge charge = {.stack = e->stack};
    if (!(e->flags & CM_EVF_IN_NODE))
        return charge;
    bool own = !(e->flags & CM_EVF_NODE_STACK) && !is_routed(nodes, e);
    charge.kind = own && e->stack >= CM_STACK_FIRST ? CM_CHARGE_RESOLVED : CM_CHARGE_UNRESOLVED;
    const thread *t = find_thread(nodes, record->thread);
    if (t == NULL || t->frames == 1 || t->unseen > 0)
        return charge;
    const running *now = &t->frame[t->frames - 1];
    charge.name = now->name;
    if (own)
        return charge;
    if (now->stack == CM_NODE_ACCUMULATION) {
        charge.kind = CM_CHARGE_ACCUMULATION;
        charge.name = CM_NODE_ACCUMULATION;
    } else if (now->stack != CM_NODE_UNRESOLVED) {
        charge.kind = CM_CHARGE_RESOLVED;
        charge.stack = now->stack;
    }
    return charge;
}

bool cm_nodes_visit(const cm_nodes *nodes, const cm_nodes_state *visitor, void *context)
{
    for (size_t i = 0; i < nodes->threads; i++) {
        const thread *t = &nodes->thread[i];
        if (!visitor->thread(context, t->number, t->kernel_id, t->autograd_id))
            return false;
        for (size_t j = 0; j < t->slots; j++)
            if (t->ring[j].sequence != 0 &&
                !visitor->node(context, t->number, t->ring[j].sequence - 1, t->ring[j].stack))
                return false;
        for (size_t j = 1; j < t->frames; j++)
            if (!visitor->running(context, t->number, t->frame[j].stack, t->frame[j].name))
                return false;
    }
    uint64_t mask = ((uint64_t)1 << SEQUENCE_BITS) - 1;
    for (size_t i = 0; i < nodes->old.slots; i++) {
        uint64_t key = nodes->old.slot[i].key - 1;
        if (nodes->old.slot[i].key != 0 &&
            !visitor->node(context, nodes->thread[key >> SEQUENCE_BITS].number, key & mask,
                           nodes->old_node[nodes->old.slot[i].value].stack))
            return false;
    }
    return true;
}

void cm_nodes_begin_step(cm_nodes *nodes, int32_t step)
{
    nodes->step = step;
}

void cm_nodes_inherit(cm_nodes *nodes)
{
    nodes->step = CM_NODE_INHERITED;
    for (size_t i = 0; nodes->alive > 0 && i < nodes->threads; i++)
        for (size_t j = 0; j < nodes->thread[i].slots; j++)
            nodes->thread[i].ring[j].step = CM_NODE_INHERITED;
    for (size_t i = 0; nodes->alive > 0 && i < nodes->old.slots; i++)
        if (nodes->old.slot[i].key != 0)
            nodes->old_node[nodes->old.slot[i].value].step = CM_NODE_INHERITED;
    nodes->alive = 0;
}

bool cm_nodes_destroyed(const cm_nodes *nodes, cm_node_life *out)
{
    *out = nodes->last_destroyed;
    return nodes->destroyed;
}

bool cm_nodes_are_destroyed(const cm_nodes *nodes)
{
    return nodes->frees;
}

uint64_t cm_nodes_alive(const cm_nodes *nodes)
{
    return nodes->alive;
}

bool cm_nodes_each(const cm_nodes *nodes, bool (*visit)(void *context, const cm_node_life *life),
                   void *context)
{
    for (size_t i = 0; i < nodes->threads; i++) {
        const thread *t = &nodes->thread[i];
        for (size_t j = 0; j < t->slots; j++) {
            const node *n = &t->ring[j];
            cm_node_life life = {n->sequence - 1, n->stack, n->step, n->ran};
            if (n->sequence != 0 && !visit(context, &life))
                return false;
        }
    }
    uint64_t mask = ((uint64_t)1 << SEQUENCE_BITS) - 1;
    for (size_t i = 0; i < nodes->old.slots; i++) {
        const struct cm_idmap_slot *slot = &nodes->old.slot[i];
        if (slot->key == 0)
            continue;
        const old_node *old = &nodes->old_node[slot->value];
        cm_node_life life = {(slot->key - 1) & mask, old->stack, old->step, old->ran};
        if (!visit(context, &life))
            return false;
    }
    return true;
}
