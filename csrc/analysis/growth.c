#include "growth.h"

/* All thresholds. Fixed on the first two thirds of tests/programs/leaks; see docs/evidence. */
enum {
    WARMUP_PERCENT = 15, /* optimizer state, caches, lazy libraries */
    WARMUP_MIN = 2,
    BIRTHS_MIN = 6,   /* fewer distinct steps: chance, or one thing per epoch */
    SUSPECT_MIN = 3,  /* fewer are not worth a word */
    LATE_STEPS = 8,   /* a shorter stretch has no past to judge by */
    RISE_FIFTH = 5,   /* each third has at least this part of the whole rise */
    SETTLING = 2,     /* the first third's rise over the last's: a set that fills up */
    SLOWING = 3,      /* births of the first third over those of the last: a cache that fills */
    SURE_BIRTHS = 10, /* distinct steps for high confidence */
    DROP_PART = 50    /* a level that fell by more than 1/50 is one that falls */
};

int64_t cm_growth_warmup(int64_t steps)
{
    int64_t share = (steps * WARMUP_PERCENT + 99) / 100;
    return share > WARMUP_MIN ? share : WARMUP_MIN;
}

size_t cm_growth_buckets(int64_t steps)
{
    return steps < CM_LEVELS ? (size_t)steps : CM_LEVELS;
}

size_t cm_growth_bucket(int64_t steps, int64_t step)
{
    return steps <= CM_LEVELS ? (size_t)step : (size_t)((double)step * CM_LEVELS / (double)steps);
}

static int64_t bucket_start(int64_t steps, size_t bucket)
{
    if (steps <= CM_LEVELS)
        return (int64_t)bucket;
    int64_t step = (int64_t)((double)bucket * (double)steps / CM_LEVELS);
    while (cm_growth_bucket(steps, step) < bucket)
        step++;
    return step;
}

/* What the survivors' births from a step on say. */
typedef struct ages {
    size_t births; /* distinct steps */
    int64_t first, last, gap;
    size_t early, late;       /* births in the first and in the last third since the first */
    int64_t rate_last, bytes; /* the last birth before the last step, what was born before it */
    uint64_t count;
} ages;

static ages look(const cm_growth *g, int64_t from)
{
    ages a = {.first = -1, .last = -1, .rate_last = -1};
    size_t begin = 0, end = g->births;
    while (begin < end && g->birth[begin].step < from)
        begin++;
    /* What was born in the last step may be of that step only: a variable that is not rebound yet.
     */
    if (end > begin + 2 && g->birth[end - 1].step == g->steps - 1)
        end--;
    for (size_t i = begin; i < g->births; i++) {
        int64_t step = g->birth[i].step;
        if (a.births++ == 0)
            a.first = step;
        else if (step - a.last > a.gap)
            a.gap = step - a.last;
        a.last = step;
        if (i + 1 < end) {
            a.bytes += g->birth[i].bytes;
            a.count += g->birth[i].count;
        } else if (i + 1 == end) {
            a.rate_last = step;
        }
    }
    double third = (double)(g->steps - a.first) / 3;
    for (size_t i = begin; i < g->births; i++) {
        if ((double)g->birth[i].step < (double)a.first + third)
            a.early++;
        if ((double)g->birth[i].step >= (double)g->steps - third)
            a.late++;
    }
    return a;
}

typedef struct rise {
    bool steady; /* in each third, in enough steps */
    bool falls;  /* the level itself fell somewhere */
    double per_step;
} rise;

/* The lower envelope of the level from a step on. */
static rise envelope(const cm_growth *g, int64_t from)
{
    rise r = {0};
    size_t count = cm_growth_buckets(g->steps);
    if (g->level == NULL || from >= g->steps)
        return r;
    size_t first = cm_growth_bucket(g->steps, from);
    if (first + BIRTHS_MIN >= count)
        return r;
    int64_t least[CM_LEVELS];
    least[count - 1] = g->level[count - 1];
    for (size_t i = count - 1; i-- > first;)
        least[i] = g->level[i] < least[i + 1] ? g->level[i] : least[i + 1];
    size_t rises = 0, span = count - 1 - first;
    for (size_t i = first + 1; i < count; i++) {
        rises += least[i] > least[i - 1];
        if (g->level[i] < g->level[i - 1] - g->level[i - 1] / DROP_PART)
            r.falls = true;
    }
    int64_t whole = least[count - 1] - least[first];
    r.per_step =
        (double)whole / (double)(bucket_start(g->steps, count - 1) - bucket_start(g->steps, first));
    r.steady = whole > 0 && rises >= BIRTHS_MIN;
    double part[3];
    for (size_t third = 0; third < 3; third++) {
        int64_t low = least[first + span * third / 3];
        part[third] = (double)(least[first + span * (third + 1) / 3] - low);
        r.steady = r.steady && part[third] * RISE_FIFTH >= (double)whole;
    }
    r.steady = r.steady && part[2] * SETTLING >= part[0];
    return r;
}

