#include "activity_clock.h"

#include <stdatomic.h>
#include <time.h>

#include "../../base/clock.h"

enum {
    SAMPLES = 64,       /* that a line keeps: a kernel may end long after its start */
    TRIES = 5,          /* for one sample: a preemption between the readings would skew it */
    APART_NS = 2000000, /* between the two samples that give the first rate */
    STEP_NS = 1000000,  /* a larger difference is a clock that was set, not one read late */
    SECOND = 1000000000,
};

typedef struct sample {
    uint64_t stamp, ticks, ns;
    double ticks_per_unit, ns_per_unit; /* since the sample before */
    bool real;                          /* the stamp is CLOCK_REALTIME */
} sample;

/* A period in which stamps ran evenly. */
typedef struct line {
    sample samples[SAMPLES];
    unsigned count; /* ever taken; the newest is samples[(count - 1) % SAMPLES] */
    uint64_t since; /* ticks of the first */
} line;

static struct {
    const cm_cupti_link *link;
    line lines[2]; /* the current one, and the one before the last step */
} state;
static atomic_bool changed;

static const sample *newest(const line *l)
{
    return &l->samples[(l->count - 1) % SAMPLES];
}

static uint64_t realtime_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static bool read_stamp(uint64_t *stamp)
{
    const cm_cupti_api *api = state.link->api;

    if (state.link->v2 && api->GetTimestamp_v2 != NULL)
        return api->GetTimestamp_v2(state.link->subscriber, stamp) == 0;
    return api->GetTimestamp != NULL && api->GetTimestamp(stamp) == 0;
}

static sample take_sample(void)
{
    sample best = {0};
    uint64_t narrowest = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t stamp, before = cm_clock_now();
        /* A CUPTI without cuptiGetTimestamp uses its default clock. */
        if (!read_stamp(&stamp))
            stamp = realtime_ns();
        uint64_t ns = cm_clock_monotonic_ns(), real = realtime_ns(), after = cm_clock_now();
        if (after - before >= narrowest)
            continue;
        narrowest = after - before;
        best = (sample){.stamp = stamp,
                        .ticks = before + narrowest / 2,
                        .ns = ns,
                        .real = distance(stamp, real) < SECOND};
    }
    return best;
}

static void add(line *l, sample next)
{
    if (l->count > 0) {
        const sample *last = newest(l);
        double units = (double)(next.stamp - last->stamp);
        next.ticks_per_unit = (double)(next.ticks - last->ticks) / units;
        next.ns_per_unit = (double)(next.ns - last->ns) / units;
    }
    l->samples[l->count++ % SAMPLES] = next;
}

/* Whether the clock ran on at the rate of the last two samples. */
static bool continues(const line *l, const sample *next)
{
    const sample *last = newest(l);

    if (next->real != last->real || next->stamp <= last->stamp || next->ticks <= last->ticks)
        return false;
    if (l->count < 2)
        return true;
    double passed = (double)(next->ns - last->ns);
    double stamped = (double)(next->stamp - last->stamp) * last->ns_per_unit;
    double off = stamped > passed ? stamped - passed : passed - stamped;
    return off < STEP_NS + passed / 100;
}

static void begin_line(sample first)
{
    const struct timespec apart = {.tv_nsec = APART_NS};

    state.lines[1] = state.lines[0];
    state.lines[0].count = 0;
    state.lines[0].since = first.ticks;
    add(&state.lines[0], first);
    for (int i = 0; i < TRIES && state.lines[0].count < 2; i++) {
        nanosleep(&apart, NULL);
        sample second = take_sample();
        if (continues(&state.lines[0], &second))
            add(&state.lines[0], second);
    }
}

void cm_cupti_clock_begin(const cm_cupti_link *link)
{
    sample first;

    state.link = link;
    state.lines[0].count = 0;
    first = take_sample();
    atomic_store(&changed, !first.real);
    begin_line(first);
    state.lines[1].count = 0;
}

void cm_cupti_clock_sample(void)
{
    sample now = take_sample();

    if (continues(&state.lines[0], &now)) {
        add(&state.lines[0], now);
        return;
    }
    if (!now.real)
        atomic_store(&changed, true);
    begin_line(now);
}

/* The sample that ends the interval of this stamp, or the nearest one; NULL: no rate yet. */
static const sample *nearest(const line *l, uint64_t stamp)
{
    unsigned oldest = l->count > SAMPLES ? l->count - SAMPLES : 0, i = l->count - 1;

    if (l->count < 2)
        return NULL;
    while (i > oldest + 1 && stamp < l->samples[(i - 1) % SAMPLES].stamp)
        i--;
    return &l->samples[i % SAMPLES];
}

static double ticks_at(const sample *at, uint64_t stamp)
{
    double units = stamp > at->stamp ? (double)(stamp - at->stamp) : -(double)(at->stamp - stamp);

    return (double)at->ticks + units * at->ticks_per_unit;
}

static uint64_t length_ns(const sample *at, uint64_t units)
{
    return at->real ? units : (uint64_t)((double)units * at->ns_per_unit);
}

static bool between(double ticks, double earliest, double latest)
{
    return ticks > 0 && ticks > earliest && ticks < latest;
}

/* Converts a stamp. Returns the sample used, or NULL if the stamp fits none. */
static const sample *convert(uint64_t stamp, double *ticks)
{
    const line *present = &state.lines[0], *past = &state.lines[1];
    const sample *last = newest(present), *at = nearest(present, stamp);

    if (at == NULL || stamp == 0)
        return NULL;
    double ms = at->ticks_per_unit / at->ns_per_unit * (SECOND / 1000);
    /* A stamp is neither from the future nor from before the first sample, except for CUPTI's error
     * in a device's time. With two lines to choose from, the margin must be small. */
    double margin = (past->count == 0 ? 1000 : 50) * ms;
    double since = (double)present->since;
    *ticks = ticks_at(at, stamp);
    if (between(*ticks, since - (past->count == 0 ? margin : ms), (double)last->ticks + margin))
        return at;
    /* The stamp is from before the clock was set or replaced. */
    at = nearest(past, stamp);
    if (at == NULL)
        return NULL;
    *ticks = ticks_at(at, stamp);
    return between(*ticks, (double)past->since - margin, since + ms) ? at : NULL;
}

cm_cupti_span cm_cupti_clock_span(uint64_t start, uint64_t end)
{
    double ticks;
    const sample *at = convert(start, &ticks);

    if (at == NULL)
        return (cm_cupti_span){newest(&state.lines[0])->ticks, 0};
    return (cm_cupti_span){(uint64_t)ticks, end > start ? length_ns(at, end - start) : 0};
}

bool cm_cupti_clock_changed(void)
{
    return atomic_load(&changed);
}
