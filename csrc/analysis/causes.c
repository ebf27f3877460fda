#include "causes.h"

#include <math.h>
#include <stdlib.h>

#include "../base/grow.h"

/* The most that two growing sets may differ, in steps: one may be computed from the other's
 * previous step. */
#define FOLLOWS_STEPS 1.5
/* A lead of one step is more than this; noise is less. */
#define AHEAD_STEPS 0.3

typedef struct causes {
    cm_verdicts *verdicts;
    cm_stack_classes *classes;
    cm_analysis *out;
    const cm_analysis_options *options;
} causes;

/* --- comparing ----------------------------------------------------------------------------- */

/* Whether enough steps of birth of `of` are also steps of birth of `other`. */
static bool lies_within(const cm_verdict_row *of, const cm_verdict_row *other)
{
    uint64_t shared = 0, all = 0;
    for (size_t i = 0; i < CM_GROWTH_BUCKETS; i++) {
        shared += of->born[i] < other->born[i] ? of->born[i] : other->born[i];
        all += of->born[i];
    }
    return all > 0 && shared * 100 >= all * CM_CAUSE_STEPS_PERCENT;
}

static bool born_together(const cm_verdict_row *a, const cm_verdict_row *b)
{
    return lies_within(a, b) && lies_within(b, a);
}

static bool is_sure(const cm_verdict_row *row)
{
    return row->leak.reason == CM_SUSPECT_NOT;
}

/* Rows explained by few births, an end or garbage have no cause. */
static bool may_stand_under(const cm_verdict_row *row, const cm_verdict_row *cause)
{
    cm_suspect_reason why = row->leak.reason;
    bool grows = why != CM_SUSPECT_FEW && why != CM_SUSPECT_STOPPED && why != CM_SUSPECT_GARBAGE;
    return row != cause && row->under == 0 && cause->under == 0 &&
           row->leak.loop == cause->leak.loop && grows && (is_sure(cause) || !is_sure(row));
}

/* --- rows of one line ---------------------------------------------------------------------- */

/* Gradients are charged to their forward's line, and others hold them than its outputs. */
static bool is_one_with(const cm_verdict_row *a, const cm_verdict_row *b)
{
    const cm_leak *x = &a->leak, *y = &b->leak;
    if (x->kind != y->kind || x->signature != y->signature || x->loop != y->loop ||
        x->device != y->device || x->reason != y->reason || x->cycle != y->cycle ||
        x->backward != y->backward || a->line != b->line)
        return false;
    return x->signature == CM_LEAK_GROWING || born_together(a, b);
}

