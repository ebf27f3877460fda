#include "fates_parts.h"

#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/own_frame.h"

static uint64_t key_of(uint8_t type, int8_t index, uint64_t address)
{
    uint64_t device = type == CM_DEVICE_CPU ? 0 : (uint64_t)type << 8 | (uint8_t)(index + 1);
    return (address ^ device << 48) | (uint64_t)1 << 63;
}

static bool is_born(const cm_event *e)
{
    return e->size != 0 && e->address != 0;
}

static cm_fate_life *add_live(cm_fates *f, uint64_t key)
{
    cm_fate_life *l = cm_fates_reserve(f, key);
    if (l == NULL || !cm_fate_list_add(&f->list))
        return NULL;
    if (l->key != 0)
        cm_fates_end_life(f, l, true, NULL);
    *l = (cm_fate_life){.key = key,
                        .birth = (uint32_t)f->list.births - 1,
                        .turn = f->turn,
                        .cycle = (uint32_t)f->cycles,
                        .setup = f->updates == 0 && f->passes == 0,
                        .after = f->forward > 0 && f->forward >= f->cycle};
    return l;
}

static uint32_t known_stack(const cm_fates *f, uint32_t stack)
{
    bool known = stack < (uint64_t)CM_STACK_FIRST + cm_reader_stack_count(f->replay->reader);
    return known ? stack : CM_STACK_NONE;
}

/* Notes the stack of a block for which siblings count. It is late if its stack comes after the
 * forward in most steps: of the inputs of a recurrent network only the first comes before it.
 * false: out of memory. */
static bool note_stack(cm_fates *f, cm_fate_life *l, uint32_t stack)
{
    l->stack = known_stack(f, stack);
    if (!cm_fates_has_siblings(l))
        return true;
    bool late = f->recorded > 0 && f->recorded >= f->cycle;
    cm_birth birth = {.turn = f->turn,
                      .cycle = f->passes + f->updates,
                      .count = 1,
                      .size = l->data ? 0 : l->size,
                      .late = late};
    if (!cm_purposes_born(&f->list.purposes, l->stack, &birth))
        return false;
    l->visit = birth.visit;
    l->late = birth.late;
    bool call = !late && l->after;
    if (l->made != CM_MADE_ELSEWHERE || l->data || late != l->late ||
        (!late && !call && f->boundary == 0))
        return true;
    return cm_purposes_wait(&f->list.purposes, f->replay->attribution, l->stack,
                            late   ? CM_STACK_NONE
                            : call ? f->call
                                   : f->boundary,
                            call);
}

/* The node that an operator made just before this block. false: out of memory. */
static bool note_node(cm_fates *f, cm_fate_life *l, const cm_event *e, const cm_fate_thread *t)
{
    if (l->made != CM_MADE_FORWARD || e->flags & CM_EVF_IN_NODE || t->node == 0 ||
        e->stack != t->node_stack || cm_fates_of_node(f, t->node) != NULL)
        return true;
    return cm_fates_put_node(f, l, t->node);
}

/* A node was destroyed. */
static CM_OWN_FRAME void end_node(cm_fates *f, uint64_t sequence)
{
    cm_fate_life *l =
        sequence == 0 || sequence > UINT32_MAX ? NULL : cm_fates_of_node(f, (uint32_t)sequence);
    if (l != NULL)
        l->node_ended = f->turn;
}

/* --- records -------------------------------------------------------------------------------- */

static CM_OWN_FRAME cm_fate_thread *lookup_thread(cm_fates *f, uint32_t number)
{
    uint32_t at;
    if (cm_idmap_get(&f->threads, number, &at))
        return &f->thread[f->last_thread = at];
    if (!cm_grow((void **)&f->thread, &f->thread_capacity, f->thread_count + 1,
                 sizeof *f->thread) ||
        !cm_idmap_put(&f->threads, number, (uint32_t)f->thread_count))
        return NULL;
    f->thread[f->thread_count] = (cm_fate_thread){.number = number};
    return &f->thread[f->thread_count++];
}

static inline cm_fate_thread *find_thread(cm_fates *f, uint32_t number)
{
    return f->thread_count > 0 && f->thread[f->last_thread].number == number
               ? &f->thread[f->last_thread]
               : lookup_thread(f, number);
}

/* The prologue of an extracted window has no turns. */
static void turn_to(cm_fates *f, const cm_event *e, int at)
{
    if (e->flags & CM_EVF_BEFORE_START)
        return;
    if ((int)f->at != at)
        f->turn++;
    f->at = at;
    if (at == CM_TURN_FORWARD) {
        if (f->forward != f->turn)
            f->call = e->stack;
        f->forward = f->turn;
        cm_purposes_forward(&f->list.purposes, f->replay->attribution, e->stack);
    } else if (at == CM_TURN_BACKWARD)
        f->backward = f->turn;
}

