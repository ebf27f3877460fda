#include "nodes.h"

#include <string.h>

#include "grow.h"
#include "map.h"

enum {
    RING_MIN = 1 << 10,
    RING_MAX = 1 << 20,  /* entries of one thread */
    RINGS_MAX = 1 << 22, /* entries of all threads */
    OLD_MAX = 1 << 20,   /* nodes that outlived their place in the ring */
    DEPTH_MAX = 1 << 16, /* nested nodes that are told apart */
    SEQUENCE_BITS = 40
};

typedef struct node {
    uint64_t sequence; /* + 1; 0 = empty */
    uint32_t stack;    /* the forward line, resolved when the node was made */
    int32_t step;      /* that it was made in */
} node;

_Static_assert(sizeof(node) == 16, "many are kept");

typedef struct running {
    uint32_t stack, name;
    uint32_t previous; /* line of the node that ran last directly inside this one */
    bool has_previous;
} running;

typedef struct thread {
    uint64_t kernel_id, autograd_id;
    uint32_t number;
    node *ring; /* by sequence number */
    size_t slots, collisions;
    running *frame;                /* frame[0] stands for the thread outside of any node */
    size_t frames, frame_capacity; /* frames - 1 nodes are running */
    uint64_t unseen;               /* running beyond DEPTH_MAX */
} thread;

struct cm_nodes {
    thread *thread;
    size_t threads, thread_capacity;
    cm_idmap by_number, by_autograd; /* -> index */
    uint32_t last_number, last_index;
    cm_idmap old; /* thread index, sequence -> place in old_node */
    node *old_node;
    size_t old_nodes, old_capacity;
    uint32_t old_free; /* the first place that is free + 1; its sequence links to the next */
    size_t ring_slots;
    cm_node last;
    bool has_last;
};

