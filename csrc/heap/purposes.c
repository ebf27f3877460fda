#include "purposes.h"

#include <stdlib.h>

#include "../base/grow.h"

static const cm_category voted[CM_PURPOSE_VOTES] = {CM_CATEGORY_TEMPORARY, CM_CATEGORY_INPUT,
                                                    CM_CATEGORY_ACTIVATION, CM_CATEGORY_KEPT};

void cm_purposes_clear(cm_purposes *p)
{
    free(p->of);
    free(p->size);
    free(p->wait);
    *p = (cm_purposes){0};
}

static void note_size(cm_purpose *one, int64_t size)
{
    for (size_t i = 0; i < one->sizes; i++)
        if (one->size[i] == size)
            return;
    if (size > one->largest)
        one->largest = size;
    if (one->sizes < CM_PURPOSE_SIZES)
        one->size[one->sizes++] = size;
}

/* Whether the stack comes after the forward in most steps. */
static bool note_cycle(cm_purpose *one, const cm_birth *birth)
{
    if (one->firsts == 0 || one->cycle != birth->cycle) {
        one->firsts++;
        one->late += birth->late;
    }
    one->cycle = birth->cycle;
    return one->late * 2 > one->firsts;
}

bool cm_purposes_born(cm_purposes *p, uint32_t stack, cm_birth *birth)
{
    if (!cm_grow_zeroed((void **)&p->of, &p->capacity, (size_t)stack + 1, sizeof *p->of))
        return false;
    cm_purpose *one = &p->of[stack];
    if (one->visit == 0 || one->turn != birth->turn) {
        one->visit++;
        one->in_turn = 0;
    }
    one->turn = birth->turn;
    one->in_turn += birth->count;
    if (one->in_turn > one->most)
        one->most = one->in_turn;
    note_size(one, birth->size);
    birth->visit = one->visit;
    birth->late &= note_cycle(one, birth);
    return true;
}

bool cm_purposes_inherit(cm_purposes *p, uint32_t stack, int64_t size, uint32_t count)
{
    cm_birth birth = {.turn = 1, .count = count, .size = size};
    if (!cm_purposes_born(p, stack, &birth))
        return false;
    cm_purpose *one = &p->of[stack];
    size_t largest = 0;
    for (size_t i = 0; i < one->sizes; i++) {
        if (one->size[i] == size)
            return true;
        if (one->size[i] > one->size[largest])
            largest = i;
    }
    if (size < one->size[largest])
        one->size[largest] = size;
    return true;
}

/* --- carried over to the next iteration --------------------------------------------------- */

bool cm_purposes_wait(cm_purposes *p, cm_attribution *attribution, uint32_t stack,
                      uint32_t boundary, bool call)
{
    cm_purpose *one = &p->of[stack];
    bool late = boundary == CM_STACK_NONE;
    if (one->waiting || stack < CM_STACK_FIRST ||
        (!late && !call && cm_attribution_order(attribution, boundary, stack) >= 0))
        return true;
    if (!cm_grow((void **)&p->wait, &p->wait_capacity, p->waits + 1, sizeof *p->wait))
        return false;
    one->waiting = true;
    p->wait[p->waits++] = (cm_purpose_wait){stack, boundary, call};
    return true;
}

/* Whether the call with this stack has a batch of its own: made before it, or of a loader. */
static bool has_batch(const cm_purposes *p, const cm_attribution *attribution, uint32_t stack)
{
    bool made = p->fetched;
    for (size_t i = 0; i < p->waits && !made; i++)
        made = p->wait[i].call && cm_attribution_order(attribution, p->wait[i].stack, stack) < 0;
    return made;
}

void cm_purposes_forward(cm_purposes *p, cm_attribution *attribution, uint32_t stack)
{
    bool batch = p->waits > 0 && has_batch(p, attribution, stack);
    for (size_t i = 0; i < p->waits; i++) {
        const cm_purpose_wait *w = &p->wait[i];
        cm_purpose *one = &p->of[w->stack];
        one->waiting = false;
        if (w->boundary == CM_STACK_NONE)
            one->given += cm_attribution_in_module(attribution, stack) &&
                                  !cm_attribution_shares_line(attribution, w->stack, p->temporary)
                              ? 1
                              : -1;
        else if (w->call)
            one->results +=
                batch && cm_attribution_order(attribution, stack, w->stack) < 0 ? 1 : -1;
        else
            one->carried += cm_attribution_order(attribution, stack, w->boundary) < 0 ? 1 : -1;
    }
    p->waits = 0;
    p->fetched = false;
}

static const cm_purpose *find(const cm_purposes *p, uint32_t stack)
{
    return stack < p->capacity ? &p->of[stack] : NULL;
}

bool cm_purposes_carried(const cm_purposes *p, uint32_t stack)
{
    const cm_purpose *one = find(p, stack);
    return one != NULL && one->carried > 0;
}

