/* Work on streams against blocks (rule in ledger.h). A new block waits for the next launch on its
 * device. A launch waits for the records of its work, with the blocks born before it and those
 * freed after it, and is judged once: after LAUNCHES others, or at the end. No cost before the
 * first launch. */
#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"
#include "parts.h"

enum { LAUNCHES = 1 << 17, CANDIDATES = 1 << 19, AHEAD = 1 << 12, HELD_THREADS = 256 };
enum { LEAST_NS = 1000000, LEAST_WITHOUT_STEPS_NS = 10000000, SHARE_OF_STEP = 10 };

typedef struct launch {
    uint32_t correlation;
    uint32_t candidates; /* index + 1 */
    uint32_t name;
    bool ran;
    uint64_t start, end;
    uint64_t time_ns; /* of the launch; of work that waits for its launch: its count */
} launch;

typedef struct candidate {
    uint32_t next; /* of its launch, or free; index + 1 */
    uint32_t stack;
    int64_t bytes;
    uint64_t time_ns;
    bool late;
} candidate;

typedef struct fresh { /* a block without a launch since its allocation */
    uint64_t address;
    uint64_t time_ns;
    int64_t bytes;
    uint32_t stack;
} fresh;

typedef struct device {
    fresh *fresh;
    size_t count, capacity;
    cm_idmap at;          /* address -> index of fresh */
    uint64_t last_launch; /* number + 1 */
} device;

typedef struct waits {
    cm_wait *wait;
    size_t count, capacity;
    cm_idmap at; /* stack -> index */
} waits;

typedef struct kernels {
    const cm_run *run;
    bool active; /* there was a launch: totals.seen may be of deferred frees only */
    uint64_t least_ns;
    cm_kernels totals;
    launch *launch; /* a ring */
    uint64_t first, next;
    uint64_t first_work; /* start of the first recorded work */
    /* Compacted launches and work, which are only counted. A waiting block may have had its launch
     * among them, and a launch before compacted_to its work. */
    uint64_t summed_launches, summed_work, compacted_to, lost_in_compaction;
    bool waiting;            /* some block, since the last of the above */
    cm_idmap by_correlation; /* -> low half of the number */
    /* A ring of work recorded before its launch: the clocks differ, and a launch is recorded only
     * when its stack is known. */
    launch *ahead;
    uint32_t ahead_next;
    cm_idmap ahead_at; /* correlation -> index */
    candidate *candidate;
    size_t candidates, candidate_capacity;
    uint32_t vacant;
    device device[CM_TOTALS_HOST];
    waits early, late;
    cm_kernel *name;
    size_t name_count, name_capacity;
    cm_idmap by_name;
    cm_deferred_free *deferred_frees;
    size_t deferred_free_count, deferred_free_capacity;
    cm_idmap by_holder;
    struct {
        bool is;
        uint32_t thread;
        uint64_t stream;
    } holding[HELD_THREADS];
} kernels;

static void *create(const cm_run *run)
{
    kernels *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->run = run;
    k->least_ns = LEAST_WITHOUT_STEPS_NS;
    k->first_work = UINT64_MAX;
    const cm_steps *steps = run->steps;
    if (steps->count > 0) {
        uint64_t all = steps->step[steps->count - 1].end.time_ns - steps->begin.time_ns;
        k->least_ns = all / steps->count / SHARE_OF_STEP;
        if (k->least_ns < LEAST_NS)
            k->least_ns = LEAST_NS;
    }
    return k;
}

/* --- sums ---------------------------------------------------------------------------------- */

static void add_up(int64_t *sum, int64_t more)
{
    if (__builtin_add_overflow(*sum, more, sum))
        *sum = INT64_MAX;
}

