#include "growth.h"

enum { SHAPES_SEEN = 256 };

/* Some births of a case, and their distribution over the span. */
typedef struct spread {
    const cm_growth_birth *birth;
    size_t count;
    uint32_t from, steps; /* the span is from .. steps - 1 */
    uint32_t last;
    uint32_t gap;      /* the widest between two of them */
    uint32_t gap_ends; /* as `gap`, with the distances to both ends of the span */
    size_t third[3];   /* number in each third of the span */
    size_t widest;     /* the first after the widest gap */
} spread;

static bool at_least(double part, double percent, double whole)
{
    return part * 100 >= percent * whole;
}

uint32_t cm_growth_warm(uint32_t steps)
{
    uint64_t share = ((uint64_t)steps * CM_GROWTH_WARM_PERCENT + 99) / 100;
    return share < CM_GROWTH_WARM_STEPS ? CM_GROWTH_WARM_STEPS : (uint32_t)share;
}

void cm_growth_die(cm_growth_deaths *deaths, uint32_t steps, uint32_t birth, uint32_t passed,
                   int64_t bytes)
{
    uint32_t width = cm_growth_width(steps);
    if (deaths->count == 0)
        deaths->first = passed;
    deaths->count++;
    deaths->last = passed;
    if (birth > deaths->youngest)
        deaths->youngest = birth;
    deaths->bytes += (double)bytes;
    if (birth >= deaths->first)
        deaths->born_since += (double)bytes;
    deaths->alive[birth / width] += (double)bytes;
    deaths->alive[passed / width] -= (double)bytes;
    deaths->blocks[birth / width]++;
    deaths->blocks[passed / width]--;
}

void cm_growth_add_deaths(cm_growth_deaths *into, const cm_growth_deaths *from)
{
    if (from->count == 0)
        return;
    if (into->count == 0 || from->first < into->first)
        into->first = from->first;
    if (from->last > into->last)
        into->last = from->last;
    if (from->youngest > into->youngest)
        into->youngest = from->youngest;
    into->count += from->count;
    into->bytes += from->bytes;
    into->born_since += from->born_since;
    for (size_t i = 0; i <= CM_GROWTH_BUCKETS; i++) {
        into->alive[i] += from->alive[i];
        into->blocks[i] += from->blocks[i];
    }
}

/* --- births -------------------------------------------------------------------------------- */

static spread measure(const cm_growth_birth *birth, size_t count, uint32_t from, uint32_t steps)
{
    spread s = {.birth = birth, .count = count, .from = from, .steps = steps};
    uint32_t before = from;
    for (size_t i = 0; i < count; i++) {
        uint32_t gap = birth[i].step - before;
        if (gap > s.gap_ends)
            s.gap_ends = gap;
        if (i > 0 && gap > s.gap) {
            s.gap = gap;
            s.widest = i;
        }
        before = birth[i].step;
        s.third[(uint64_t)(before - from) * 3 / (steps - from)]++;
    }
    s.last = before;
    if (steps - 1 - before > s.gap_ends)
        s.gap_ends = steps - 1 - before;
    return s;
}

static bool has_rhythm(const spread *s)
{
    double mean = (double)(s->last - s->birth[0].step) / (double)(s->count - 1);
    return s->gap <= 2 * mean + 1;
}

static bool in_all_thirds(const spread *s)
{
    for (int i = 0; i < 3; i++)
        if (!at_least((double)s->third[i] + 1, CM_GROWTH_THIRD_PERCENT, (double)s->count))
            return false;
    return true;
}

/* Whether all births have different sizes. */
static bool all_shapes_differ(const cm_growth_birth *birth, size_t count)
{
    if (count > SHAPES_SEEN)
        return false;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            if (birth[i].bytes == birth[j].bytes)
                return false;
    return true;
}

/* How many births prove something: where blocks die in the step after their own, the last step's do
 * not. */
static size_t proving(const cm_growth_case *c)
{
    return c->births -
           (c->fleeting && c->births > 0 && c->birth[c->births - 1].step == c->steps - 1);
}

/* Whether births become rarer as in a cache: over the whole loop, warm-up included. */
static bool is_filling(const cm_growth_case *c)
{
    uint32_t warm = cm_growth_warm(c->steps), third = c->steps / 3;
    size_t count = proving(c), first = 0, last = 0, dense = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t step = c->birth[i].step;
        dense += step < warm;
        first += step < third;
        last += step >= c->steps - third;
    }
    if (first < CM_GROWTH_FILLING || last >= first)
        return false;
    if (last * CM_GROWTH_FILL_FACTOR <= first)
        return true;
    double density = (double)last / third;
    if (last * CM_GROWTH_DENSE_FACTOR <= first &&
        (double)dense / warm >= density * CM_GROWTH_DENSE_FACTOR)
        return true;
    return !at_least((double)last, CM_GROWTH_SHAPES_PERCENT, (double)first) &&
           all_shapes_differ(c->birth, count);
}