static cm_fate_made made_by(cm_fates *f, const cm_event *e, const cm_fate_thread *t)
{
    cm_phase phase = cm_attribution_phase(f->replay->attribution, e->stack);
    if (e->flags & CM_EVF_IN_NODE)
        return phase == CM_PHASE_FORWARD && !(e->flags & CM_EVF_NODE_STACK) ? CM_MADE_FORWARD
                                                                            : CM_MADE_BACKWARD;
    if (phase == CM_PHASE_FORWARD ||
        (phase == CM_PHASE_OTHER && e->stack >= CM_STACK_FIRST && e->stack == t->node_stack))
        return CM_MADE_FORWARD; /* an operator makes its node before it allocates */
    return phase == CM_PHASE_OPTIMIZER ? CM_MADE_OPTIMIZER : CM_MADE_ELSEWHERE;
}

static void note_place(cm_fate_life *l, cm_attribution *attribution, uint32_t stack)
{
    l->bucket = cm_fates_has_siblings(l) && cm_attribution_buckets(attribution, stack);
    l->moved = cm_fates_has_siblings(l) ? (uint8_t)cm_attribution_moved(attribution, stack)
                                        : CM_CATEGORY_UNKNOWN;
    if (l->made != CM_MADE_ELSEWHERE)
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

static CM_OWN_FRAME void see_cuda(cm_fates *f, int8_t index)
{
    if (memchr(f->cuda, index, f->cudas) == NULL && f->cudas < sizeof f->cuda)
        f->cuda[f->cudas++] = index;
}

static inline void see_device(cm_fates *f, const cm_event *e)
{
    if (e->device_type == CM_DEVICE_CUDA && (f->cudas == 0 || f->cuda[0] != e->device_index))
        see_cuda(f, e->device_index);
}

/* --- blocks from before the window ---------------------------------------------------------- */

static cm_fate_made made_before(const cm_origin *o)
{
    switch ((cm_phase)o->phase) {
    case CM_PHASE_FORWARD:
        return CM_MADE_FORWARD;
    case CM_PHASE_BACKWARD:
        return CM_MADE_BACKWARD;
    case CM_PHASE_OPTIMIZER:
        return CM_MADE_OPTIMIZER;
    case CM_PHASE_BEFORE_START:
        return CM_MADE_BEFORE;
    default:
        return CM_MADE_ELSEWHERE;
    }
}

/* Its life so far: that before the window does not count. */
static cm_fate_life inherited(cm_fates *f, uint32_t origin, int64_t size)
{
    const cm_origin *o = &f->replay->origin[origin];
    cm_fate_life *l = &f->inherited[origin];
    if (!l->inherited) {
        *l = (cm_fate_life){.stack = known_stack(f, o->own),
                            .made = (uint8_t)made_before(o),
                            .turn = 1,
                            .visit = 1,
                            .setup = true,
                            .inherited = true};
        note_place(l, f->replay->attribution, o->own);
    }
    cm_fate_life copy = *l;
    copy.size = size;
    return copy;
}

/* A block of a cohort that the window's records name, if it is one: from now on it has a life of
 * its own. */
static CM_OWN_FRAME cm_fate_life *single_out(cm_fates *f, int device, uint64_t address,
                                             uint64_t key)
{
    const cm_block *block =
        device < 0 ? NULL : cm_blocks_find(&f->replay->blocks, (uint16_t)device, address);
    uint64_t known = key & (UINT64_MAX >> 1);
    if (block == NULL || !block->grouped || cm_idmap_get(&f->singled, known, &(uint32_t){0}))
        return NULL;
    cm_fate_list *list = &f->list;
    cm_fate_life *l = cm_fates_reserve(f, key);
    f->failed |= l == NULL || !cm_fate_list_add(list) || !cm_idmap_put(&f->singled, known, 0) ||
                 !cm_grow((void **)&list->single, &list->single_capacity, list->singles + 1,
                          sizeof *list->single);
    if (f->failed)
        return NULL;
    *l = inherited(f, cm_replay_origin(f->replay, block), block->size);
    l->key = key;
    l->birth = (uint32_t)list->births - 1;
    list->single[list->singles++] = (cm_fate_single){address, l->birth, (uint16_t)device};
    f->singles[block->origin]++;
    f->grouped--;
    return l;
}

/* The live block there. */
static inline cm_fate_life *find_live(cm_fates *f, uint8_t type, int8_t index, uint64_t address)
{
    uint64_t key = key_of(type, index, address);
    cm_fate_life *l = cm_fates_find(f, key);
    return l != NULL || f->grouped == 0
               ? l
               : single_out(f, cm_replay_find_device(f->replay, type, index), address, key);
}

/* --- births and ends ------------------------------------------------------------------------ */

static CM_OWN_FRAME bool see_alloc(cm_fates *f, const cm_record *record, cm_fate_thread *t)
{
    const cm_event *e = &record->event;
    see_device(f, e);
    if (!is_born(e))
        return true;
    cm_fate_made by = made_by(f, e, t);
    if (by == CM_MADE_FORWARD)
        turn_to(f, e, e->flags & CM_EVF_IN_NODE ? CM_TURN_AGAIN : CM_TURN_FORWARD);
    else if (by == CM_MADE_ELSEWHERE) {
        turn_to(f, e, CM_TURN_ELSEWHERE);
        see_running(f, e->stack, t->number);
    }
    uint64_t key = key_of(e->device_type, e->device_index, e->address);
    if (f->grouped > 0 && cm_cohorts_may_have(f->replay->cohorts, e->address))
        find_live(f, e->device_type, e->device_index, e->address); /* its life ends */
    cm_fate_life *l = add_live(f, key);
    if (l == NULL)
        return false;
    l->made = (uint8_t)by;
    l->inherited = (e->flags & CM_EVF_BEFORE_START) != 0;
    l->size = e->size;
    l->hooked = !(e->flags & CM_EVF_NODE_STACK);
    l->recorded = f->twice == f->passes + 1;
    note_place(l, f->replay->attribution, e->stack);
    if (by != CM_MADE_BACKWARD)
        /* Of what was alive before the window opened no node is known. */
        return note_stack(f, l, e->stack) && (l->inherited || note_node(f, l, e, t));
    const cm_gradient made = {l->birth, key >> 48, e->size};
    return cm_gradients_add(&f->unnamed, &made);
}

static CM_OWN_FRAME bool see_seed(cm_fates *f, uint64_t position, const cm_event *e)
{
    uint64_t key = key_of(e->device_type, e->device_index, e->address);
    see_device(f, e);
    if (position < f->replay->seeded || !is_born(e) ||
        find_live(f, e->device_type, e->device_index, e->address) != NULL)
        return true;
    cm_fate_life *l = add_live(f, key);
    if (l != NULL)
        l->made = CM_MADE_BEFORE;
    return l != NULL;
}

/* On CUDA also if the event does not name the device. */
static cm_fate_life *find_block(cm_fates *f, const cm_event *e)
{
    cm_fate_life *l = find_live(f, e->device_type, e->device_index, e->address);
    for (size_t i = 0; l == NULL && e->device_type == CM_DEVICE_CUDA && i < f->cudas; i++)
        l = find_live(f, e->device_type, f->cuda[i], e->address);
    return l;
}

static CM_OWN_FRAME bool see_free(cm_fates *f, const cm_event *e, const cm_fate_thread *t)
{
    cm_fate_life *l = find_block(f, e);
    if (l == NULL)
        return true;
    cm_fates_end_life(f, l, true, t);
    cm_fates_take(f, l);
    return true;
}

/* --- labels, and gradients that have none --------------------------------------------------- */

/* A label without owner and text needs no more than the birth's byte: each step may have many. */
static void see_hook_label(cm_fates *f, const cm_event *e, const cm_fate_life *l)
{
    f->workspaces |= e->flags == CM_LABEL_WORKSPACE;
    if (l != NULL && f->list.of[l->birth] >= CM_FATE_ALIVE_LABELLED && e->flags < CM_LABEL_END)
        f->list.of[l->birth] = (uint8_t)(CM_FATE_ALIVE_HOOKED + e->flags - CM_LABEL_WORKSPACE);
}

/* A parameter or buffer. */
static bool see_parameter(cm_fates *f, const cm_fate_life *l, uint8_t kind)
{
    if (l->built)
        cm_purposes_named(&f->list.purposes, l->stack, kind == CM_LABEL_PARAMETER);
    return cm_purposes_parameter(&f->list.purposes, l->size);
}

static CM_OWN_FRAME bool see_label(cm_fates *f, uint64_t position, const cm_event *e)
{
    const cm_fate_life *l = find_block(f, e);
    if (e->flags >= CM_LABEL_WORKSPACE) {
        see_hook_label(f, e, l);
        return true;
    }
    f->walked = true;
    if (e->flags == CM_LABEL_GRADIENT)
        f->gradients = f->turn;
    if (e->flags < CM_LABEL_PARAMETER || l == NULL)
        return true;
    if (e->flags <= CM_LABEL_BUFFER && !see_parameter(f, l, e->flags))
        return false;
    uint32_t module = cm_modules_at(f->replay->modules, (uint64_t)e->size, position);
    cm_label label = {(uint64_t)e->size, e->stack, module, e->flags};
    int64_t number = cm_fate_list_label(&f->list, &label);
    return number >= 0 && cm_fate_list_name(&f->list, l->birth, (uint32_t)number) &&
           (e->flags != CM_LABEL_GRADIENT ||
            cm_gradients_learn(&f->unnamed, l->birth, (uint32_t)number));
}

static bool end_cycle(cm_fates *f)
{
    if (!cm_grow((void **)&f->ended, &f->cycle_capacity, f->cycles + 1, sizeof *f->ended))
        return false;
    f->ended[f->cycles++] = (cm_fate_cycle){f->updates, f->rounds, f->passes, f->forward};
    return true;
}

/* Between what was and what comes. */
static void end_turn(cm_fates *f)
{
    f->at = CM_TURN_ELSEWHERE;
    f->turn++;
}

static bool end_pass(cm_fates *f)
{
    if (!end_cycle(f))
        return false;
    f->passes++;
    end_turn(f);
    f->cycle = f->turn;
    return cm_gradients_end_pass(&f->unnamed, cm_fate_list_lives, cm_fate_list_name, &f->list);
}

/* --- the first reading ---------------------------------------------------------------------- */

static bool inherit(cm_fates *f, const cm_fate_life *l, uint64_t count)
{
    return !cm_fates_has_siblings(l) ||
           cm_purposes_inherit(&f->list.purposes, l->stack, l->data ? 0 : l->size, (uint32_t)count);
}

static bool inherit_cohorts(cm_fates *f)
{
    const cm_cohorts *c = f->replay->cohorts;
    f->singles = calloc(c->count + 1, sizeof *f->singles);
    f->inherited = calloc(f->replay->origin_count + 1, sizeof *f->inherited);
    if (f->singles == NULL || f->inherited == NULL)
        return false;
    for (size_t i = 0; i < c->count; i++) {
        const cm_cohort *of = &c->cohort[i];
        if (!cm_fate_list_add(&f->list))
            return false;
        if (of->count == 0)
            continue;
        const cm_fate_life l = inherited(f, of->origin, of->size);
        if (!inherit(f, &l, of->count))
            return false;
        f->grouped += of->count;
    }
    return true;
}

static bool inherit_loose(cm_fates *f, const cm_block *block)
{
    const cm_device *d = &f->replay->device[block->device];
    const cm_label *label = cm_replay_label(f->replay, block);
    uint64_t key = key_of(d->type, d->index, block->address);
    cm_fate_life *l = add_live(f, key);
    if (l == NULL)
        return false;
    uint32_t birth = l->birth;
    *l = inherited(f, block->origin, block->size);
    l->key = key;
    l->birth = birth;
    if (!inherit(f, l, 1))
        return false;
    if (label == NULL)
        return true;
    if (label->kind <= CM_LABEL_BUFFER && !see_parameter(f, l, label->kind))
        return false;
    int64_t number = cm_fate_list_label(&f->list, label);
    return number >= 0 && cm_fate_list_name(&f->list, l->birth, (uint32_t)number);
}

cm_fates *cm_fates_begin(const cm_replay *replay)
{
    cm_fates *f = calloc(1, sizeof *f);
    size_t at = 0;
    if (f == NULL)
        return NULL;
    f->replay = replay;
    f->turn = 1;
    f->walked = replay->labelled;
    for (size_t i = 0; i < replay->device_count; i++) {
        const cm_device *d = &replay->device[i];
        see_device(f, &(cm_event){.device_type = d->type, .device_index = d->index});
    }
    bool fine = inherit_cohorts(f);
    for (const cm_block *b; fine && (b = cm_replay_next_loose(replay, &at)) != NULL;)
        fine = inherit_loose(f, b);
    f->list.next = f->list.births;
    if (fine)
        return f;
    cm_fates_free(f);
    return NULL;
}

void cm_fates_free(cm_fates *f)
{
    if (f == NULL)
        return;
    cm_fates_clear_lives(f);
    free(f->singles);
    free(f->inherited);
    cm_idmap_clear(&f->singled);
    cm_idmap_clear(&f->threads);
    free(f->thread);
    free(f->ended);
    cm_gradients_clear(&f->unnamed);
    cm_fate_list_clear(&f->list);
    free(f);
}

/* Updates of several optimizers, of a generator and its critic, are one round, because counting
 * each would overstate the blocks' lives. A round begins with an optimizer that stepped in the last
 * one. */
static bool see_update(cm_fates *f, uint64_t optimizer)
{
    if (!end_cycle(f))
        return false;
    bool again = f->in_round == 0;
    for (size_t i = 0; i < f->in_round && !again; i++)
        again = f->round[i] == optimizer;
    if (again) {
        f->in_round = 0;
        f->rounds++;
    }
    if (f->in_round < CM_FATE_ROUND)
        f->round[f->in_round++] = optimizer;
    f->updates++;
    f->updated = true;
    end_turn(f);
    f->cycle = f->turn;
    return true;
}

static CM_OWN_FRAME bool see_tick(cm_fates *f, const cm_event *e, uint32_t number)
{
    see_running(f, e->stack, number);
    if (e->size == CM_TICK_BACKWARD) {
        f->pass = f->running = e->stack;
        f->pass_thread = number;
        f->pass_updates = f->updates;
    }
    if (e->size == CM_TICK_BACKWARD || e->size == CM_TICK_OPTIMIZER)
        f->boundary = e->stack;
    f->list.purposes.fetched |= e->size == CM_TICK_DATA;
    if (e->size == CM_TICK_BACKWARD)
        return end_pass(f);
    if (e->size == CM_TICK_OPTIMIZER)
        return see_update(f, e->address);
    end_turn(f);
    return true;
}

static CM_OWN_FRAME bool see_node(cm_fates *f, const cm_event *e, cm_fate_thread *t)
{
    if (e->flags & CM_EVF_IN_NODE) {
        if (e->flags & CM_EVF_NODE_STACK)
            f->twice = f->passes + 1;
        return true;
    }
    turn_to(f, e, CM_TURN_FORWARD);
    if (!(e->flags & CM_EVF_BEFORE_START)) {
        f->node = f->turn;
        if (cm_attribution_in_module(f->replay->attribution, e->stack))
            f->recorded = f->turn;
    }
    t->node_stack = e->stack;
    t->node = e->address < UINT32_MAX ? (uint32_t)e->address : 0;
    return true;
}

static CM_OWN_FRAME bool see_run(cm_fates *f, const cm_event *e, cm_fate_thread *t)
{
    turn_to(f, e, CM_TURN_BACKWARD);
    if (e->address == CM_NODE_NO_SEQUENCE)
        return true; /* AccumulateGrad saves nothing */
    t->saver = e->stack;
    t->passes = f->passes;
    return true;
}

bool cm_fates_apply(cm_fates *f, uint64_t position, const cm_record *record)
{
    const cm_event *e = &record->event;
    cm_fate_thread *t = find_thread(f, record->thread);
    if (t == NULL)
        return false;
    switch (e->kind) {
    case CM_EV_ALLOC:
        return see_alloc(f, record, t);
    case CM_EV_FREE:
    case CM_EV_SEGMENT_FREE: /* of a direct block */
        return see_free(f, e, t);
    case CM_EV_SEED:
        return see_seed(f, position, e);
    case CM_EV_NODE_NEW:
        return see_node(f, e, t);
    case CM_EV_NODE_FREE:
        end_node(f, e->address);
        return true;
    case CM_EV_NODE_RUN:
        return see_run(f, e, t);
    case CM_EV_OOM:
        f->at = CM_TURN_ELSEWHERE;
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

static void end_cohorts(cm_fates *f)
{
    const cm_cohorts *c = f->replay->cohorts;
    for (size_t i = 0; i < c->count; i++) {
        const cm_cohort *of = &c->cohort[i];
        uint64_t left = of->count - f->singles[i];
        if (left == 0)
            continue;
        const cm_device *d = &f->replay->device[f->replay->origin[of->origin].device];
        cm_fate_life l = inherited(f, of->origin, of->size);
        l.birth = (uint32_t)i;
        l.key = key_of(d->type, d->index, 0);
        cm_fates_end_cohort(f, &l, (uint32_t)left);
    }
}

bool cm_fates_end(cm_fates *f)
{
    bool fine = f->unnamed.count == 0 || end_pass(f); /* a pass that did not return */
    fine = fine && !f->failed;
    for (size_t i = 0; fine && i < f->slots; i++)
        if (f->slot[i] != 0)
            cm_fates_end_life(f, cm_fates_numbered(f, f->slot[i]), false, NULL);
    if (fine)
        end_cohorts(f);
    cm_fates_clear_lives(f);
    cm_purposes_end(&f->list.purposes);
    return fine;
}

cm_fate_list *cm_fates_list(cm_fates *f)
{
    return &f->list;
}