static bool add_wait(waits *w, const candidate *c, uint32_t name, int64_t wait_ns)
{
    uint32_t at;
    if (!cm_idmap_get(&w->at, c->stack, &at)) {
        at = (uint32_t)w->count;
        if (!cm_grow((void **)&w->wait, &w->capacity, w->count + 1, sizeof *w->wait) ||
            !cm_idmap_put(&w->at, c->stack, at))
            return false;
        w->wait[w->count++] = (cm_wait){.stack = c->stack, .wait_ns = -1};
    }
    cm_wait *of = &w->wait[at];
    add_up(&of->bytes, c->bytes);
    of->count++;
    if (wait_ns > of->wait_ns) {
        of->wait_ns = wait_ns;
        of->name = name;
    }
    return true;
}

static bool add_work(kernels *k, uint32_t name, uint64_t count, int64_t ns)
{
    uint32_t at;
    if (!cm_idmap_get(&k->by_name, name, &at)) {
        at = (uint32_t)k->name_count;
        if (!cm_grow((void **)&k->name, &k->name_capacity, k->name_count + 1, sizeof *k->name) ||
            !cm_idmap_put(&k->by_name, name, at))
            return false;
        k->name[k->name_count++] = (cm_kernel){.name = name};
    }
    k->name[at].count += count;
    add_up(&k->name[at].ns, ns < 0 ? 0 : ns);
    add_up(&k->totals.ns, ns < 0 ? 0 : ns);
    k->totals.ran += count;
    return true;
}

static bool add_deferred_free(kernels *k, uint32_t stack, uint64_t stream, int64_t bytes)
{
    uint64_t key = ((uint64_t)stack << 32 ^ stream * UINT64_C(0x9e3779b97f4a7c15)) >> 1;
    uint32_t at;
    bool known = false;
    while (!known && cm_idmap_get(&k->by_holder, key, &at)) {
        known = k->deferred_frees[at].stack == stack && k->deferred_frees[at].stream == stream;
        key = known ? key : (key + 1) & (UINT64_MAX >> 1);
    }
    if (!known) {
        at = (uint32_t)k->deferred_free_count;
        if (!cm_grow((void **)&k->deferred_frees, &k->deferred_free_capacity,
                     k->deferred_free_count + 1, sizeof *k->deferred_frees) ||
            !cm_idmap_put(&k->by_holder, key, at))
            return false;
        k->deferred_frees[k->deferred_free_count++] =
            (cm_deferred_free){.stack = stack, .stream = stream};
    }
    add_up(&k->deferred_frees[at].bytes, bytes);
    k->deferred_frees[at].count++;
    return true;
}

/* --- launches and their work --------------------------------------------------------------- */

static launch *launch_at(kernels *k, uint64_t number)
{
    if (number < k->first || number >= k->next)
        return NULL;
    return &k->launch[number % LAUNCHES];
}

static launch *launch_of(kernels *k, uint32_t correlation)
{
    uint32_t low;
    if (!cm_idmap_get(&k->by_correlation, correlation, &low))
        return NULL;
    uint64_t number = (k->next & ~(uint64_t)UINT32_MAX) | low;
    if (number >= k->next)
        number -= (uint64_t)1 << 32;
    launch *found = launch_at(k, number);
    return found != NULL && found->correlation == correlation ? found : NULL;
}

/* Judges the oldest launch and all that waits for it. */
static bool judge(kernels *k)
{
    launch *l = &k->launch[k->first % LAUNCHES];
    uint32_t low;
    bool fine = true;
    while (l->candidates != 0) {
        candidate *c = &k->candidate[l->candidates - 1];
        uint32_t number = l->candidates;
        uint64_t from = c->late ? l->end : c->time_ns, to = c->late ? c->time_ns : l->start;
        if (fine && l->ran && to > from && to - from >= k->least_ns)
            fine = add_wait(c->late ? &k->late : &k->early, c, l->name, (int64_t)(to - from));
        l->candidates = c->next;
        c->next = k->vacant;
        k->vacant = number;
    }
    if (!l->ran) {
        bool compacted = k->first < k->compacted_to;
        k->lost_in_compaction += compacted;
        *(compacted || l->time_ns < k->first_work ? &k->totals.unrecorded : &k->totals.dropped) +=
            1;
    }
    if (cm_idmap_get(&k->by_correlation, l->correlation, &low) && low == (uint32_t)k->first)
        cm_idmap_remove(&k->by_correlation, l->correlation);
    k->first++;
    return fine;
}