static void rate_by_births(const spread *s, cm_growth_result *out)
{
    double bytes = 0, count = 0;
    for (size_t i = 1; i < s->count; i++) {
        bytes += (double)s->birth[i].bytes;
        count += (double)s->birth[i].count;
    }
    double span = (double)(s->last - s->birth[0].step);
    out->bytes_per_step = bytes / span;
    out->count_per_step = count / span;
}

static uint64_t blocks(const spread *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->birth[i].count;
    return sum;
}

/* --- evictions ----------------------------------------------------------------------------- */

/* Bytes of old blocks alive in each bucket: survivors and those that died later. */
static void old_alive(const cm_growth_case *c, double alive[CM_GROWTH_BUCKETS])
{
    uint32_t width = cm_growth_width(c->steps);
    double died = 0, survived = 0;
    size_t next = 0, births = proving(c);
    for (uint32_t b = 0; b < CM_GROWTH_BUCKETS; b++) {
        died += c->deaths->alive[b];
        while (next < births && c->birth[next].step / width <= b)
            survived += (double)c->birth[next++].bytes;
        alive[b] = died + survived;
    }
}

static void envelope(double *value, uint32_t count)
{
    for (uint32_t b = count - 1; b-- > 0;)
        if (value[b] > value[b + 1])
            value[b] = value[b + 1];
}

/* Whether an envelope rises in every third between two of its points, by a fifth of the whole. One
 * average rise may be missing, because a third can just miss one. */
static bool rises_in_thirds(const double *value, uint32_t from, uint32_t to, double slack)
{
    double whole = value[to] - value[from], before = value[from];
    for (uint32_t i = 1; i <= 3; i++) {
        double now = value[from + (uint32_t)((uint64_t)(to - from) * i / 3)];
        if (!at_least(now - before + slack, CM_GROWTH_THIRD_PERCENT, whole))
            return false;
        before = now;
    }
    return true;
}

/* Whether a group with evictions still grows. */
static bool grows_despite_evictions(const cm_growth_case *c, const spread *s, cm_growth_result *out)
{
    double alive[CM_GROWTH_BUCKETS], total = 0, born_since = c->deaths->born_since;
    uint32_t width = cm_growth_width(c->steps);
    uint32_t from = (s->from - 1) / width, to = (c->steps - 1) / width;
    for (size_t i = 0; i < c->births; i++)
        if (c->birth[i].step >= c->deaths->first)
            born_since += (double)c->birth[i].bytes;
    if (at_least(c->deaths->bytes, CM_GROWTH_FULL_PERCENT, born_since))
        return false;
    for (size_t i = 0; i < s->count; i++)
        total += (double)s->birth[i].bytes;
    old_alive(c, alive);
    envelope(alive, to + 1);
    double whole = alive[to] - alive[from], slack = total / (double)s->count;
    uint32_t n = to - from;
    if (n < 3 || whole <= 0 || !rises_in_thirds(alive, from, to, slack))
        return false;
    double first = alive[from + n / 3] - alive[from];
    double last = alive[to] - alive[from + (uint32_t)((uint64_t)n * 2 / 3)];
    if (!at_least(last + slack, CM_GROWTH_FLAT_PERCENT, first))
        return false;
    uint64_t count = blocks(s);
    out->bytes_per_step = whole / ((double)n * width);
    out->count_per_step = out->bytes_per_step / (total / (double)count);
    return true;
}

/* --- epochs -------------------------------------------------------------------------------- */

/* A list kept until its epoch ends is no leak, and one epoch proves nothing. Whole epochs without
 * the group do: a per-epoch list would exist in them, too. */
static bool is_epoch_unclear(const cm_growth_case *c, size_t before, bool none_before)
{
    if (c->epochs == 0 || c->any_epoch || before >= 2)
        return false;
    return !none_before || c->epochs <= CM_GROWTH_EPOCHS_WITHOUT;
}

static void doubt_by_epochs(const cm_growth_case *c, const spread *s, cm_growth_result *out)
{
    if (c->epochs == 0)
        return;
    uint32_t last = c->epoch[c->epochs - 1];
    size_t before = 0;
    while (before < s->count && s->birth[before].step < last)
        before++;
    bool none_before = c->birth[0].step >= last + CM_GROWTH_EPOCH_ONSET &&
                       (c->deaths == NULL || c->deaths->count == 0);
    if (is_epoch_unclear(c, before, none_before))
        out->verdict = CM_GROWTH_EPOCH;
}

/* --- a queue that falls behind ------------------------------------------------------------- */

