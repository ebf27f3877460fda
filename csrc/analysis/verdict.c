#include "verdict.h"

#include <stdlib.h>

#include "../base/grow.h"

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

/* A program that disables the collector and collects by itself at intervals: new garbage waits for
 * its next collection. Older live blocks survived the last one. */
static bool waits_for_the_next(const cm_verdict_case *c)
{
    size_t older = 0;
    while (older < c->all_births && c->all[older].step + 1 < c->swept)
        older++;
    return c->swept > 0 && c->loop->steps - c->swept <= c->pause && older < CM_GROWTH_BIRTHS;
}

static bool is_never_collected(const cm_verdicts *v, const cm_verdict_case *c)
{
    uint32_t steps = c->loop->steps;
    return v->collector_disabled && (c->collected == 0 || c->collected < steps - steps / 3) &&
           !waits_for_the_next(c);
}

/* Whether the births that survived a full collection are a leak on their own. */
static bool was_a_leak_when_collected(const cm_verdict_case *given, const cm_growth_case *now)
{
    cm_growth_case then = *now;
    then.steps = given->collected;
    then.births = 0;
    while (then.births < now->births && now->birth[then.births].step < then.steps)
        then.births++;
    then.epochs = 0; /* judged over the whole loop */
    then.deaths = NULL;
    return then.births > 0 && cm_growth_survivors(&then).verdict == CM_GROWTH_LEAK;
}

/* Live bytes at the boundaries include garbage: if that is most of them, they prove nothing. */
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
        if (is_never_collected(v, given))
            c.deaths = NULL; /* an early collection is no eviction */
        found = c.births > 0 ? cm_growth_survivors(&c) : (cm_growth_result){0};
    }
    if (!grows(&found)) {
        class = old.verdict == CM_GROWTH_NOTHING ? CM_VERDICT_NOTHING : CM_VERDICT_HINT;
        signature = CM_LEAK_SURVIVORS;
        found = old;
    }
    take(v, &found, signature, out);
    if (class == CM_VERDICT_KEPT && signature == CM_LEAK_SURVIVORS &&
        out->reason == CM_SUSPECT_NOT && !given->proven && !was_a_leak_when_collected(given, &c))
        out->reason = CM_SUSPECT_UNCOLLECTED;
    if (class == CM_VERDICT_GARBAGE && !(given->late && given->named)) {
        out->cycle = is_never_collected(v, given);
        if (!out->cycle)
            out->reason = given->late ? CM_SUSPECT_LATE : CM_SUSPECT_GARBAGE;
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

bool cm_verdicts_add(cm_verdicts *v, const cm_verdict_row *given, cm_leak_part *part, size_t parts)
{
    if (parts == 0)
        return true;
    if (!cm_grow((void **)&v->row, &v->row_capacity, v->rows + 1, sizeof *v->row) ||
        !cm_grow((void **)&v->part, &v->part_capacity, v->parts + parts, sizeof *v->part))
        return false;
    cm_sort(part, parts, sizeof *part, by_bytes);
    cm_verdict_row *row = &v->row[v->rows++];
    *row = *given;
    row->leak.first_part = v->parts;
    row->leak.part_count = parts;
    row->leak.stack = part[0].stack;
    for (size_t i = 0; i < parts; i++) {
        if (part[i].bytes == part[0].bytes && part[i].stack == row->leak.retained_stack)
            row->leak.stack = part[i].stack;
        row->leak.bytes += part[i].bytes;
        row->leak.count += part[i].count;
        v->part[v->parts++] = part[i];
    }
    return true;
}

void cm_verdicts_clear(cm_verdicts *v)
{
    free(v->row);
    free(v->part);
    *v = (cm_verdicts){0};
}