bool cm_purposes_results(const cm_purposes *p, uint32_t stack)
{
    const cm_purpose *one = find(p, stack);
    return one != NULL && one->results > 0;
}

bool cm_purposes_given(const cm_purposes *p, uint32_t stack)
{
    const cm_purpose *one = find(p, stack);
    return one != NULL && one->given > 0;
}

uint32_t cm_purposes_since(const cm_purposes *p, uint32_t stack, uint32_t visit)
{
    const cm_purpose *one = find(p, stack);
    return one != NULL ? one->visit - visit : 0;
}

bool cm_purposes_repeats(const cm_purposes *p, uint32_t stack)
{
    const cm_purpose *one = find(p, stack);
    return one != NULL && one->sizes <= 2;
}

static bool is_scratch(const cm_purpose *one, int64_t size, cm_category category)
{
    return category == CM_CATEGORY_TEMPORARY && size < one->largest / CM_PURPOSE_SMALL;
}

void cm_purposes_vote(cm_purposes *p, uint32_t stack, int64_t size, cm_category category,
                      uint32_t count)
{
    if (category == CM_CATEGORY_TEMPORARY)
        p->temporary = stack;
    if (stack < p->capacity && is_scratch(&p->of[stack], size, category))
        return;
    for (size_t i = 0; i < CM_PURPOSE_VOTES && stack < p->capacity; i++)
        if (voted[i] == category)
            p->of[stack].votes[i] += count;
}

bool cm_purposes_parameter(cm_purposes *p, int64_t size)
{
    if (p->size_count > 0 && p->size[p->size_count - 1] == size)
        return true;
    if (!cm_grow((void **)&p->size, &p->size_capacity, p->size_count + 1, sizeof *p->size))
        return false;
    p->size[p->size_count++] = size;
    return true;
}

void cm_purposes_named(cm_purposes *p, uint32_t stack, bool parameter)
{
    if (stack < p->capacity)
        p->of[stack].named += parameter ? 1 : -1;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* How many different sizes parameters have, three for more. */
static uint32_t different_sizes(const cm_purposes *p)
{
    uint32_t found = p->size_count > 0;
    for (size_t i = 1; i < p->size_count && found < 3; i++)
        found += p->size[i] != p->size[i - 1];
    return found;
}

/* A batch of two tensors may have sizes of parameters by accident. */
static bool has_sizes_of_parameters(const cm_purposes *p, const cm_purpose *one, uint32_t least)
{
    if (p->size_count == 0 || one->most < least)
        return false;
    for (size_t i = 0; i < one->sizes; i++)
        if (bsearch(&one->size[i], p->size, p->size_count, sizeof *p->size, compare) == NULL)
            return false;
    return one->sizes > 1;
}

static bool keeps(const cm_purpose *one)
{
    uint64_t all = 0, kept = 0;
    for (size_t i = 0; i < CM_PURPOSE_VOTES; i++) {
        all += one->votes[i];
        kept += voted[i] == CM_CATEGORY_KEPT ? one->votes[i] : 0;
    }
    return kept * 2 > all;
}

void cm_purposes_end(cm_purposes *p)
{
    if (p->size_count > 0)
        qsort(p->size, p->size_count, sizeof *p->size, compare);
    uint32_t least = different_sizes(p);
    for (size_t i = 0; i < p->capacity; i++) {
        p->of[i].copies = has_sizes_of_parameters(p, &p->of[i], least);
        p->of[i].keeps = keeps(&p->of[i]);
    }
}

static cm_category most_votes(const cm_purpose *one, cm_category otherwise)
{
    uint32_t most = 0;
    for (size_t i = 0; i < CM_PURPOSE_VOTES; i++)
        if (one->votes[i] > most) {
            most = one->votes[i];
            otherwise = voted[i];
        }
    return otherwise;
}

cm_category cm_purposes_decide(const cm_purposes *p, uint32_t stack, int64_t size, cm_category own,
                               bool open)
{
    const cm_purpose *one = find(p, stack);
    bool voting = open || own == CM_CATEGORY_INPUT || own == CM_CATEGORY_ACTIVATION ||
                  own == CM_CATEGORY_TEMPORARY;
    if (one != NULL && one->named != 0 &&
        (own == CM_CATEGORY_UNKNOWN || own == CM_CATEGORY_INPUT || own == CM_CATEGORY_KEPT))
        return one->named > 0 ? CM_CATEGORY_PARAMETER : CM_CATEGORY_BUFFER;
    if (one == NULL || !voting || (!open && is_scratch(one, size, own)))
        return own;
    if (one->keeps || (one->copies && (open || own == CM_CATEGORY_INPUT)))
        return CM_CATEGORY_KEPT;
    cm_category most = open ? most_votes(one, own) : own;
    bool alive = own == CM_CATEGORY_UNKNOWN && most == CM_CATEGORY_TEMPORARY;
    return alive ? own : most; /* others died early, this one did not */
}