/* Old blocks alive in each bucket, by number: those that died later, and survivors. */
static void old_count(const cm_growth_case *c, double alive[CM_GROWTH_BUCKETS])
{
    uint32_t width = cm_growth_width(c->steps);
    double count = 0;
    size_t next = 0, births = proving(c);
    for (uint32_t b = 0; b < CM_GROWTH_BUCKETS; b++) {
        count += c->deaths->blocks[b];
        while (next < births && c->birth[next].step / width <= b)
            count += (double)c->birth[next++].count;
        alive[b] = count;
    }
}

/* Whether the number of blocks rises straight. A balanced queue drifts by chance, but not so; one
 * with a bound has as many in the end as before, whatever their sizes are. */
static bool rises_straight(const cm_growth_case *c, const spread *s)
{
    double alive[CM_GROWTH_BUCKETS], slack = (double)blocks(s) / (double)s->count;
    uint32_t width = cm_growth_width(c->steps);
    uint32_t from = (s->from - 1) / width, to = (c->steps - 1 - c->fleeting) / width;
    if (to < from + 3)
        return false;
    old_count(c, alive);
    double whole = alive[to] - alive[from], slope = whole / (double)(to - from);
    slack += whole * CM_GROWTH_STRAIGHT_PERCENT / 100;
    for (uint32_t b = from; b <= to; b++) {
        double off = alive[b] - alive[from] - slope * (double)(b - from);
        if (off > slack || off < -slack)
            return false;
    }
    return whole >= CM_GROWTH_BIRTHS * (double)blocks(s) / (double)s->count;
}

static cm_growth_result judge_queue(const cm_growth_case *c, const spread *all)
{
    cm_growth_result out = {0};
    uint32_t span = c->steps - all->from;
    if (all->count < CM_GROWTH_BIRTHS || c->steps - 1 - all->last > span / 3 ||
        !rises_straight(c, all) || !grows_despite_evictions(c, all, &out))
        return out;
    out.evidence = blocks(all);
    out.verdict = CM_GROWTH_LEAK;
    doubt_by_epochs(c, all, &out);
    return out;
}

/* --- survivors ----------------------------------------------------------------------------- */

static cm_growth_result judge_late(const cm_growth_case *c, const spread *all, size_t start)
{
    cm_growth_result out = {0};
    uint32_t first = all->birth[start].step, span = c->steps - first;
    size_t count = all->count - start;
    bool evicted = c->deaths != NULL && c->deaths->count > 0;
    if (count < CM_GROWTH_HINT || span < 2 || (evicted && c->deaths->last > first))
        return out;
    spread s = measure(all->birth + start, count, first, c->steps);
    if (s.gap_ends > span / 2 || c->steps - 1 - s.last > span / 3)
        return out;
    double bytes = 0, before = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (double)s.birth[i].bytes;
    for (uint32_t b = 0; evicted && b < first / cm_growth_width(c->steps); b++) {
        before += c->deaths->alive[b];
        if (before * 2 >= bytes)
            return out; /* it held as much before, and freed it */
    }
    rate_by_births(&s, &out);
    out.evidence = blocks(&s);
    bool brief =
        span < CM_GROWTH_LATE_STEPS || !at_least(span, CM_GROWTH_LATE_PERCENT, (double)c->steps);
    if (count < CM_GROWTH_BIRTHS || brief) {
        if (!evicted && span >= CM_GROWTH_BIRTHS)
            out.verdict = CM_GROWTH_FEW;
        return out;
    }
    if (!in_all_thirds(&s))
        return out;
    out.verdict = CM_GROWTH_LEAK;
    doubt_by_epochs(c, &s, &out);
    return out;
}

static cm_growth_result judge_all_ages(const cm_growth_case *c, const spread *s, bool evicts)
{
    cm_growth_result out = {0};
    uint32_t span = c->steps - s->from;
    rate_by_births(s, &out);
    out.evidence = blocks(s);
    if (s->gap > span / 2)
        return out;
    if ((uint64_t)(s->last - s->from) * 3 < (uint64_t)span * 2 || s->gap_ends > span / 2) {
        if (s->count >= CM_GROWTH_BIRTHS && !evicts)
            out.verdict = CM_GROWTH_STOPPED;
        return out;
    }
    if (s->count < CM_GROWTH_BIRTHS) {
        out.verdict = evicts ? CM_GROWTH_NOTHING : CM_GROWTH_FEW;
        return out;
    }
    if (evicts ? !grows_despite_evictions(c, s, &out) : !in_all_thirds(s))
        return out;
    if (!evicts && is_filling(c)) {
        out.verdict = CM_GROWTH_STOPPED;
        return out;
    }
    out.verdict = CM_GROWTH_LEAK;
    out.sure = !evicts && s->count >= CM_GROWTH_SURE && has_rhythm(s);
    doubt_by_epochs(c, s, &out);
    return out;
}