cm_nodes *cm_nodes_new(void)
{
    return calloc(1, sizeof(cm_nodes));
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

static thread *find_thread(cm_nodes *nodes, uint32_t number)
{
    if (nodes->threads > 0 && nodes->last_number == number)
        return &nodes->thread[nodes->last_index];
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

static bool old_key(const cm_nodes *nodes, const thread *t, uint64_t sequence, uint64_t *key)
{
    uint64_t index = (uint64_t)(t - nodes->thread);
    *key = index << SEQUENCE_BITS | sequence;
    return index < (uint64_t)1 << (63 - SEQUENCE_BITS) && sequence < (uint64_t)1 << SEQUENCE_BITS;
}

/* An older node leaves the ring alive. Past the bound it is forgotten: its backward bytes are
 * then unresolved, and counted so. */
static bool keep_old(cm_nodes *nodes, const thread *t, const node *leaving)
{
    uint64_t key;
    if (nodes->old.count >= OLD_MAX || !old_key(nodes, t, leaving->sequence - 1, &key))
        return true;
    uint32_t place = nodes->old_free - 1;
    if (nodes->old_free != 0) {
        nodes->old_free = (uint32_t)nodes->old_node[place].sequence;
    } else {
        if (!cm_grow((void **)&nodes->old_node, &nodes->old_capacity, nodes->old_nodes + 1,
                     sizeof *nodes->old_node))
            return false;
        place = (uint32_t)nodes->old_nodes++;
    }
    nodes->old_node[place] = *leaving;
    return cm_idmap_put(&nodes->old, key, place);
}

static void drop_old(cm_nodes *nodes, uint64_t key, node *out)
{
    uint32_t place;
    if (!cm_idmap_get(&nodes->old, key, &place))
        return;
    *out = nodes->old_node[place];
    cm_idmap_remove(&nodes->old, key);
    nodes->old_node[place] = (node){.sequence = nodes->old_free};
    nodes->old_free = place + 1;
}

static bool put_node(cm_nodes *nodes, thread *t, uint64_t sequence, uint32_t stack, int32_t step)
{
    if (sequence == CM_NODE_NO_SEQUENCE)
        return true;
    node entry = {sequence + 1, stack, step};
    nodes->last = (cm_node){sequence, stack, step};
    nodes->has_last = true;
    /* A ring that many live nodes fall out of is too small; one node that lives for ever is not a
     * reason to grow. Freed nodes leave holes, so both show as collisions. */
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
    if (slot->sequence != 0 && slot->sequence != entry.sequence) {
        t->collisions++;
        if (!keep_old(nodes, t, slot))
            return false;
    }
    *slot = entry;
    return true;
}

static const thread *creator_of(const cm_nodes *nodes, uint64_t autograd_id)
{
    uint32_t index;
    if (autograd_id == 0 || autograd_id == UINT64_MAX ||
        !cm_idmap_get(&nodes->by_autograd, autograd_id, &index))
        return NULL;
    return &nodes->thread[index];
}

static uint32_t find_node(const cm_nodes *nodes, uint64_t autograd_id, uint64_t sequence)
{
    const thread *t = creator_of(nodes, autograd_id);
    uint64_t key;
    uint32_t place;
    if (t == NULL || t->slots == 0)
        return CM_NODE_UNRESOLVED;
    const node *slot = &t->ring[(sequence + 1) & (t->slots - 1)];
    if (slot->sequence == sequence + 1)
        return slot->stack;
    if (old_key(nodes, t, sequence, &key) && cm_idmap_get(&nodes->old, key, &place))
        return nodes->old_node[place].stack;
    return CM_NODE_UNRESOLVED;
}

static void drop_node(cm_nodes *nodes, uint64_t autograd_id, uint64_t sequence)
{
    const thread *t = creator_of(nodes, autograd_id);
    uint64_t key;
    if (t == NULL || t->slots == 0 || sequence == CM_NODE_NO_SEQUENCE)
        return;
    node *slot = &t->ring[(sequence + 1) & (t->slots - 1)], gone = {0};
    if (slot->sequence == sequence + 1) {
        gone = *slot;
        *slot = (node){0};
    } else if (nodes->old.count > 0 && old_key(nodes, t, sequence, &key)) {
        drop_old(nodes, key, &gone);
    }
    if (gone.sequence != 0) {
        nodes->last = (cm_node){sequence, gone.stack, gone.step};
        nodes->has_last = true;
    }
}

static running *innermost(thread *t)
{
    return &t->frame[t->frames - 1];
}

static bool make_node(cm_nodes *nodes, thread *t, const cm_event *e, int32_t step)
{
    uint32_t stack = e->stack;
    if (e->flags & CM_EVF_NODE_STACK) /* create_graph: it stands for the node that made it */
        stack = innermost(t)->stack;
    else if (stack < CM_STACK_FIRST)
        stack = CM_NODE_UNRESOLVED;
    if (!(e->flags & CM_EVF_IN_NODE) && t->frames == 1)
        t->frame[0].has_previous = false; /* forward runs again: another backward will follow */
    if (e->flags & CM_EVF_BEFORE_START)
        step = -1;
    return put_node(nodes, t, e->address, stack, step);
}

static bool run_node(cm_nodes *nodes, thread *t, const cm_event *e)
{
    running *outer = innermost(t);
    running entered = {.name = e->stack};
    if (e->address != CM_NODE_NO_SEQUENCE)
        entered.stack = find_node(nodes, (uint64_t)e->size, e->address);
    else
        entered.stack = outer->has_previous ? outer->previous : CM_NODE_ACCUMULATION;
    /* Gradients of two leaves in a row belong to the same node before them. */
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

static bool name_thread(cm_nodes *nodes, thread *t, const cm_event *e)
{
    uint64_t autograd_id = (uint64_t)e->size;
    t->kernel_id = e->address;
    if (autograd_id == 0 || autograd_id == UINT64_MAX)
        return true;
    t->autograd_id = autograd_id;
    return cm_idmap_put(&nodes->by_autograd, autograd_id, (uint32_t)(t - nodes->thread));
}

bool cm_nodes_apply(cm_nodes *nodes, const cm_record *record, int32_t step)
{
    const cm_event *e = &record->event;
    nodes->has_last = false;
    if (e->kind == CM_EV_NODE_FREE) {
        drop_node(nodes, (uint64_t)e->size, e->address);
        return true;
    }
    thread *t = find_thread(nodes, record->thread);
    if (t == NULL)
        return false;
    switch (e->kind) {
    case CM_EV_THREAD:
        return name_thread(nodes, t, e);
    case CM_EV_NODE_NEW:
        return make_node(nodes, t, e, step);
    case CM_EV_NODE_RUN:
        return run_node(nodes, t, e);
    case CM_EV_NODE_DONE:
        if (t->unseen > 0)
            t->unseen--;
        else if (t->frames > 1)
            t->frames--;
        return true;
    case CM_EV_LOST: /* perhaps the end of a node: what is running is unknown until the next starts
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
    const thread *t = find_thread(nodes, record->thread);
    if (t == NULL || t->frames == 1 || t->unseen > 0) {
        bool own = !(e->flags & CM_EVF_NODE_STACK) && e->stack >= CM_STACK_FIRST;
        charge.kind = own ? CM_CHARGE_RESOLVED : CM_CHARGE_UNRESOLVED;
        return charge;
    }
    const running *now = &t->frame[t->frames - 1];
    charge.name = now->name;
    if (!(e->flags & CM_EVF_NODE_STACK)) {
        charge.kind = e->stack >= CM_STACK_FIRST ? CM_CHARGE_RESOLVED : CM_CHARGE_UNRESOLVED;
    } else if (now->stack == CM_NODE_ACCUMULATION) {
        charge.kind = CM_CHARGE_ACCUMULATION;
        charge.name = CM_NODE_ACCUMULATION;
    } else if (now->stack == CM_NODE_UNRESOLVED) {
        charge.kind = CM_CHARGE_UNRESOLVED;
    } else {
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

const cm_node *cm_nodes_last(const cm_nodes *nodes)
{
    return nodes->has_last ? &nodes->last : NULL;
}

bool cm_nodes_alive(const cm_nodes *nodes, bool (*visit)(void *context, const cm_node *node),
                    void *context)
{
    for (size_t i = 0; i < nodes->threads; i++) {
        const thread *t = &nodes->thread[i];
        for (size_t j = 0; j < t->slots; j++) {
            const node *n = &t->ring[j];
            cm_node alive = {n->sequence - 1, n->stack, n->step};
            if (n->sequence != 0 && !visit(context, &alive))
                return false;
        }
    }
    for (size_t i = 0; i < nodes->old.slots; i++) {
        if (nodes->old.slot[i].key == 0)
            continue;
        const node *n = &nodes->old_node[nodes->old.slot[i].value];
        cm_node alive = {n->sequence - 1, n->stack, n->step};
        if (!visit(context, &alive))
            return false;
    }
    return true;
}
