#include "fates.h"

#include <string.h>

#include "../base/hash.h"
#include "gradients.h"
#include "purposes.h"
#include "../base/grow.h"
#include "../base/table.h"
#include "../base/idmap.h"

/* A birth's byte. OPEN: its category is what its stack's other blocks are for (purposes.h), and the
 * byte's where those decide nothing. SAVED + i: an activation saved by the node of name i. */
enum {
    CATEGORY = 0x0f,
    LABELLED = 0x10,
    OPEN = 0x20,
    SAVED = 0x40,
    ALIVE_AUTOCAST = 0xfc, /* labelled by a hook */
    ALIVE_WORKSPACE = 0xfd,
    ALIVE_LABELLED = 0xfe,
    ALIVE = 0xff
};
/* Of CM_FATE_LONG calls: each makes two, or three if something is computed behind it. */
enum { CALLS_TURNS = 2 * CM_FATE_LONG };
enum { SAVERS = ALIVE_AUTOCAST - SAVED, NAMED_MAX = 1 << 22, ROUND_MAX = 16 };

_Static_assert((int)CM_CATEGORIES <= (int)CATEGORY, "a category fits into its bits");

typedef enum made { MADE_ELSEWHERE, MADE_FORWARD, MADE_BACKWARD, MADE_OPTIMIZER, MADE_BEFORE } made;

typedef struct live {
    uint64_t key; /* of device and address, 0 = an empty slot */
    uint32_t birth;
    uint32_t stack, visit;            /* its own; of purposes.h */
    uint32_t turn;                    /* of birth, see below */
    uint32_t updates, rounds, passes; /* numbers ended before its birth */
    uint32_t node;                    /* sequence number of the node made with it, 0 = none */
    int64_t size;
    uint8_t made;             /* enum made */
    bool data : 1, setup : 1; /* for a data set; before the first update */
    bool late : 1;            /* after the step's first recorded call of a module, see note_stack */
    bool built : 1;           /* by a constructor of PyTorch's modules */
    bool loaded : 1, bucket : 1, hooked : 1; /* from a file; of DDP or FSDP; by Python in a node */
    bool inherited : 1;                      /* its life before the window does not count */
    bool after : 1;                          /* after any forward since a pass or update */
    bool recorded : 1;                       /* made in a backward pass that records nodes itself */
} live;

typedef struct thread {
    uint32_t number;
    uint32_t node_stack, node; /* of the last node that it made; its sequence number */
    uint32_t saver, passes;    /* the last node run, and the passes ended by then */
} thread;

struct cm_fates {
    const cm_replay *replay;
    uint8_t *of; /* by birth */
    size_t births, capacity, next;
    live *slot;
    size_t slots, alive;
    bool keyed; /* hashed with the process's secret, see base/hash.h */
    /* The program's turns: forward, forward again inside a node (which takes no input), backward,
     * something else. Each change is a turn, so "since then" is a comparison. */
    enum { TURN_ELSEWHERE, TURN_FORWARD, TURN_AGAIN, TURN_BACKWARD } at;
    uint32_t turn, forward, backward, node, refused; /* the last turn with each */
    uint32_t cycle;         /* the first turn after the last backward pass or update */
    uint32_t recorded;      /* the last turn in which a module's call made a node */
    uint32_t twice;         /* passes ended with the one that records nodes itself */
    uint32_t *last_forward; /* by cycle: the last turn with a forward */
    size_t cycles, cycle_capacity;
    uint32_t gradients; /* with a walk that labelled gradients */
    uint32_t updates, rounds, passes;
    uint64_t round[ROUND_MAX]; /* optimizers that stepped in this round */
    size_t in_round;
    bool workspaces;             /* a hook labelled one */
    bool walked, walks, updated; /* a label was recorded, also before the window; a walk in it; */
    cm_idmap threads;
    thread *thread;
    size_t thread_count, thread_capacity;
    uint32_t last_thread;
    uint32_t saver[SAVERS];
    size_t savers;
    int8_t cuda[256]; /* devices seen */
    size_t cudas;
    cm_idmap labels; /* birth -> label */
    cm_label *label;
    size_t label_count, label_capacity;
    cm_gradients unnamed;
    cm_purposes purposes;
    uint32_t boundary; /* stack of the last backward pass or update, 0 = none */
    uint32_t call;     /* ... of the last forward's first block or node */
    /* Stack and thread of the last backward pass, and of its callers those that still run. */
    uint32_t pass, pass_thread, running;
    uint32_t pass_updates; /* ended before it */
    cm_idmap ended;        /* nodes of live blocks: sequence number -> turn of its end, 0: alive */
};

/* --- blocks that are alive ------------------------------------------------------------------ */

static uint64_t key_of(uint8_t type, int8_t index, uint64_t address)
{
    uint64_t device = type == CM_DEVICE_CPU ? 0 : (uint64_t)type << 8 | (uint8_t)(index + 1);
    return (address ^ device << 48) | (uint64_t)1 << 63;
}

