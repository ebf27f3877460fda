#include "verdict.h"

#include <stdlib.h>

#include "grow.h"

static const cm_suspect_reason reasons[] = {[CM_GROWTH_LEAK] = CM_SUSPECT_NOT,
                                            [CM_GROWTH_FEW] = CM_SUSPECT_FEW,
                                            [CM_GROWTH_STOPPED] = CM_SUSPECT_STOPPED,
                                            [CM_GROWTH_EPOCH] = CM_SUSPECT_EPOCH};

static bool grows(const cm_growth_result *r)
{
    return r->verdict == CM_GROWTH_LEAK || r->verdict == CM_GROWTH_EPOCH;
}

static void take(const cm_verdicts *v, const cm_growth_result *r, cm_leak_signature signature,
                 cm_leak *out)
{
    out->signature = signature;
    out->reason = reasons[r->verdict];
    out->bytes_per_step = r->bytes_per_step;
    out->count_per_step = r->count_per_step;
    out->confidence = r->sure ? CM_LEAK_HIGH : CM_LEAK_MEDIUM;
    if (out->reason == CM_SUSPECT_NOT && v->lost > 0 &&
        v->lost >= (r->evidence * CM_GROWTH_LOST_PERCENT + 99) / 100)
        out->reason = CM_SUSPECT_LOST;
}

/* A program that switches it off and collects by itself, every so many steps: what was made since
 * waits for the next time. What was older, and is there, that collection did not find. */
static bool waits_for_the_next(const cm_verdict_case *c)
{
    size_t older = 0;
    while (older < c->all_births && c->all[older].step + 1 < c->swept)
        older++;
    return c->swept > 0 && c->loop->steps - c->swept <= c->pause && older < CM_GROWTH_BIRTHS;
}

static bool nobody_collects(const cm_verdicts *v, const cm_verdict_case *c)
{
    uint32_t steps = c->loop->steps;
    return v->collector_disabled && (c->collected == 0 || c->collected < steps - steps / 3) &&
           !waits_for_the_next(c);
}

/* The level at the boundaries has garbage in it: where most of it was, it says nothing about what
 * is held. */
static bool mostly_garbage(const cm_verdict_case *c)
{
    double kept = 0, all = 0;
    for (size_t i = 0; i < c->kept.births; i++)
        kept += (double)c->kept.birth[i].bytes;
    for (size_t i = 0; i < c->all_births; i++)
        all += (double)c->all[i].bytes;
    return kept * 2 < all;
}

cm_verdict_class cm_verdict_judge(const cm_verdicts *v, const cm_verdict_case *given, cm_leak *out)
{
    cm_growth_case c = given->kept;
    c.steps = given->loop->steps;
    c.epoch = given->loop->epoch;
    c.epochs = given->loop->epochs;
    cm_verdict_class class = CM_VERDICT_KEPT;
    cm_growth_result old = cm_growth_survivors(&c), found = old;
    cm_leak_signature signature = CM_LEAK_SURVIVORS;
    if (!grows(&found) && !mostly_garbage(given)) {
        signature = CM_LEAK_GROWING;
        found = cm_growth_rising(&c);
    }
    if (!grows(&found)) {
        c.birth = given->all;
        c.births = given->all_births;
        signature = CM_LEAK_SURVIVORS;
        class = CM_VERDICT_GARBAGE;
        if (nobody_collects(v, given))
            c.deaths = NULL; /* an early collection was no eviction */
        found = c.births > 0 ? cm_growth_survivors(&c) : (cm_growth_result){0};
    }
    if (!grows(&found)) {
        class = old.verdict == CM_GROWTH_NOTHING ? CM_VERDICT_NOTHING : CM_VERDICT_HINT;
        signature = CM_LEAK_SURVIVORS;
        found = old;
    }
    take(v, &found, signature, out);
    if (class == CM_VERDICT_GARBAGE) {
        out->cycle = nobody_collects(v, given);
        if (!out->cycle)
            out->reason = CM_SUSPECT_GARBAGE;
    }
    if (out->reason != CM_SUSPECT_NOT)
        out->confidence = CM_LEAK_LOW;
    return class;
}

static int by_bytes(const void *left, const void *right)
{
    const cm_leak_part *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

bool cm_verdicts_add(cm_verdicts *v, const cm_leak *leak, cm_leak_part *part, size_t parts)
{
    bool suspect = leak->reason != CM_SUSPECT_NOT;
    cm_leak **list = suspect ? &v->suspect : &v->leak;
    size_t *count = suspect ? &v->suspects : &v->leaks;
    size_t *capacity = suspect ? &v->suspect_capacity : &v->leak_capacity;
    if (parts == 0)
        return true;
    if (!cm_grow((void **)list, capacity, *count + 1, sizeof **list) ||
        !cm_grow((void **)&v->part, &v->part_capacity, v->parts + parts, sizeof *v->part))
        return false;
    qsort(part, parts, sizeof *part, by_bytes);
    cm_leak *row = &(*list)[(*count)++];
    *row = *leak;
    row->first_part = v->parts;
    row->part_count = parts;
    row->stack = part[0].stack;
    for (size_t i = 0; i < parts; i++) {
        if (part[i].bytes == part[0].bytes && part[i].stack == leak->retained_stack)
            row->stack = part[i].stack;
        row->bytes += part[i].bytes;
        row->count += part[i].count;
        v->part[v->parts++] = part[i];
    }
    return true;
}

static int by_rate(const void *left, const void *right)
{
    const cm_leak *a = left, *b = right;
    if (a->bytes_per_step != b->bytes_per_step)
        return a->bytes_per_step < b->bytes_per_step ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->loop != b->loop)
        return a->loop < b->loop ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

void cm_verdicts_sort(cm_verdicts *v)
{
    if (v->leaks > 1)
        qsort(v->leak, v->leaks, sizeof *v->leak, by_rate);
    if (v->suspects > 1)
        qsort(v->suspect, v->suspects, sizeof *v->suspect, by_rate);
}

void cm_verdicts_clear(cm_verdicts *v)
{
    free(v->leak);
    free(v->suspect);
    free(v->part);
    *v = (cm_verdicts){0};
}