cm_growth_result cm_growth_survivors(const cm_growth_case *c)
{
    cm_growth_result out = {0};
    uint32_t warm = cm_growth_warm(c->steps);
    if (c->steps <= warm + CM_GROWTH_HINT)
        return out;
    size_t begin = 0, end = proving(c);
    while (begin < end && c->birth[begin].step < warm)
        begin++;
    if (end - begin < CM_GROWTH_HINT)
        return out;
    spread all = measure(c->birth + begin, end - begin, warm, c->steps);
    uint32_t span = c->steps - warm;
    bool early = (uint64_t)(all.birth[0].step - warm) * 3 < span;
    bool evicts = c->deaths != NULL && c->deaths->count > 0 && c->deaths->last > warm;
    size_t older = 0; /* than the youngest that was evicted: a queue has freed all of these */
    while (evicts && older < all.count && all.birth[older].step <= c->deaths->youngest)
        older++;
    if (evicts && older < CM_GROWTH_HINT) {
        out = judge_queue(c, &all);
        if (out.verdict != CM_GROWTH_NOTHING)
            return out;
    }
    if (early) {
        spread proven = all;
        if (evicts && older >= CM_GROWTH_HINT)
            proven = measure(all.birth, older, warm, c->steps);
        else if (evicts)
            proven.count = 0;
        if (proven.count > 0)
            out = judge_all_ages(c, &proven, evicts);
        if (out.verdict != CM_GROWTH_NOTHING)
            return out;
    }
    /* Births before the widest gap may have another cause. */
    return judge_late(c, &all, early ? all.widest : 0);
}

/* --- a live set that grows ----------------------------------------------------------------- */

static bool is_young(const cm_growth_case *c, uint32_t warm)
{
    uint32_t share = (c->steps - warm) / CM_GROWTH_YOUNG;
    uint32_t since = c->steps - (share > CM_GROWTH_OLD ? share : CM_GROWTH_OLD);
    double all = 0, young = 0;
    for (size_t i = 0; i < c->births; i++) {
        all += (double)c->birth[i].bytes;
        if (c->birth[i].step >= since)
            young += (double)c->birth[i].bytes;
    }
    return all > 0 && at_least(young, CM_GROWTH_YOUNG_PERCENT, all);
}

cm_growth_result cm_growth_rising(const cm_growth_case *c)
{
    cm_growth_result out = {0};
    uint32_t warm = cm_growth_warm(c->steps), width = cm_growth_width(c->steps);
    if (c->low == NULL || c->steps <= warm + CM_GROWTH_BIRTHS || !is_young(c, warm))
        return out;
    uint32_t begin = (warm + width - 1) / width, end = (c->steps - 1) / width;
    double value[CM_GROWTH_BUCKETS], highest = 0;
    for (uint32_t b = 0; b <= end; b++)
        value[b] = (double)c->low[b];
    envelope(value, end + 1);
    end -= (end - begin) / CM_GROWTH_TAIL; /* the last boundary's own peak is no rise */
    uint32_t onset = begin;
    while (onset < end && value[onset + 1] <= value[begin])
        onset++;
    if ((onset - begin) * 3 >= end - begin) {
        for (uint32_t b = 0; b < onset; b++)
            if ((double)c->low[b] - value[begin] > highest)
                highest = (double)c->low[b] - value[begin];
        uint32_t span = (end - onset) * width;
        if (span < CM_GROWTH_LATE_STEPS ||
            !at_least(span, CM_GROWTH_LATE_PERCENT, (double)c->steps) ||
            highest * 2 >= value[end] - value[begin])
            return out;
        begin = onset;
    }
    double whole = value[end] - value[begin];
    double noise = 0;
    uint64_t rises = 0;
    for (uint32_t b = begin + 1; b <= end; b++) {
        rises += value[b] > value[b - 1];
        noise += ((double)c->low[b] - value[b]) / (double)(end - begin);
    }
    if (rises < CM_GROWTH_BIRTHS || !at_least(whole, CM_GROWTH_RISE_PERCENT, value[end]) ||
        noise * 100 > whole * CM_GROWTH_NOISE_PERCENT ||
        !rises_in_thirds(value, begin, end, whole / (double)rises))
        return out;
    out.verdict = CM_GROWTH_LEAK;
    out.evidence = rises;
    out.bytes_per_step = whole / ((double)(end - begin) * width);
    if (c->epochs > 0) {
        uint32_t last = c->epoch[c->epochs - 1];
        double before = value[last / width] - value[begin];
        bool rose = c->epochs > 1 && at_least(before, CM_GROWTH_THIRD_PERCENT, whole);
        if (is_epoch_unclear(c, rose ? 2 : 0, begin * width >= last + CM_GROWTH_EPOCH_ONSET))
            out.verdict = CM_GROWTH_EPOCH;
    }
    return out;
}