static bool await(kernels *k, launch *l, const fresh *block, uint64_t time_ns, bool late)
{
    if (k->vacant == 0) {
        if (k->candidates == CANDIDATES) {
            k->totals.unjudged++;
            return true;
        }
        if (!cm_grow((void **)&k->candidate, &k->candidate_capacity, k->candidates + 1,
                     sizeof *k->candidate))
            return false;
        k->candidate[k->candidates] = (candidate){0};
        k->vacant = (uint32_t)++k->candidates;
    }
    uint32_t number = k->vacant;
    candidate *c = &k->candidate[number - 1];
    k->vacant = c->next;
    *c = (candidate){l->candidates, block->stack, block->bytes, time_ns, late};
    l->candidates = number;
    return true;
}

/* A graph's launch has many. */
static void join_work(launch *l, uint32_t name, uint64_t start, uint64_t end)
{
    l->name = l->ran && l->start <= start ? l->name : name;
    l->start = l->ran && l->start < start ? l->start : start;
    l->end = l->end > end ? l->end : end;
    l->ran = true;
}

/* The entry where work waits for its launch; NULL: out of memory. */
static launch *ahead_of(kernels *k, uint32_t correlation)
{
    uint32_t at;
    if (cm_idmap_get(&k->ahead_at, correlation, &at))
        return &k->ahead[at];
    if (k->ahead == NULL) {
        k->ahead = calloc(AHEAD, sizeof *k->ahead);
        if (k->ahead == NULL)
            return NULL;
    }
    at = k->ahead_next++ % AHEAD;
    launch *l = &k->ahead[at];
    if (l->ran)
        cm_idmap_remove(&k->ahead_at, l->correlation);
    k->totals.unlaunched += l->ran ? l->time_ns : 0;
    *l = (launch){.correlation = correlation};
    return cm_idmap_put(&k->ahead_at, correlation, at) ? l : NULL;
}

static void take_ahead(kernels *k, launch *l)
{
    uint32_t at;
    if (!cm_idmap_get(&k->ahead_at, l->correlation, &at))
        return;
    const launch *work = &k->ahead[at];
    join_work(l, work->name, work->start, work->end);
    cm_idmap_remove(&k->ahead_at, l->correlation);
    k->ahead[at].ran = false;
}

/* A compacted launch may be a waiting block's first or last one: drop these blocks. */
static void drop_blocks(kernels *k)
{
    for (size_t i = 0; k->waiting && i < CM_TOTALS_HOST; i++) {
        device *d = &k->device[i];
        launch *l = d->last_launch > 0 ? launch_at(k, d->last_launch - 1) : NULL;
        uint32_t kept = 0, number = l != NULL ? l->candidates : 0;
        while (number != 0) {
            candidate *c = &k->candidate[number - 1];
            uint32_t next = c->next;
            uint32_t *list = c->late ? &k->vacant : &kept;
            c->next = *list;
            *list = number;
            number = next;
        }
        if (l != NULL)
            l->candidates = kept;
        d->last_launch = 0;
        d->count = 0;
        cm_idmap_clear(&d->at);
    }
    k->waiting = false;
}