static uint64_t hash_key(const cm_fates *f, uint64_t key)
{
    return f->keyed ? cm_hash(key) : cm_mix(key);
}

static bool is_taken(const void *entry)
{
    return ((const live *)entry)->key != 0;
}

static uint64_t hash_live(const void *fates, const void *entry)
{
    return hash_key(fates, ((const live *)entry)->key);
}

static bool has_key(const void *fates, const void *entry, const void *wanted)
{
    (void)fates;
    return ((const live *)entry)->key == *(const uint64_t *)wanted;
}

static const cm_table_kind by_key = {sizeof(live), 256, 2, is_taken, hash_live, has_key};

/* Its entry, or the free one for it; there are slots. */
static live *entry_of(const cm_fates *f, uint64_t key)
{
    return &f->slot[cm_table_find(&by_key, f, f->slot, f->slots, hash_key(f, key), &key)];
}

static live *find(const cm_fates *f, uint64_t key)
{
    live *found = f->slots > 0 ? entry_of(f, key) : NULL;
    return found != NULL && found->key != 0 ? found : NULL;
}

static bool rebuild(cm_fates *f, size_t slots)
{
    return cm_table_rebuild(&by_key, f, (void **)&f->slot, &f->slots, slots);
}

static bool make_room(cm_fates *f, size_t count)
{
    size_t slots = f->slots ? f->slots : by_key.least;
    while (count * 2 > slots)
        slots *= 2;
    return slots == f->slots || rebuild(f, slots);
}

/* The entry of this key, or an empty one for it. NULL: out of memory. */
static live *reserve(cm_fates *f, uint64_t key)
{
    if (!make_room(f, f->alive + 1))
        return NULL;
    live *found = entry_of(f, key);
    size_t far = ((size_t)(found - f->slot) - hash_key(f, key)) & (f->slots - 1);
    if (far <= CM_HASH_LONG || f->keyed)
        return found;
    f->keyed = true;
    return rebuild(f, f->slots) ? entry_of(f, key) : NULL;
}

static void take(cm_fates *f, live *l)
{
    cm_table_remove(&by_key, f, f->slot, f->slots, (size_t)(l - f->slot));
    f->alive--;
}

/* --- one block's fate ----------------------------------------------------------------------- */

static bool is_long(const cm_fates *f, const live *l)
{
    uint32_t life = f->updated ? f->rounds - l->rounds : f->passes - l->passes;
    return life >= CM_FATE_LONG;
}

/* Its stack made more blocks in so many later turns while it lives: it is in a collection. */
static bool is_collected(const cm_fates *f, const live *l)
{
    return cm_purposes_since(&f->purposes, l->stack, l->visit) >= CM_FATE_LONG;
}

static bool is_on_device(const live *l)
{
    return l->key << 1 >> 49 != 0;
}

/* Whether the graph may still need it. */
static bool is_in_graph(const cm_fates *f, const live *l)
{
    uint32_t ended;
    return l->node != 0 && cm_idmap_get(&f->ended, l->node, &ended) && ended == 0;
}

/* Whether the graph had it until now. */
static bool was_in_graph(const cm_fates *f, const live *l)
{
    uint32_t ended;
    return l->node != 0 && cm_idmap_get(&f->ended, l->node, &ended) &&
           (ended == 0 || ended == f->turn);
}

/* Whether a forward began after its birth, before the next backward pass or update. */
static bool is_used_next(const cm_fates *f, const live *l)
{
    size_t cycle = (size_t)l->passes + l->updates;
    return (cycle < f->cycles ? f->last_forward[cycle] : f->forward) > l->turn;
}

/* What a block is for, and whether its life has decided that. */
typedef struct verdict {
    cm_category category;
    bool open;
} verdict;

static verdict decided(cm_category category)
{
    return (verdict){category, false};
}

static verdict open_to(cm_category category)
{
    return (verdict){category, true};
}

/* Whether its step is over and the call that made it and ran the backward pass has returned: it is
 * no variable there. What lives until the next pass or update may be a leaf of a graph that a loss
 * keeps. */
static bool has_outlived_call(const cm_fates *f, const live *l)
{
    return f->updates == l->updates + 1 && f->pass_updates == l->updates && f->passes > l->passes &&
           !l->inherited &&
           cm_attribution_shared(f->replay->attribution, f->pass, l->stack) > f->running;
}

