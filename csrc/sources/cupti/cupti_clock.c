#include "cupti_clock.h"

#include <stdatomic.h>
#include <time.h>

#include "../../base/clock.h"

enum {
    LOOKS = 64,         /* that one line remembers: a kernel may end long after its start */
    TRIES = 5,          /* for one look: a preemption between the readings would skew it */
    APART_NS = 2000000, /* two looks that are to give a rate */
    STEP_NS = 1000000,  /* by which a clock was set, rather than read late */
    SECOND = 1000000000,
};

typedef struct look {
    uint64_t stamp, ticks, ns;
    double ticks_per_unit, ns_per_unit; /* since the look before */
    bool real;                          /* the stamp is CLOCK_REALTIME */
} look;

/* A stretch in which stamps ran evenly. */
typedef struct line {
    look looks[LOOKS];
    unsigned count; /* ever; the newest is looks[(count - 1) % LOOKS] */
    uint64_t since; /* ticks of the first */
} line;

static struct {
    const cm_cupti_link *link;
    line lines[2]; /* the present one, and the one before the last step */
} state;
static atomic_bool changed;

static const look *newest(const line *l)
{
    return &l->looks[(l->count - 1) % LOOKS];
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

static look take_look(void)
{
    look best = {0};
    uint64_t narrowest = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t stamp, before = cm_clock_now();
        /* CUPTI that does not tell its time uses its default. */
        if (!read_stamp(&stamp))
            stamp = realtime_ns();
        uint64_t ns = cm_clock_monotonic_ns(), real = realtime_ns(), after = cm_clock_now();
        if (after - before >= narrowest)
            continue;
        narrowest = after - before;
        best = (look){.stamp = stamp,
                      .ticks = before + narrowest / 2,
                      .ns = ns,
                      .real = distance(stamp, real) < SECOND};
    }
    return best;
}

static void add(line *l, look next)
{
    if (l->count > 0) {
        const look *last = newest(l);
        double units = (double)(next.stamp - last->stamp);
        next.ticks_per_unit = (double)(next.ticks - last->ticks) / units;
        next.ns_per_unit = (double)(next.ns - last->ns) / units;
    }
    l->looks[l->count++ % LOOKS] = next;
}

/* Whether the clock went on as it did between the last two looks. */
static bool continues(const line *l, const look *next)
{
    const look *last = newest(l);

    if (next->real != last->real || next->stamp <= last->stamp || next->ticks <= last->ticks)
        return false;
    if (l->count < 2)
        return true;
    double passed = (double)(next->ns - last->ns);
    double told = (double)(next->stamp - last->stamp) * last->ns_per_unit;
    double off = told > passed ? told - passed : passed - told;
    return off < STEP_NS + passed / 100;
}

static void begin_line(look first)
{
    const struct timespec apart = {.tv_nsec = APART_NS};

    state.lines[1] = state.lines[0];
    state.lines[0].count = 0;
    state.lines[0].since = first.ticks;
    add(&state.lines[0], first);
    for (int i = 0; i < TRIES && state.lines[0].count < 2; i++) {
        nanosleep(&apart, NULL);
        look second = take_look();
        if (continues(&state.lines[0], &second))
            add(&state.lines[0], second);
    }
}

void cm_cupti_clock_begin(const cm_cupti_link *link)
{
    look first;

    state.link = link;
    state.lines[0].count = 0;
    first = take_look();
    atomic_store(&changed, !first.real);
    begin_line(first);
    state.lines[1].count = 0;
}

void cm_cupti_clock_look(void)
{
    look now = take_look();

    if (continues(&state.lines[0], &now)) {
        add(&state.lines[0], now);
        return;
    }
    if (!now.real)
        atomic_store(&changed, true);
    begin_line(now);
}

/* The look that ends the stretch that this stamp lies in, or the nearest one; NULL: no rate yet. */
static const look *nearest(const line *l, uint64_t stamp)
{
    unsigned oldest = l->count > LOOKS ? l->count - LOOKS : 0, i = l->count - 1;

    if (l->count < 2)
        return NULL;
    while (i > oldest + 1 && stamp < l->looks[(i - 1) % LOOKS].stamp)
        i--;
    return &l->looks[i % LOOKS];
}

static double ticks_at(const look *at, uint64_t stamp)
{
    double units = stamp > at->stamp ? (double)(stamp - at->stamp) : -(double)(at->stamp - stamp);

    return (double)at->ticks + units * at->ticks_per_unit;
}

static uint64_t length_ns(const look *at, uint64_t units)
{
    return at->real ? units : (uint64_t)((double)units * at->ns_per_unit);
}

/* The look by which it is to be converted, and the result. */
static const look *place(uint64_t stamp, double *ticks)
{
    const line *present = &state.lines[0], *past = &state.lines[1];
    const look *last = newest(present), *at = nearest(present, stamp);

    if (at == NULL || stamp == 0)
        return NULL;
    double ms = at->ticks_per_unit / at->ns_per_unit * (SECOND / 1000);
    /* Where two lines compete, nothing is from the future, but for how exactly CUPTI knows a
     * device's time. */
    double latest = (double)last->ticks + (past->count == 0 ? 1000 : 50) * ms;
    *ticks = ticks_at(at, stamp);
    if (*ticks > 0 && *ticks < latest && (past->count == 0 || *ticks > (double)present->since - ms))
        return at;
    /* From before the clock was set, or became another one. */
    at = nearest(past, stamp);
    if (at == NULL)
        return NULL;
    *ticks = ticks_at(at, stamp);
    return *ticks > 0 && *ticks < (double)present->since + ms ? at : NULL;
}

cm_cupti_span cm_cupti_clock_span(uint64_t start, uint64_t end)
{
    double ticks;
    const look *at = place(start, &ticks);

    if (at == NULL)
        return (cm_cupti_span){newest(&state.lines[0])->ticks, 0};
    return (cm_cupti_span){(uint64_t)ticks, end > start ? length_ns(at, end - start) : 0};
}

bool cm_cupti_clock_changed(void)
{
    return atomic_load(&changed);
}