static bool see_launch(kernels *k, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (e->flags & CM_EVF_SUMMED) {
        k->totals.launches += e->size > 0 ? (uint64_t)e->size : 0;
        k->summed_launches += e->size > 0 ? (uint64_t)e->size : 0;
        drop_blocks(k);
        return true;
    }
    k->totals.launches++;
    if (k->launch == NULL) {
        k->launch = calloc(LAUNCHES, sizeof *k->launch);
        if (k->launch == NULL)
            return false;
    }
    if (k->next - k->first == LAUNCHES && !judge(k))
        return false;
    uint32_t correlation = (uint32_t)e->size;
    if (!cm_idmap_put(&k->by_correlation, correlation, (uint32_t)k->next))
        return false;
    launch *l = &k->launch[k->next++ % LAUNCHES];
    *l = (launch){.correlation = correlation, .time_ns = record->time_ns};
    take_ahead(k, l);
    device *d = &k->device[cm_driver_map_place(e->device_index)];
    d->last_launch = k->next;
    k->waiting = true;
    for (size_t i = 0; i < d->count; i++)
        if (!await(k, l, &d->fresh[i], d->fresh[i].time_ns, false))
            return false;
    d->count = 0;
    cm_idmap_clear(&d->at);
    return true;
}

static bool see_work(kernels *k, const cm_record *record)
{
    const cm_event *e = &record->event;
    if (e->flags & CM_EVF_SUMMED) {
        k->summed_work += e->address;
        k->compacted_to = k->next;
        return add_work(k, e->stack, e->address, e->size);
    }
    uint64_t start = record->time_ns, end = start + (e->size > 0 ? (uint64_t)e->size : 0);
    if (start < k->first_work)
        k->first_work = start;
    launch *l = launch_of(k, (uint32_t)e->address);
    if (l == NULL) {
        l = ahead_of(k, (uint32_t)e->address);
        if (l == NULL)
            return false;
        l->time_ns++;
    }
    join_work(l, e->stack, start, end);
    return add_work(k, e->stack, 1, e->size);
}

static bool event(void *part, const cm_record *record)
{
    kernels *k = part;
    const cm_event *e = &record->event;
    k->totals.seen = true;
    if (e->kind == CM_EV_DEFERRED_FREE) {
        size_t at = record->thread % HELD_THREADS;
        k->holding[at].is = true;
        k->holding[at].thread = record->thread;
        k->holding[at].stream = e->address;
        return true;
    }
    k->active = true;
    return e->kind == CM_EV_LAUNCH ? see_launch(k, record) : see_work(k, record);
}

/* --- blocks -------------------------------------------------------------------------------- */