/* The step from which a level that began late rises: the last one at its value after warm-up. */
static int64_t onset(const cm_growth *g, int64_t warm)
{
    size_t count = cm_growth_buckets(g->steps), i = cm_growth_bucket(g->steps, warm);
    if (g->level == NULL || i >= count)
        return g->steps;
    int64_t base = g->level[i];
    while (i + 1 < count && g->level[i + 1] <= base)
        i++;
    return bucket_start(g->steps, i);
}

double cm_growth_factor(const cm_growth *g)
{
    size_t count = cm_growth_buckets(g->steps);
    int64_t warm = cm_growth_warmup(g->steps);
    if (g->level == NULL || warm >= g->steps)
        return 1;
    int64_t before = g->level[cm_growth_bucket(g->steps, warm + (g->steps - warm) / 3)];
    return (double)g->level[count - 1] / (double)(before > 0 ? before : 1);
}

static cm_verdict suspect(cm_verdict v, cm_suspect_reason reason)
{
    v.found = true;
    v.reason = reason;
    v.confidence = CM_LEAK_LOW;
    return v;
}

static cm_verdict leak(const cm_growth *g, cm_verdict v, bool sure)
{
    v.found = true;
    v.confidence = sure ? CM_LEAK_HIGH : CM_LEAK_MEDIUM;
    return g->epochs == 1 ? suspect(v, CM_SUSPECT_EPOCH) : v;
}

cm_verdict cm_growth_judge(const cm_growth *g)
{
    cm_verdict v = {.signature = CM_LEAK_SURVIVORS};
    int64_t warm = cm_growth_warmup(g->steps);
    if (g->steps <= warm)
        return v;
    ages a = look(g, warm);
    rise up = envelope(g, warm);
    double span = (double)(g->steps - warm), third = span / 3;
    if (a.births > 1) {
        v.bytes_per_step = (double)a.bytes / (double)(a.rate_last - a.first);
        v.count_per_step = (double)a.count / (double)(a.rate_last - a.first);
    }
    bool many = a.births >= BIRTHS_MIN;
    bool early = a.births > 0 && (double)a.first <= (double)warm + third;
    bool lasting = a.births > 0 && (double)a.last >= (double)g->steps - 1 - (third > 2 ? third : 2);
    bool balanced = a.late * SLOWING >= a.early;
    if (many && early && lasting && balanced && (double)a.gap <= span / 2 &&
        (!g->evicted || up.steady))
        return leak(g, v, !g->evicted && a.births >= SURE_BIRTHS);

    double late_span = (double)(g->steps - a.first);
    if (many && !early && !g->evicted && balanced && late_span >= LATE_STEPS &&
        (double)a.gap <= late_span / 2 && (double)(g->steps - 1 - a.last) <= late_span / 3)
        return leak(g, v, false);

    rise late = {0};
    if (!up.steady && !up.falls) {
        int64_t begin = onset(g, warm);
        if (g->steps - begin >= LATE_STEPS)
            late = envelope(g, begin);
    }
    if (up.steady || late.steady) {
        v.signature = CM_LEAK_GROWING;
        v.bytes_per_step = up.steady ? up.per_step : late.per_step;
        v.count_per_step = 0;
        if (g->workload_grows)
            return suspect(v, CM_SUSPECT_WORKLOAD);
        return leak(g, v, up.steady && !up.falls);
    }

    if (g->evicted || a.births < SUSPECT_MIN)
        return v;
    if (many && (!lasting || !balanced))
        return suspect(v, CM_SUSPECT_STOPPED);
    if (!many && early && lasting)
        return suspect(v, CM_SUSPECT_FEW);
    return v;
}