static int by_bytes(const void *left, const void *right)
{
    const cm_leak_part *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static void join_rows(cm_verdict_row *into, const cm_verdict_row *from)
{
    cm_leak *a = &into->leak;
    const cm_leak *b = &from->leak;
    if (b->bytes > a->bytes) {
        into->first_live = from->first_live;
        a->stack = b->stack;
        a->retained_stack = b->retained_stack;
    }
    a->part_count += b->part_count;
    a->bytes += b->bytes;
    a->count += b->count;
    a->bytes_per_step += b->bytes_per_step;
    a->count_per_step += b->count_per_step;
    if (b->first_step < a->first_step)
        a->first_step = b->first_step;
    if (b->last_step > a->last_step)
        a->last_step = b->last_step;
    if (b->confidence < a->confidence)
        a->confidence = b->confidence;
    if (from->first_position < into->first_position)
        into->first_position = from->first_position;
}

/* Moves the parts of each joined row next to each other: row i became row where[i]. */
static bool join_parts(cm_verdicts *v, const cm_verdict_row *old, size_t olds, const size_t *where)
{
    cm_leak_part *part = malloc((v->parts + 1) * sizeof *part);
    size_t first = 0;
    if (part == NULL)
        return false;
    for (size_t k = 0; k < v->rows; k++) {
        v->row[k].leak.first_part = first;
        first += v->row[k].leak.part_count;
        v->row[k].leak.part_count = 0;
    }
    for (size_t i = 0; i < olds; i++) {
        cm_leak *into = &v->row[where[i]].leak;
        for (size_t n = 0; n < old[i].leak.part_count; n++)
            part[into->first_part + into->part_count++] = v->part[old[i].leak.first_part + n];
    }
    for (size_t k = 0; k < v->rows; k++)
        cm_sort(&part[v->row[k].leak.first_part], v->row[k].leak.part_count, sizeof *part,
                by_bytes);
    free(v->part);
    v->part = part;
    v->part_capacity = v->parts + 1;
    return true;
}

static bool join_lines(cm_verdicts *v)
{
    size_t olds = v->rows, kept = 0;
    cm_verdict_row *old = malloc((olds + 1) * sizeof *old);
    size_t *where = malloc((olds + 1) * sizeof *where);
    bool fine = old != NULL && where != NULL;
    for (size_t i = 0; fine && i < olds; i++) {
        size_t k = 0;
        old[i] = v->row[i];
        while (k < kept && !is_one_with(&v->row[k], &old[i]))
            k++;
        where[i] = k;
        if (k < kept)
            join_rows(&v->row[k], &old[i]);
        else
            v->row[kept++] = old[i];
    }
    v->rows = fine ? kept : olds;
    fine = fine && join_parts(v, old, olds, where);
    free(old);
    free(where);
    return fine;
}

/* --- causes -------------------------------------------------------------------------------- */

static void put_under(causes *c, cm_verdict_row *row, const cm_verdict_row *cause,
                      cm_leak_relation relation)
{
    row->under = (size_t)(cause - c->verdicts->row) + 1;
    row->leak.relation = relation;
}

/* Whether that line made a node of this row that holds such bytes: any may keep a scalar. */
static bool has_line(causes *c, const cm_verdict_row *nodes, uint32_t line, bool scalar,
                     bool *found)
{
    const cm_leak *leak = &nodes->leak;
    *found = false;
    for (size_t i = 0; i < leak->part_count && !*found; i++) {
        const cm_leak_part *part = &c->verdicts->part[leak->first_part + i];
        uint32_t class;
        if (!scalar && !part->unrun)
            continue;
        if (!cm_stack_class_of(c->classes, part->stack, &class))
            return false;
        *found = cm_stack_class_line(c->classes, class) == line;
    }
    return true;
}

static bool is_scalar(const cm_leak *leak)
{
    return leak->bytes <= (int64_t)leak->count * CM_CAUSE_SCALAR_BYTES;
}

/* Finds what the nodes of a kept graph hold: first by line, then by steps only. The latter may be
 * another leak, so it may not exceed the former. */
static bool find_retained(causes *c, const cm_verdict_row *nodes)
{
    double held = nodes->leak.bytes_per_step;
    for (int only_steps = 0; only_steps < 2; only_steps++) {
        for (size_t i = 0; i < c->verdicts->rows; i++) {
            cm_verdict_row *row = &c->verdicts->row[i];
            bool made_there;
            if (row->leak.kind != CM_LEAK_BYTES || row->leak.signature != CM_LEAK_SURVIVORS ||
                !may_stand_under(row, nodes) || !lies_within(row, nodes))
                continue;
            if (!has_line(c, nodes, row->line, is_scalar(&row->leak), &made_there))
                return false;
            made_there |= row->line == nodes->line;
            if (!only_steps && made_there) {
                put_under(c, row, nodes, CM_LEAK_RETAINED);
                held += row->leak.bytes_per_step;
            } else if (only_steps && nodes->holds_inputs && lies_within(nodes, row) &&
                       row->leak.bytes_per_step <= held) {
                put_under(c, row, nodes, CM_LEAK_SAME_STEPS);
            }
        }
    }
    return true;
}

/* Bytes, in multiples of what a step adds. */
static double steps_worth(const cm_leak *leak, int64_t bytes)
{
    return leak->bytes_per_step > 0 ? (double)bytes / leak->bytes_per_step : 0;
}

static bool is_cause_of(const cm_verdict_row *cause, const cm_verdict_row *row)
{
    double apart =
        steps_worth(&cause->leak, cause->leak.bytes) - steps_worth(&row->leak, row->leak.bytes);
    if (cause->leak.kind != CM_LEAK_BYTES || !may_stand_under(row, cause) ||
        fabs(apart) > FOLLOWS_STEPS ||
        row->leak.bytes_per_step > cause->leak.bytes_per_step * CM_CAUSE_RATE_PERCENT / 100)
        return false;
    if (cause->leak.signature == CM_LEAK_SURVIVORS)
        return true; /* torch.cat(kept): the list is not computed from it */
    /* Compare their first bytes: at a boundary inside the pass both may be equal. */
    double ahead =
        steps_worth(&cause->leak, cause->first_live) - steps_worth(&row->leak, row->first_live);
    return ahead > AHEAD_STEPS ||
           (ahead >= -AHEAD_STEPS && cause->first_position < row->first_position);
}

/* The best candidate that a growing set may be computed from. */
static cm_verdict_row *cause_of(causes *c, const cm_verdict_row *row)
{
    cm_verdict_row *best = NULL;
    for (size_t i = 0; i < c->verdicts->rows; i++) {
        cm_verdict_row *other = &c->verdicts->row[i];
        if (is_cause_of(other, row) && (best == NULL || is_cause_of(other, best)))
            best = other;
    }
    return best;
}

static bool find_causes(causes *c)
{
    cm_verdicts *v = c->verdicts;
    for (size_t i = 0; i < v->rows; i++)
        if (v->row[i].leak.kind == CM_LEAK_NODES && !find_retained(c, &v->row[i]))
            return false;
    /* Compare all first, then move: a whole chain stands under its head. */
    for (size_t i = 0; i < v->rows; i++) {
        cm_verdict_row *row = &v->row[i], *cause;
        if (row->leak.signature != CM_LEAK_GROWING || row->under != 0)
            continue;
        bool has_followers = false;
        for (size_t k = 0; k < v->rows; k++)
            has_followers |= v->row[k].under == i + 1;
        cause = has_followers ? NULL : cause_of(c, row);
        if (cause != NULL)
            put_under(c, row, cause, CM_LEAK_FOLLOWS);
    }
    return true;
}

/* --- the result ---------------------------------------------------------------------------- */

static bool are_negligible(const causes *c, const cm_leak *leak, double bytes_per_step,
                           double bytes)
{
    if (c->options->has_min_rate)
        return bytes_per_step < c->options->min_rate;
    if (leak->kind == CM_LEAK_NODES || bytes_per_step >= CM_NEGLIGIBLE_RATE)
        return false;
    int64_t peak = leak->device < c->out->device_count ? c->out->device[leak->device].peak : 0;
    return bytes * 100 < (double)peak * CM_NEGLIGIBLE_SHARE;
}

static bool is_negligible(const causes *c, const cm_leak *leak)
{
    return are_negligible(c, leak, leak->total_bytes_per_step, (double)leak->bytes);
}

/* Whether it is negligible, also together with all other negligible ones of its loop and device. */
static bool adds_nothing(const causes *c, const cm_leak *leak)
{
    double bytes_per_step = 0, bytes = 0;
    for (size_t i = 0; i < c->verdicts->rows; i++) {
        const cm_leak *other = &c->verdicts->row[i].leak;
        if (c->verdicts->row[i].under != 0 || other->loop != leak->loop ||
            other->device != leak->device || !is_negligible(c, other))
            continue;
        bytes_per_step += other->total_bytes_per_step;
        bytes += (double)other->bytes;
    }
    return is_negligible(c, leak) && are_negligible(c, leak, bytes_per_step, bytes);
}

static int by_rate(const void *left, const void *right)
{
    const cm_leak *a = left, *b = right;
    if (a->total_bytes_per_step != b->total_bytes_per_step)
        return a->total_bytes_per_step < b->total_bytes_per_step ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->loop != b->loop)
        return a->loop < b->loop ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static void sort(cm_leak *leak, size_t count)
{
    cm_sort(leak, count, sizeof *leak, by_rate);
}

/* Appends the rows under row i to out->kept. */
static void take_kept(causes *c, size_t i)
{
    cm_verdicts *v = c->verdicts;
    cm_leak *leak = &v->row[i].leak;
    leak->first_kept = c->out->kept_count;
    leak->total_bytes_per_step = leak->bytes_per_step;
    for (size_t k = 0; k < v->rows; k++) {
        cm_leak *under = &v->row[k].leak;
        if (v->row[k].under != i + 1)
            continue;
        under->total_bytes_per_step = under->bytes_per_step;
        leak->total_bytes_per_step += under->bytes_per_step;
        c->out->kept[c->out->kept_count++] = *under;
    }
    leak->kept_count = c->out->kept_count - leak->first_kept;
    sort(&c->out->kept[leak->first_kept], leak->kept_count);
}

static bool share_out(causes *c)
{
    cm_verdicts *v = c->verdicts;
    cm_analysis *out = c->out;
    out->leaks = malloc((v->rows + 1) * sizeof *out->leaks);
    out->suspects = malloc((v->rows + 1) * sizeof *out->suspects);
    out->kept = malloc((v->rows + 1) * sizeof *out->kept);
    if (out->leaks == NULL || out->suspects == NULL || out->kept == NULL)
        return false;
    for (size_t i = 0; i < v->rows; i++)
        if (v->row[i].under == 0)
            take_kept(c, i);
    for (size_t i = 0; i < v->rows; i++) {
        cm_leak *leak = &v->row[i].leak;
        if (v->row[i].under != 0)
            continue;
        if (adds_nothing(c, leak)) {
            leak->reason = CM_SUSPECT_NEGLIGIBLE;
            leak->confidence = CM_LEAK_LOW;
        }
        if (leak->reason == CM_SUSPECT_NOT)
            out->leaks[out->leak_count++] = *leak;
        else
            out->suspects[out->suspect_count++] = *leak;
    }
    sort(out->leaks, out->leak_count);
    sort(out->suspects, out->suspect_count);
    out->leak_parts = v->part;
    v->part = NULL;
    v->parts = v->part_capacity = 0;
    return true;
}

bool cm_causes_find(cm_verdicts *verdicts, cm_stack_classes *classes,
                    const cm_analysis_options *options, cm_analysis *out)
{
    causes c = {.verdicts = verdicts, .classes = classes, .out = out, .options = options};
    return join_lines(verdicts) && find_causes(&c) && share_out(&c);
}