static uint64_t key_of(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

static bool come(kernels *k, device *d, const fresh *block)
{
    if (!cm_grow((void **)&d->fresh, &d->capacity, d->count + 1, sizeof *d->fresh) ||
        !cm_idmap_put(&d->at, key_of(block->address), (uint32_t)d->count))
        return false;
    d->fresh[d->count++] = *block;
    k->waiting = true;
    return true;
}

static bool go(kernels *k, device *d, const fresh *block)
{
    uint32_t at;
    if (!cm_idmap_get(&d->at, key_of(block->address), &at)) {
        launch *l = d->last_launch > 0 ? launch_at(k, d->last_launch - 1) : NULL;
        return l == NULL || await(k, l, block, block->time_ns, true);
    }
    /* No launch while it lived. */
    cm_idmap_remove(&d->at, key_of(block->address));
    d->count--;
    if (at == d->count)
        return true;
    d->fresh[at] = d->fresh[d->count];
    return cm_idmap_put(&d->at, key_of(d->fresh[at].address), at);
}

static CM_OWN_FRAME bool see_change(kernels *k, const cm_change *c)
{
    const cm_device *where = &k->run->replay->device[c->block.device];
    uint32_t stack = k->run->replay->origin[c->block.origin].stack;
    size_t thread = c->thread % HELD_THREADS;
    if (c->bytes < 0 && c->event && k->holding[thread].is &&
        k->holding[thread].thread == c->thread) {
        k->holding[thread].is = false;
        if (!add_deferred_free(k, stack, k->holding[thread].stream, c->block.size))
            return false;
    }
    if (!k->active || where->type != CM_DEVICE_CUDA || !c->event)
        return true;
    const fresh block = {c->block.address, c->time_ns, c->block.size, stack};
    device *d = &k->device[cm_driver_map_place(where->index)];
    return c->bytes > 0 ? come(k, d, &block) : go(k, d, &block);
}

static bool change(void *part, const cm_change *c)
{
    kernels *k = part;
    return !k->totals.seen || see_change(k, c);
}

/* --- the end ------------------------------------------------------------------------------- */

static int by_ns(const void *left, const void *right)
{
    const cm_kernel *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns < b->ns ? 1 : -1;
    return a->name < b->name ? -1 : a->name > b->name;
}

static int by_bytes(const void *left, const void *right)
{
    const cm_wait *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_deferred_bytes(const void *left, const void *right)
{
    const cm_deferred_free *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->stack != b->stack)
        return a->stack < b->stack ? -1 : 1;
    return a->stream < b->stream ? -1 : a->stream > b->stream;
}

static void sort(void *items, size_t *count, size_t size, size_t most,
                 int (*compare)(const void *, const void *))
{
    cm_sort(items, *count, size, compare);
    if (*count > most)
        *count = most;
}

static bool finish(void *part, cm_analysis *out)
{
    kernels *k = part;
    while (k->first < k->next)
        if (!judge(k))
            return false;
    for (size_t i = 0; k->ahead != NULL && i < AHEAD; i++)
        k->totals.unlaunched += k->ahead[i].ran ? k->ahead[i].time_ns : 0;
    k->totals.name_total = k->name_count;
    /* Compacted launches with work after the stretch. */
    uint64_t behind = k->summed_launches + k->lost_in_compaction;
    behind = behind > k->summed_work ? behind - k->summed_work : 0;
    k->totals.unlaunched -= behind < k->totals.unlaunched ? behind : k->totals.unlaunched;
    sort(k->name, &k->name_count, sizeof *k->name, CM_KERNEL_NAMES, by_ns);
    sort(k->early.wait, &k->early.count, sizeof(cm_wait), CM_KERNEL_WAITS, by_bytes);
    sort(k->late.wait, &k->late.count, sizeof(cm_wait), CM_KERNEL_WAITS, by_bytes);
    sort(k->deferred_frees, &k->deferred_free_count, sizeof *k->deferred_frees, CM_KERNEL_WAITS,
         by_deferred_bytes);
    cm_kernels *t = &out->kernels;
    *t = k->totals;
    t->wait_least_ns = (int64_t)(k->least_ns > INT64_MAX ? INT64_MAX : k->least_ns);
    t->name = k->name;
    t->name_count = k->name_count;
    t->early = k->early.wait;
    t->early_count = k->early.count;
    t->late = k->late.wait;
    t->late_count = k->late.count;
    t->deferred_frees = k->deferred_frees;
    t->deferred_free_count = k->deferred_free_count;
    k->name = NULL;
    k->early.wait = k->late.wait = NULL;
    k->deferred_frees = NULL;
    return true;
}

static void destroy(void *part)
{
    kernels *k = part;
    for (size_t i = 0; i < CM_TOTALS_HOST; i++) {
        free(k->device[i].fresh);
        cm_idmap_clear(&k->device[i].at);
    }
    free(k->launch);
    free(k->ahead);
    free(k->candidate);
    free(k->early.wait);
    free(k->late.wait);
    free(k->name);
    free(k->deferred_frees);
    cm_idmap_clear(&k->by_correlation);
    cm_idmap_clear(&k->ahead_at);
    cm_idmap_clear(&k->early.at);
    cm_idmap_clear(&k->late.at);
    cm_idmap_clear(&k->by_name);
    cm_idmap_clear(&k->by_holder);
    free(k);
}

const cm_part_kind cm_part_kernels = {.name = "kernels",
                                      .create = create,
                                      .change = change,
                                      .event = event,
                                      .events = CM_PART_EVENT(CM_EV_LAUNCH) |
                                                CM_PART_EVENT(CM_EV_WORK) |
                                                CM_PART_EVENT(CM_EV_DEFERRED_FREE),
                                      .finish = finish,
                                      .destroy = destroy};
