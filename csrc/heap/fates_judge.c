#include "fates_parts.h"

/* Of CM_FATE_LONG calls: each makes two, or three if something is computed behind it. */
enum { CALLS_TURNS = 2 * CM_FATE_LONG };

static bool is_long(const cm_fates *f, const cm_fate_life *l)
{
    cm_fate_cycle of = cm_fates_cycle(f, l);
    uint32_t life = f->updated ? f->rounds - of.rounds : f->passes - of.passes;
    return life >= CM_FATE_LONG;
}

/* Its stack made more blocks in so many later turns while it lives: it is in a collection. */
static bool is_collected(const cm_fates *f, const cm_fate_life *l)
{
    return cm_purposes_since(&f->list.purposes, l->stack, l->visit) >= CM_FATE_LONG;
}

static bool is_on_device(const cm_fate_life *l)
{
    return l->key << 1 >> 49 != 0;
}

/* Whether the graph may still need it. */
static bool is_in_graph(const cm_fate_life *l)
{
    return l->node != 0 && l->node_ended == 0;
}

/* Whether the graph had it until now. */
static bool was_in_graph(const cm_fates *f, const cm_fate_life *l)
{
    return l->node != 0 && (l->node_ended == 0 || l->node_ended == f->turn);
}

/* Whether a forward began after its birth, before the next backward pass or update. */
static bool is_used_next(const cm_fates *f, const cm_fate_life *l)
{
    return cm_fates_cycle(f, l).last_forward > l->turn;
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
static bool has_outlived_call(const cm_fates *f, const cm_fate_life *l)
{
    cm_fate_cycle of = cm_fates_cycle(f, l);
    return f->updates == of.updates + 1 && f->pass_updates == of.updates && f->passes > of.passes &&
           !l->inherited &&
           cm_attribution_shared(f->replay->attribution, f->pass, l->stack) > f->running;
}

/* In the midst of a step's forward: a mask, noise, or what is computed from the outputs. */
static verdict judge_late(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    bool used = is_used_next(f, l);
    bool given = cm_purposes_given(&f->list.purposes, l->stack);
    if (used && f->backward > l->turn) {
        if (!given && has_outlived_call(f, l))
            return decided(CM_CATEGORY_KEPT);
        return decided(given ? CM_CATEGORY_INPUT : CM_CATEGORY_ACTIVATION);
    }
    if (f->rounds > cm_fates_cycle(f, l).rounds)
        return open_to(CM_CATEGORY_KEPT);
    if (gone && !l->inherited)
        return decided(CM_CATEGORY_TEMPORARY);
    return open_to(used ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
}

/* Before the loop: data that is read once. In one step: the inputs of a recurrent network. */
static verdict judge_collected(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    bool used = f->forward > l->turn;
    bool one_step = gone && f->rounds == cm_fates_cycle(f, l).rounds;
    if (l->setup && !l->after && used)
        return open_to(CM_CATEGORY_INPUT);
    if (one_step && used && f->backward > l->turn)
        return decided(l->late ? CM_CATEGORY_ACTIVATION : CM_CATEGORY_INPUT);
    return decided(CM_CATEGORY_KEPT);
}

/* A variable's, until the next result. */
static bool is_replaced(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    return gone && cm_purposes_since(&f->list.purposes, l->stack, l->visit) == 1 &&
           cm_purposes_repeats(&f->list.purposes, l->stack);
}

/* In an evaluation, behind a call, and called past again and again, alone of its stack: a bank of
 * what it made, not the batch of one call. */
static bool outlives_calls(const cm_fates *f, const cm_fate_life *l)
{
    return l->after && l->cycle == f->cycles && f->forward > l->turn &&
           f->forward - l->turn >= CALLS_TURNS &&
           cm_purposes_since(&f->list.purposes, l->stack, l->visit) == 0;
}

static verdict judge_elsewhere(const cm_fates *f, const cm_fate_life *l, bool gone)
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
    if (used && cm_purposes_carried(&f->list.purposes, l->stack))
        return decided(CM_CATEGORY_KEPT);
    if (outlives_calls(f, l))
        return open_to(CM_CATEGORY_KEPT);
    if (used && l->after && cm_purposes_results(&f->list.purposes, l->stack))
        return decided(is_replaced(f, l, gone) ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
    if (used)
        return (verdict){CM_CATEGORY_INPUT, !gone};
    return gone && !l->inherited ? decided(CM_CATEGORY_TEMPORARY)
                                 : open_to(l->after ? CM_CATEGORY_KEPT : CM_CATEGORY_UNKNOWN);
}

/* hooked: Python code that a node runs made it. A walk that labelled gradients, but not this block
 * of the first pass, shows that it is none. */
static verdict judge_backward(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    cm_fate_cycle of = cm_fates_cycle(f, l);
    if (gone && !l->inherited && f->passes == of.passes)
        return decided(CM_CATEGORY_TEMPORARY);
    if (gone && l->recorded && f->passes == of.passes + 1 && f->updates == of.updates)
        return decided(CM_CATEGORY_ACTIVATION);
    if (l->inherited && f->walks && f->list.of[l->birth] != CM_FATE_ALIVE_LABELLED)
        return decided(CM_CATEGORY_UNKNOWN);
    if (!l->setup || !is_long(f, l) || f->gradients <= l->turn)
        return decided(CM_CATEGORY_GRADIENT);
    return decided(l->hooked ? CM_CATEGORY_KEPT : CM_CATEGORY_UNKNOWN);
}

static verdict judge_forward(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    bool in_graph = f->node >= l->turn && f->node != 0 && !l->inherited;
    if (is_in_graph(l) && (f->backward > l->turn || !gone))
        return decided(CM_CATEGORY_ACTIVATION);
    if (gone && !l->inherited && f->at == CM_TURN_BACKWARD &&
        f->passes == cm_fates_cycle(f, l).passes)
        return decided(CM_CATEGORY_ACTIVATION);
    if (is_long(f, l) && l->setup && is_on_device(l) && !f->workspaces)
        return decided(CM_CATEGORY_UNKNOWN); /* of a recording without them: perhaps one of those */
    if (is_collected(f, l))
        return decided(CM_CATEGORY_KEPT);
    if (is_long(f, l))
        return open_to(CM_CATEGORY_KEPT);
    if (f->backward > l->turn || (in_graph && (!gone || f->refused > l->turn)))
        return decided(CM_CATEGORY_ACTIVATION);
    uint32_t since = cm_purposes_since(&f->list.purposes, l->stack, l->visit);
    if (since > 0) /* beyond its call */
        return decided(was_in_graph(f, l)        ? CM_CATEGORY_ACTIVATION
                       : is_replaced(f, l, gone) ? CM_CATEGORY_TEMPORARY
                                                 : CM_CATEGORY_KEPT);
    if (gone && !l->inherited)
        return decided(CM_CATEGORY_TEMPORARY);
    return open_to(f->refused > l->turn ? CM_CATEGORY_TEMPORARY : CM_CATEGORY_KEPT);
}

/* gone: freed; else alive at the window's end. */
static verdict judge(const cm_fates *f, const cm_fate_life *l, bool gone)
{
    if (l->bucket && (f->backward > l->turn || f->passes > cm_fates_cycle(f, l).passes))
        return decided(CM_CATEGORY_BUCKET);
    if (l->moved != CM_CATEGORY_UNKNOWN)
        return decided((cm_category)l->moved);
    switch ((cm_fate_made)l->made) {
    case CM_MADE_BEFORE:
        return decided(CM_CATEGORY_BEFORE_START);
    case CM_MADE_BACKWARD:
        return judge_backward(f, l, gone);
    case CM_MADE_OPTIMIZER:
        return decided(!gone || l->inherited || f->updates > cm_fates_cycle(f, l).updates
                           ? CM_CATEGORY_OPTIMIZER_STATE
                           : CM_CATEGORY_TEMPORARY);
    case CM_MADE_FORWARD:
        return judge_forward(f, l, gone);
    default:
        return judge_elsewhere(f, l, gone);
    }
}

/* An activation's byte. */
static uint8_t saved_by(cm_fates *f, const cm_fate_thread *t)
{
    if (t == NULL || t->saver == 0 || t->passes != f->passes)
        return CM_CATEGORY_ACTIVATION;
    return cm_fate_list_saved(&f->list, t->saver);
}

static void end_lives(cm_fates *f, const cm_fate_life *l, bool gone, const cm_fate_thread *freed_by,
                      uint32_t count)
{
    cm_category hooked = cm_fate_hooked(f->list.of[l->birth]);
    verdict v = hooked != 0 ? decided(hooked) : judge(f, l, gone);
    uint8_t fate = (uint8_t)(v.category | (v.open ? CM_FATE_OPEN : 0));
    if (hooked == 0 && cm_fates_has_siblings(l) && (!v.open || v.category == CM_CATEGORY_KEPT))
        cm_purposes_vote(&f->list.purposes, l->stack, l->size, v.category, count);
    if (f->list.of[l->birth] == CM_FATE_ALIVE_LABELLED)
        fate |= CM_FATE_LABELLED;
    else if (v.category == CM_CATEGORY_ACTIVATION)
        fate = saved_by(f, freed_by);
    if (l->node != 0)
        cm_fates_drop_node(f, l);
    f->list.of[l->birth] = fate;
}

void cm_fates_end_life(cm_fates *f, const cm_fate_life *l, bool gone,
                       const cm_fate_thread *freed_by)
{
    end_lives(f, l, gone, freed_by, 1);
}

void cm_fates_end_cohort(cm_fates *f, const cm_fate_life *l, uint32_t count)
{
    end_lives(f, l, false, NULL, count);
}