/* In the midst of a step's forward: a mask, noise, or what is computed from the outputs. */
static verdict judge_late(const cm_fates *f, const live *l, bool gone)
{
    bool used = is_used_next(f, l);
    bool given = cm_purposes_given(&f->purposes, l->stack);
    if (used && f->backward > l->turn) {
        if (!given && has_outlived_call(f, l))
            return decided(CM_CATEGORY_KEPT);
        return decided(given ? CM_CATEGORY_INPUT : CM_CATEGORY_ACTIVATION);
    }
    if (f->rounds > l->rounds)
        return open_to(CM_CATEGORY_KEPT);
    if (gone && !l->inherited)
        return decided(CM_CATEGORY_TEMPORARY);
    return open_to(used ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
}

/* Before the loop: data that is read once. In one step: the inputs of a recurrent network. */
static verdict judge_collected(const cm_fates *f, const live *l, bool gone)
{
    bool used = f->forward > l->turn, one_step = gone && f->rounds == l->rounds;
    if (l->setup && !l->after && used)
        return open_to(CM_CATEGORY_INPUT);
    if (one_step && used && f->backward > l->turn)
        return decided(l->late ? CM_CATEGORY_ACTIVATION : CM_CATEGORY_INPUT);
    return decided(CM_CATEGORY_KEPT);
}

/* A variable's, until the next result. */
static bool is_replaced(const cm_fates *f, const live *l, bool gone)
{
    return gone && cm_purposes_since(&f->purposes, l->stack, l->visit) == 1 &&
           cm_purposes_repeats(&f->purposes, l->stack);
}

/* In an evaluation, behind a call, and called past again and again, alone of its stack: a bank of
 * what it made, not the batch of one call. */
static bool outlives_calls(const cm_fates *f, const live *l)
{
    return l->after && f->passes == l->passes && f->updates == l->updates && f->forward > l->turn &&
           f->forward - l->turn >= CALLS_TURNS &&
           cm_purposes_since(&f->purposes, l->stack, l->visit) == 0;
}

static verdict judge_elsewhere(const cm_fates *f, const live *l, bool gone)
{
    bool used = f->forward > l->turn;
    if (l->loaded)
        return decided(CM_CATEGORY_LOADED);
    if (is_collected(f, l))
        return judge_collected(f, l, gone);
    if (l->data)
        return decided(used ? CM_CATEGORY_INPUT : CM_CATEGORY_TEMPORARY);
    if (l->built && used)
        return decided(CM_CATEGORY_UNKNOWN);
    if (is_long(f, l))
        return open_to(!l->setup           ? CM_CATEGORY_KEPT
                       : f->walked && used ? CM_CATEGORY_INPUT
                                           : CM_CATEGORY_UNKNOWN);
    if (l->late)
        return judge_late(f, l, gone);
    if (used && cm_purposes_carried(&f->purposes, l->stack))
        return decided(CM_CATEGORY_KEPT);
    if (outlives_calls(f, l))
        return open_to(CM_CATEGORY_KEPT);
    if (used && l->after && cm_purposes_results(&f->purposes, l->stack))
        return decided(is_replaced(f, l, gone) ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
    if (used)
        return (verdict){CM_CATEGORY_INPUT, !gone};
    return gone && !l->inherited ? decided(CM_CATEGORY_TEMPORARY)
                                 : open_to(l->after ? CM_CATEGORY_KEPT : CM_CATEGORY_UNKNOWN);
}

/* hooked: Python code that a node runs made it. A walk that labelled gradients, but not this block
 * of the first pass, shows that it is none. */
static verdict judge_backward(const cm_fates *f, const live *l, bool gone)
{
    if (gone && !l->inherited && f->passes == l->passes)
        return decided(CM_CATEGORY_TEMPORARY);
    if (gone && l->recorded && f->passes == l->passes + 1 && f->updates == l->updates)
        return decided(CM_CATEGORY_ACTIVATION);
    if (l->inherited && f->walks && f->of[l->birth] != ALIVE_LABELLED)
        return decided(CM_CATEGORY_UNKNOWN);
    if (!l->setup || !is_long(f, l) || f->gradients <= l->turn)
        return decided(CM_CATEGORY_GRADIENT);
    return decided(l->hooked ? CM_CATEGORY_KEPT : CM_CATEGORY_UNKNOWN);
}

static verdict judge_forward(const cm_fates *f, const live *l, bool gone)
{
    bool in_graph = f->node >= l->turn && f->node != 0 && !l->inherited;
    if (is_in_graph(f, l) && (f->backward > l->turn || !gone))
        return decided(CM_CATEGORY_ACTIVATION);
    if (gone && !l->inherited && f->at == TURN_BACKWARD && f->passes == l->passes)
        return decided(CM_CATEGORY_ACTIVATION);
    if (is_long(f, l) && l->setup && is_on_device(l) && !f->workspaces)
        return decided(CM_CATEGORY_UNKNOWN); /* of a recording without them: perhaps one of those */
    if (is_collected(f, l))
        return decided(CM_CATEGORY_KEPT);
    if (is_long(f, l))
        return open_to(CM_CATEGORY_KEPT);
    if (f->backward > l->turn || (in_graph && (!gone || f->refused > l->turn)))
        return decided(CM_CATEGORY_ACTIVATION);
    uint32_t since = cm_purposes_since(&f->purposes, l->stack, l->visit);
    if (since > 0) /* beyond its call */
        return decided(was_in_graph(f, l)        ? CM_CATEGORY_ACTIVATION
                       : is_replaced(f, l, gone) ? CM_CATEGORY_TEMPORARY
                                                 : CM_CATEGORY_KEPT);
    if (gone && !l->inherited)
        return decided(CM_CATEGORY_TEMPORARY);
    return open_to(f->refused > l->turn ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
}

/* gone: freed; else alive at the window's end. */
static verdict judge(const cm_fates *f, const live *l, bool gone)
{
    if (l->bucket && (f->backward > l->turn || f->passes > l->passes))
        return decided(CM_CATEGORY_BUCKET);
    switch ((made)l->made) {
    case MADE_BEFORE:
        return decided(CM_CATEGORY_BEFORE_START);
    case MADE_BACKWARD:
        return judge_backward(f, l, gone);
    case MADE_OPTIMIZER:
        return decided(!gone || l->inherited || f->updates > l->updates
                           ? CM_CATEGORY_OPTIMIZER_STATE
                           : CM_CATEGORY_TEMPORARY);
    case MADE_FORWARD:
        return judge_forward(f, l, gone);
    default:
        return judge_elsewhere(f, l, gone);
    }
}

/* An activation's byte. */
static uint8_t saved_by(cm_fates *f, const thread *t)
{
    size_t i = 0;
    if (t == NULL || t->saver == 0 || t->passes != f->passes)
        return CM_CATEGORY_ACTIVATION;
    while (i < f->savers && f->saver[i] != t->saver)
        i++;
    if (i == SAVERS)
        return CM_CATEGORY_ACTIVATION;
    if (i == f->savers)
        f->saver[f->savers++] = t->saver;
    return (uint8_t)(SAVED + i);
}

/* Whether others of its stack may be for the same. */
static bool has_siblings(const live *l)
{
    return l->made == MADE_ELSEWHERE || l->made == MADE_FORWARD;
}

/* The category of a birth that a hook labelled; 0: none did. */
static uint8_t of_hook(uint8_t byte)
{
    return byte == ALIVE_WORKSPACE  ? CM_CATEGORY_WORKSPACE
           : byte == ALIVE_AUTOCAST ? CM_CATEGORY_AUTOCAST
                                    : 0;
}

/* freed_by: NULL if the window's end, or another block at its address, ends it. */
static void end_life(cm_fates *f, const live *l, bool gone, const thread *freed_by)
{
    uint8_t hooked = of_hook(f->of[l->birth]);
    verdict v = hooked != 0 ? decided((cm_category)hooked) : judge(f, l, gone);
    uint8_t fate = (uint8_t)(v.category | (v.open ? OPEN : 0));
    if (hooked == 0 && has_siblings(l) && (!v.open || v.category == CM_CATEGORY_KEPT))
        cm_purposes_vote(&f->purposes, l->stack, l->size, v.category);
    if (f->of[l->birth] == ALIVE_LABELLED)
        fate |= LABELLED;
    else if (v.category == CM_CATEGORY_ACTIVATION)
        fate = saved_by(f, freed_by);
    if (l->node != 0)
        cm_idmap_remove(&f->ended, l->node);
    f->of[l->birth] = fate;
}

static bool is_born(const cm_event *e)
{
    return e->size != 0 && e->address != 0;
}

static live *add_live(cm_fates *f, uint64_t key)
{
    live *l = reserve(f, key);
    if (l == NULL || f->births >= UINT32_MAX - 1 ||
        !cm_grow((void **)&f->of, &f->capacity, f->births + 1, 1))
        return NULL;
    if (l->key != 0)
        end_life(f, l, true, NULL);
    else
        f->alive++;
    f->of[f->births] = ALIVE;
    *l = (live){.key = key,
                .birth = (uint32_t)f->births++,
                .turn = f->turn,
                .updates = f->updates,
                .rounds = f->rounds,
                .passes = f->passes,
                .setup = f->updates == 0 && f->passes == 0,
                .after = f->forward > 0 && f->forward >= f->cycle};
    return l;
}

/* Notes the stack of a block for which siblings count. It is late if its stack comes after the
 * forward in most steps: of the inputs of a recurrent network only the first comes before it.
 * false: out of memory. */
static bool note_stack(cm_fates *f, live *l, uint32_t stack)
{
    bool known = stack < (uint64_t)CM_STACK_FIRST + cm_reader_stack_count(f->replay->reader);
    l->stack = known ? stack : CM_STACK_NONE;
    if (!has_siblings(l))
        return true;
    bool late = f->recorded > 0 && f->recorded >= f->cycle;
    cm_birth birth = {f->turn, f->passes + f->updates, l->data ? 0 : l->size, late};
    if (!cm_purposes_born(&f->purposes, l->stack, &birth))
        return false;
    l->visit = birth.visit;
    l->late = birth.late;
    bool call = !late && l->after;
    if (l->made != MADE_ELSEWHERE || l->data || late != l->late ||
        (!late && !call && f->boundary == 0))
        return true;
    return cm_purposes_wait(&f->purposes, f->replay->attribution, l->stack,
                            late   ? CM_STACK_NONE
                            : call ? f->call
                                   : f->boundary,
                            call);
}

/* The node that an operator made just before this block. false: out of memory. */
static bool note_node(cm_fates *f, live *l, const cm_event *e, const thread *t)
{
    uint32_t other;
    if (l->made != MADE_FORWARD || e->flags & CM_EVF_IN_NODE || t->node == 0 ||
        e->stack != t->node_stack || cm_idmap_get(&f->ended, t->node, &other))
        return true;
    l->node = t->node;
    return cm_idmap_put(&f->ended, l->node, 0);
}

/* A node was destroyed. */
static bool end_node(cm_fates *f, uint64_t sequence)
{
    uint32_t ended;
    if (sequence == 0 || sequence > UINT32_MAX || !cm_idmap_get(&f->ended, sequence, &ended))
        return true;
    return cm_idmap_put(&f->ended, sequence, f->turn);
}

/* --- records -------------------------------------------------------------------------------- */

static thread *find_thread(cm_fates *f, uint32_t number)
{
    uint32_t at = f->last_thread;
    if (f->thread_count > 0 && f->thread[at].number == number)
        return &f->thread[at];
    if (cm_idmap_get(&f->threads, number, &at))
        return &f->thread[f->last_thread = at];
    if (!cm_grow((void **)&f->thread, &f->thread_capacity, f->thread_count + 1,
                 sizeof *f->thread) ||
        !cm_idmap_put(&f->threads, number, (uint32_t)f->thread_count))
        return NULL;
    f->thread[f->thread_count] = (thread){.number = number};
    return &f->thread[f->thread_count++];
}

/* The prologue of an extracted window has no turns. */
static void turn_to(cm_fates *f, const cm_event *e, int at)
{
    if (e->flags & CM_EVF_BEFORE_START)
        return;
    if ((int)f->at != at)
        f->turn++;
    f->at = at;
    if (at == TURN_FORWARD) {
        if (f->forward != f->turn)
            f->call = e->stack;
        f->forward = f->turn;
        cm_purposes_forward(&f->purposes, f->replay->attribution, e->stack);
    } else if (at == TURN_BACKWARD)
        f->backward = f->turn;
}

static made made_by(cm_fates *f, const cm_event *e, const thread *t)
{
    cm_phase phase = cm_attribution_phase(f->replay->attribution, e->stack);
    if (e->flags & CM_EVF_IN_NODE)
        return phase == CM_PHASE_FORWARD && !(e->flags & CM_EVF_NODE_STACK) ? MADE_FORWARD
                                                                            : MADE_BACKWARD;
    if (phase == CM_PHASE_FORWARD ||
        (phase == CM_PHASE_OTHER && e->stack >= CM_STACK_FIRST && e->stack == t->node_stack))
        return MADE_FORWARD; /* an operator makes its node before it allocates */
    return phase == CM_PHASE_OPTIMIZER ? MADE_OPTIMIZER : MADE_ELSEWHERE;
}

static void note_place(live *l, cm_attribution *attribution, uint32_t stack)
{
    l->bucket = has_siblings(l) && cm_attribution_buckets(attribution, stack);
    if (l->made != MADE_ELSEWHERE)
        return;
    l->data = cm_attribution_phase(attribution, stack) == CM_PHASE_DATA;
    l->built = cm_attribution_builds(attribution, stack);
    l->loaded = !l->data && cm_attribution_loads(attribution, stack);
}

/* The program runs with this stack: what it does not share with the last backward pass has
 * returned. */
static void see_running(cm_fates *f, uint32_t stack, uint32_t number)
{
    if (stack < CM_STACK_FIRST || f->pass < CM_STACK_FIRST || number != f->pass_thread)
        return;
    uint32_t shared = cm_attribution_shared(f->replay->attribution, f->pass, stack);
    if (shared < f->running) /* a caller has the smaller id */
        f->running = shared;
}

static bool see_alloc(cm_fates *f, const cm_record *record, thread *t)
{
    const cm_event *e = &record->event;
    if (!is_born(e))
        return true;
    made by = made_by(f, e, t);
    if (by == MADE_FORWARD)
        turn_to(f, e, e->flags & CM_EVF_IN_NODE ? TURN_AGAIN : TURN_FORWARD);
    else if (by == MADE_ELSEWHERE) {
        turn_to(f, e, TURN_ELSEWHERE);
        see_running(f, e->stack, t->number);
    }
    uint64_t key = key_of(e->device_type, e->device_index, e->address);
    live *l = add_live(f, key);
    if (l == NULL)
        return false;
    l->made = (uint8_t)by;
    l->inherited = (e->flags & CM_EVF_BEFORE_START) != 0;
    l->size = e->size;
    l->hooked = !(e->flags & CM_EVF_NODE_STACK);
    l->recorded = f->twice == f->passes + 1;
    note_place(l, f->replay->attribution, e->stack);
    if (by != MADE_BACKWARD)
        /* Of what was alive before the window opened no node is known. */
        return note_stack(f, l, e->stack) && (l->inherited || note_node(f, l, e, t));
    const cm_gradient made = {l->birth, key >> 48, e->size};
    return cm_gradients_add(&f->unnamed, &made);
}

static bool see_seed(cm_fates *f, uint64_t position, const cm_event *e)
{
    uint64_t key = key_of(e->device_type, e->device_index, e->address);
    if (position < f->replay->seeded || !is_born(e) || find(f, key) != NULL)
        return true;
    live *l = add_live(f, key);
    if (l != NULL)
        l->made = MADE_BEFORE;
    return l != NULL;
}

/* On CUDA also if the event does not name the device. */
static live *find_block(const cm_fates *f, const cm_event *e)
{
    live *l = find(f, key_of(e->device_type, e->device_index, e->address));
    for (size_t i = 0; l == NULL && e->device_type == CM_DEVICE_CUDA && i < f->cudas; i++)
        l = find(f, key_of(e->device_type, f->cuda[i], e->address));
    return l;
}

static void see_free(cm_fates *f, const cm_event *e, const thread *t)
{
    live *l = find_block(f, e);
    if (l == NULL)
        return;
    end_life(f, l, true, t);
    take(f, l);
}

static void see_device(cm_fates *f, const cm_event *e)
{
    if (e->device_type != CM_DEVICE_CUDA || (f->cudas > 0 && f->cuda[0] == e->device_index) ||
        memchr(f->cuda, e->device_index, f->cudas) != NULL || f->cudas == sizeof f->cuda)
        return;
    f->cuda[f->cudas++] = e->device_index;
}

/* --- labels, and gradients that have none --------------------------------------------------- */

static bool label_birth(void *context, uint32_t birth, uint32_t label)
{
    cm_fates *f = context;
    uint32_t old;
    if (f->of[birth] == ALIVE_AUTOCAST || f->of[birth] == ALIVE_WORKSPACE)
        return true;
    bool known = cm_idmap_get(&f->labels, birth, &old);
    if (known && f->label[old].kind != CM_LABEL_TENSOR)
        return true; /* the first label is the purpose of its birth */
    if (!known && f->labels.count >= NAMED_MAX)
        return true;
    f->of[birth] = ALIVE_LABELLED;
    return cm_idmap_put(&f->labels, birth, label);
}

/* A label without owner and text needs no more than the birth's byte: each step may have many. */
static void see_hook_label(cm_fates *f, const cm_event *e, const live *l)
{
    f->workspaces |= e->flags == CM_LABEL_WORKSPACE;
    if (l != NULL && f->of[l->birth] >= ALIVE_LABELLED && e->flags <= CM_LABEL_AUTOCAST)
        f->of[l->birth] = e->flags == CM_LABEL_WORKSPACE ? ALIVE_WORKSPACE : ALIVE_AUTOCAST;
}

static bool see_label(cm_fates *f, uint64_t position, const cm_event *e)
{
    const live *l = find_block(f, e);
    if (e->flags >= CM_LABEL_WORKSPACE) {
        see_hook_label(f, e, l);
        return true;
    }
    f->walked = true;
    if (e->flags == CM_LABEL_GRADIENT)
        f->gradients = f->turn;
    if (e->flags < CM_LABEL_PARAMETER || l == NULL)
        return true;
    if (e->flags <= CM_LABEL_BUFFER && !cm_purposes_parameter(&f->purposes, l->size))
        return false;
    if (f->label_count >= UINT32_MAX - 1 ||
        !cm_grow((void **)&f->label, &f->label_capacity, f->label_count + 1, sizeof *f->label))
        return false;
    uint32_t label = (uint32_t)f->label_count++, module;
    module = cm_modules_at(f->replay->modules, (uint64_t)e->size, position);
    f->label[label] = (cm_label){(uint64_t)e->size, e->stack, module, e->flags};
    return label_birth(f, l->birth, label) &&
           (e->flags != CM_LABEL_GRADIENT || cm_gradients_learn(&f->unnamed, l->birth, label));
}

static bool is_alive(void *context, uint32_t birth)
{
    const cm_fates *f = context;
    return f->of[birth] >= ALIVE_LABELLED;
}

static bool end_cycle(cm_fates *f)
{
    if (!cm_grow((void **)&f->last_forward, &f->cycle_capacity, f->cycles + 1,
                 sizeof *f->last_forward))
        return false;
    f->last_forward[f->cycles++] = f->forward;
    return true;
}

/* Between what was and what comes. */
static void end_turn(cm_fates *f)
{
    f->at = TURN_ELSEWHERE;
    f->turn++;
}

static bool end_pass(cm_fates *f)
{
    f->passes++;
    end_turn(f);
    f->cycle = f->turn;
    return end_cycle(f) && cm_gradients_end_pass(&f->unnamed, is_alive, label_birth, f);
}

/* --- the first reading ---------------------------------------------------------------------- */

static made made_before(const cm_origin *o)
{
    switch ((cm_phase)o->phase) {
    case CM_PHASE_FORWARD:
        return MADE_FORWARD;
    case CM_PHASE_BACKWARD:
        return MADE_BACKWARD;
    case CM_PHASE_OPTIMIZER:
        return MADE_OPTIMIZER;
    case CM_PHASE_BEFORE_START:
        return MADE_BEFORE;
    default:
        return MADE_ELSEWHERE;
    }
}

static bool inherit(cm_fates *f, const cm_block *block)
{
    const cm_origin *o = &f->replay->origin[block->origin];
    const cm_device *d = &f->replay->device[block->device];
    cm_event e = {.device_type = d->type, .device_index = d->index};
    see_device(f, &e);
    live *l = add_live(f, key_of(d->type, d->index, block->address));
    const cm_label *label = cm_replay_label(f->replay, block);
    if (l == NULL)
        return false;
    l->made = (uint8_t)made_before(o);
    l->size = block->size;
    l->inherited = true;
    note_place(l, f->replay->attribution, o->own);
    if (!note_stack(f, l, o->own))
        return false;
    if (label == NULL)
        return true;
    if (label->kind <= CM_LABEL_BUFFER && !cm_purposes_parameter(&f->purposes, l->size))
        return false;
    if (!cm_grow((void **)&f->label, &f->label_capacity, f->label_count + 1, sizeof *f->label))
        return false;
    f->label[f->label_count] = *label;
    return label_birth(f, l->birth, (uint32_t)f->label_count++);
}

cm_fates *cm_fates_begin(const cm_replay *replay)
{
    cm_fates *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->replay = replay;
    f->turn = 1;
    f->walked = replay->labelled;
    bool fine = make_room(f, replay->blocks.count);
    for (const cm_block *b = NULL; fine && (b = cm_blocks_next(&replay->blocks, b)) != NULL;)
        fine = inherit(f, b);
    if (fine)
        return f;
    cm_fates_free(f);
    return NULL;
}

void cm_fates_free(cm_fates *f)
{
    if (f == NULL)
        return;
    free(f->of);
    free(f->slot);
    cm_idmap_clear(&f->threads);
    free(f->thread);
    cm_idmap_clear(&f->labels);
    free(f->label);
    free(f->last_forward);
    cm_gradients_clear(&f->unnamed);
    cm_purposes_clear(&f->purposes);
    cm_idmap_clear(&f->ended);
    free(f);
}

/* Updates of several optimizers, of a generator and its critic, are one round, because counting
 * each would overstate the blocks' lives. A round begins with an optimizer that stepped in the last
 * one. */
static bool see_update(cm_fates *f, uint64_t optimizer)
{
    bool again = f->in_round == 0;
    for (size_t i = 0; i < f->in_round && !again; i++)
        again = f->round[i] == optimizer;
    if (again) {
        f->in_round = 0;
        f->rounds++;
    }
    if (f->in_round < ROUND_MAX)
        f->round[f->in_round++] = optimizer;
    f->updates++;
    f->updated = true;
    end_turn(f);
    f->cycle = f->turn;
    return end_cycle(f);
}

static bool see_tick(cm_fates *f, const cm_event *e, uint32_t number)
{
    see_running(f, e->stack, number);
    if (e->size == CM_TICK_BACKWARD) {
        f->pass = f->running = e->stack;
        f->pass_thread = number;
        f->pass_updates = f->updates;
    }
    if (e->size == CM_TICK_BACKWARD || e->size == CM_TICK_OPTIMIZER)
        f->boundary = e->stack;
    f->purposes.fetched |= e->size == CM_TICK_DATA;
    if (e->size == CM_TICK_BACKWARD)
        return end_pass(f);
    if (e->size == CM_TICK_OPTIMIZER)
        return see_update(f, e->address);
    end_turn(f);
    return true;
}

static void see_node(cm_fates *f, const cm_event *e, thread *t)
{
    if (e->flags & CM_EVF_IN_NODE) {
        if (e->flags & CM_EVF_NODE_STACK)
            f->twice = f->passes + 1;
        return;
    }
    turn_to(f, e, TURN_FORWARD);
    if (!(e->flags & CM_EVF_BEFORE_START)) {
        f->node = f->turn;
        if (cm_attribution_in_module(f->replay->attribution, e->stack))
            f->recorded = f->turn;
    }
    t->node_stack = e->stack;
    t->node = e->address < UINT32_MAX ? (uint32_t)e->address : 0;
}

bool cm_fates_apply(cm_fates *f, uint64_t position, const cm_record *record)
{
    const cm_event *e = &record->event;
    thread *t = find_thread(f, record->thread);
    if (t == NULL)
        return false;
    switch (e->kind) {
    case CM_EV_ALLOC:
        see_device(f, e);
        return see_alloc(f, record, t);
    case CM_EV_FREE:
    case CM_EV_SEGMENT_FREE: /* of a direct block */
        see_free(f, e, t);
        return true;
    case CM_EV_SEED:
        see_device(f, e);
        return see_seed(f, position, e);
    case CM_EV_NODE_NEW:
        see_node(f, e, t);
        return true;
    case CM_EV_NODE_FREE:
        return end_node(f, e->address);
    case CM_EV_NODE_RUN:
        turn_to(f, e, TURN_BACKWARD);
        if (e->address == CM_NODE_NO_SEQUENCE)
            return true; /* AccumulateGrad saves nothing */
        t->saver = e->stack;
        t->passes = f->passes;
        return true;
    case CM_EV_OOM:
        f->at = TURN_ELSEWHERE;
        f->refused = ++f->turn;
        return true;
    case CM_EV_TICK:
        return see_tick(f, e, record->thread);
    case CM_EV_LABEL:
        return see_label(f, position, e);
    case CM_EV_MARK:
        if (e->size != CM_MARK_WALK)
            return true;
        f->walks = true;
        return true;
    default:
        return true;
    }
}

bool cm_fates_end(cm_fates *f)
{
    bool fine = f->unnamed.count == 0 || end_pass(f); /* a pass that did not return */
    for (size_t i = 0; fine && i < f->slots; i++)
        if (f->slot[i].key != 0)
            end_life(f, &f->slot[i], false, NULL);
    free(f->slot);
    f->slot = NULL;
    f->slots = f->alive = 0;
    cm_idmap_clear(&f->ended);
    cm_purposes_end(&f->purposes);
    return fine;
}

/* --- the second one ------------------------------------------------------------------------- */

cm_category cm_fates_category(const cm_label *label, cm_category otherwise)
{
    static const cm_category of[] = {
        [CM_LABEL_PARAMETER] = CM_CATEGORY_PARAMETER,
        [CM_LABEL_BUFFER] = CM_CATEGORY_BUFFER,
        [CM_LABEL_GRADIENT] = CM_CATEGORY_GRADIENT,
        [CM_LABEL_OPTIMIZER_STATE] = CM_CATEGORY_OPTIMIZER_STATE,
        [CM_LABEL_WORKSPACE] = CM_CATEGORY_WORKSPACE,
        [CM_LABEL_AUTOCAST] = CM_CATEGORY_AUTOCAST,
    };
    bool known = label->kind >= CM_LABEL_PARAMETER && label->kind <= CM_LABEL_AUTOCAST;
    return known && of[label->kind] != CM_CATEGORY_UNKNOWN ? of[label->kind] : otherwise;
}

static const cm_label *hook_label(cm_category category)
{
    static const cm_label workspace = {.kind = CM_LABEL_WORKSPACE};
    static const cm_label autocast = {.kind = CM_LABEL_AUTOCAST};
    return category == CM_CATEGORY_WORKSPACE  ? &workspace
           : category == CM_CATEGORY_AUTOCAST ? &autocast
                                              : NULL;
}

cm_fate cm_fates_next(cm_fates *f, uint32_t stack, int64_t size)
{
    uint32_t at;
    if (f->next >= f->births)
        return (cm_fate){0};
    size_t birth = f->next++;
    uint8_t byte = f->of[birth];
    if (byte >= ALIVE_AUTOCAST)
        return (cm_fate){0};
    cm_fate fate = {.category = CM_CATEGORY_ACTIVATION};
    if (byte < SAVED)
        fate.category = (cm_category)(byte & CATEGORY);
    fate.category =
        cm_purposes_decide(&f->purposes, stack, size, fate.category, byte < SAVED && byte & OPEN);
    if (byte >= SAVED) {
        fate.saved_by = fate.category == CM_CATEGORY_ACTIVATION ? f->saver[byte - SAVED] : 0;
        return fate;
    }
    fate.label = hook_label(fate.category);
    if (byte & LABELLED && cm_idmap_get(&f->labels, birth, &at)) {
        fate.label = &f->label[at];
        fate.category = cm_fates_category(fate.label, fate.category);
    }
    return fate;
}
