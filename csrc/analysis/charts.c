/* Charts (chart.h): the device's highest moment in each interval of a span, and every contributor's
 * bytes then.
 *
 * Bytes at the high are snapshots (snapshot.h), so an interval costs only the contributors that
 * changed in it. Beyond the limit, the entries of the smallest contributors move to the rest; one
 * that grows beyond the hidden size has entries again. */
#include <string.h>

#include "chart_blocks.h"
#include "contributors.h"
#include "../base/grow.h"
#include "../base/idmap.h"
#include "parts.h"
#include "../heap/scan.h"

typedef struct row { /* one origin in one span */
    cm_snapshot high;
    int64_t allocated, freed;
    int64_t most; /* at an interval's high */
    uint64_t made;
    uint32_t touched; /* number of the interval + 1 */
    bool hidden, wanted;
} row;

typedef struct device {
    cm_chart_interval *interval; /* NULL: not in this span */
    int64_t live, reserved;      /* before the current event */
    uint64_t moment;             /* of the interval's high */
    uint32_t *touched;
    size_t touched_count, touched_capacity;
    cm_chart_entry *entry; /* contributor: number of the origin */
    size_t entry_count, entry_capacity;
    int64_t hidden;
    cm_chart_heap largest, survivors;
} device;

typedef struct span {
    cm_chart_span asked;
    uint64_t width; /* of an interval */
    size_t intervals, now;
    bool entered, over;
    row *row; /* by origin */
    size_t row_capacity;
    device *device;
    size_t devices, device_capacity;
} span;

typedef struct charts {
    const cm_run *run;
    span *span;
    size_t spans;
    cm_amounts alive; /* now */
    uint64_t end_ns;
    bool with_blocks;
    cm_idmap birth_of; /* device and address -> index in birth */
    uint64_t *birth;
    uint32_t *unused; /* free indices of birth */
    size_t births, birth_capacity, unused_count, unused_capacity;
} charts;

static uint64_t in_window(const charts *t, uint64_t time_ns)
{
    return time_ns > t->run->begin_ns ? time_ns - t->run->begin_ns : 0;
}

static bool reserve_row(span *s, uint32_t origin)
{
    return cm_grow_zeroed((void **)&s->row, &s->row_capacity, (size_t)origin + 1, sizeof *s->row);
}

static uint64_t begin_of(const span *s, size_t interval)
{
    return s->asked.begin_ns + interval * s->width;
}

static void begin_interval(const span *s, device *d, size_t number)
{
    int64_t begin = (int64_t)begin_of(s, number);
    if (d->interval == NULL)
        return;
    d->interval[number] = (cm_chart_interval){.begin_ns = begin,
                                              .high_ns = begin,
                                              .low = d->live,
                                              .high = d->live,
                                              .reserved = d->reserved};
    d->moment++;
}

static bool is_about(const span *s, const cm_device *device)
{
    return s->asked.device[0] == '\0' || strcmp(s->asked.device, device->name) == 0;
}

/* A new device had nothing before. */
static bool know_devices(charts *t, span *s)
{
    const cm_replay *replay = t->run->replay;
    if (!cm_grow((void **)&s->device, &s->device_capacity, replay->device_count, sizeof *s->device))
        return false;
    for (; s->devices < replay->device_count; s->devices++) {
        device *d = &s->device[s->devices];
        *d = (device){.reserved = -1};
        if (!is_about(s, &replay->device[s->devices]))
            continue;
        d->interval = calloc(s->intervals, sizeof *d->interval);
        if (d->interval == NULL)
            return false;
        d->largest.limit = d->survivors.limit = s->asked.blocks;
        for (size_t i = 0; i <= s->now; i++)
            begin_interval(s, d, i);
    }
    return true;
}

static bool touch(span *s, device *d, uint32_t origin)
{
    row *r = &s->row[origin];
    if (r->touched == s->now + 1)
        return true;
    if (!cm_grow((void **)&d->touched, &d->touched_capacity, d->touched_count + 1,
                 sizeof *d->touched))
        return false;
    r->touched = (uint32_t)s->now + 1;
    d->touched[d->touched_count++] = origin;
    return true;
}

/* -- entries ---------------------------------------------------------------------------------- */

typedef struct ranked {
    uint32_t origin;
    int64_t most;
    size_t entries;
} ranked;

static int smallest_first(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->most != b->most)
        return a->most < b->most ? -1 : 1;
    return a->origin > b->origin ? -1 : a->origin < b->origin;
}

/* Drops entries of the smallest contributors until the limit holds. */
static bool hide_smallest(span *s, device *d)
{
    size_t limit = s->asked.entries, count = 0, capacity = 0;
    ranked *all = NULL;
    cm_idmap place = {0};
    bool fine = true;
    for (size_t i = 0; fine && i < d->entry_count; i++) {
        uint32_t origin = d->entry[i].contributor, at;
        if (!cm_idmap_get(&place, origin, &at)) {
            at = (uint32_t)count;
            fine = cm_idmap_put(&place, origin, at) &&
                   cm_grow((void **)&all, &capacity, count + 1, sizeof *all);
            if (fine)
                all[count++] = (ranked){origin, s->row[origin].most, 0};
        }
        if (fine)
            all[at].entries++;
    }
    if (fine)
        cm_sort(all, count, sizeof *all, smallest_first);
    size_t left = d->entry_count;
    for (size_t i = 0; fine && left > limit; i++) {
        s->row[all[i].origin].hidden = true;
        left -= all[i].entries;
        if (all[i].most > d->hidden)
            d->hidden = all[i].most;
    }
    size_t kept = 0;
    for (size_t i = 0; fine && i < d->entry_count; i++)
        if (!s->row[d->entry[i].contributor].hidden)
            d->entry[kept++] = d->entry[i];
    if (fine)
        d->entry_count = kept;
    free(all);
    cm_idmap_clear(&place);
    return fine;
}

static bool end_interval(const charts *t, span *s, device *d)
{
    for (size_t i = 0; i < d->touched_count; i++) {
        uint32_t origin = d->touched[i];
        row *r = &s->row[origin];
        cm_amount alive = t->alive.of[origin];
        int64_t now = alive.bytes, high = cm_snapshot_at(&r->high, d->moment, alive).bytes;
        if (high > r->most)
            r->most = high;
        r->hidden = r->hidden && r->most <= d->hidden;
        if (!r->hidden) {
            if (!cm_grow((void **)&d->entry, &d->entry_capacity, d->entry_count + 1,
                         sizeof *d->entry))
                return false;
            d->entry[d->entry_count++] =
                (cm_chart_entry){origin, (uint32_t)s->now, high, now, r->allocated, r->freed};
        }
        r->allocated = r->freed = 0;
    }
    d->touched_count = 0;
    return d->entry_count <= 2 * (size_t)s->asked.entries || hide_smallest(s, d);
}

/* Ends the intervals before that one, which becomes the current one. */
static bool advance(const charts *t, span *s, size_t number)
{
    for (; s->now < number; s->now++)
        for (size_t i = 0; i < s->devices; i++) {
            if (!end_interval(t, s, &s->device[i]))
                return false;
            begin_interval(s, &s->device[i], s->now + 1);
        }
    return true;
}

/* The span begins: its devices' live bytes are in their first interval. */
static bool enter(const charts *t, span *s)
{
    s->entered = true;
    for (size_t i = 0; i < s->devices; i++)
        begin_interval(s, &s->device[i], 0);
    for (uint32_t origin = 0; origin < t->alive.capacity; origin++)
        if (t->alive.of[origin].bytes != 0) {
            device *d = &s->device[t->run->replay->origin[origin].device];
            if (d->interval == NULL)
                continue;
            if (!reserve_row(s, origin) || !touch(s, d, origin))
                return false;
        }
    return true;
}

static bool leave(const charts *t, span *s)
{
    bool fine = (s->entered || enter(t, s)) && advance(t, s, s->intervals - 1);
    for (size_t i = 0; fine && i < s->devices; i++)
        fine = end_interval(t, s, &s->device[i]);
    s->over = true;
    return fine;
}

/* Advances to an event's time, before its change. */
static bool come_to(charts *t, span *s, uint64_t time_ns)
{
    if (s->over || !know_devices(t, s) || time_ns < s->asked.begin_ns)
        return s->over || s->devices == t->run->replay->device_count;
    if (time_ns > s->asked.end_ns && s->asked.end_ns < t->end_ns)
        return leave(t, s);
    if (!s->entered && !enter(t, s))
        return false;
    /* Threads are merged, so a time may step back a little, or be after the last mark. */
    size_t number = (size_t)((time_ns - s->asked.begin_ns) / s->width);
    return advance(t, s, number < s->intervals ? number : s->intervals - 1);
}

/* -- single blocks ---------------------------------------------------------------------------- */

static uint64_t block_key(const cm_block *block)
{
    uint64_t key = block->address ^ (uint64_t)block->device << 56;
    return key == UINT64_MAX ? 0 : key;
}

static bool note_birth(charts *t, const cm_block *block, uint64_t time_ns)
{
    uint32_t at;
    if (t->unused_count > 0) {
        at = t->unused[--t->unused_count];
    } else {
        if (!cm_grow((void **)&t->birth, &t->birth_capacity, t->births + 1, sizeof *t->birth))
            return false;
        at = (uint32_t)t->births++;
    }
    t->birth[at] = time_ns;
    return cm_idmap_put(&t->birth_of, block_key(block), at);
}

/* -1: before the window. */
static int64_t birth(const charts *t, const cm_block *block)
{
    uint32_t at;
    return cm_idmap_get(&t->birth_of, block_key(block), &at) ? (int64_t)t->birth[at] : -1;
}

static bool forget_birth(charts *t, const cm_block *block)
{
    uint32_t at;
    if (!cm_idmap_get(&t->birth_of, block_key(block), &at))
        return true;
    cm_idmap_remove(&t->birth_of, block_key(block));
    if (!cm_grow((void **)&t->unused, &t->unused_capacity, t->unused_count + 1, sizeof *t->unused))
        return false;
    t->unused[t->unused_count++] = at;
    return true;
}

/* The tail begins at the last step's end. */
static int32_t step_or_none(const charts *t, int32_t step)
{
    return step >= 0 && (uint64_t)step < t->run->steps->count ? step : -1;
}

static cm_chart_block drawn(const charts *t, const cm_block *block)
{
    return (cm_chart_block){.address = block->address,
                            .bytes = block->size,
                            .begin_ns = birth(t, block),
                            .end_ns = -1,
                            .contributor = cm_replay_origin(t->run->replay, block),
                            .step = step_or_none(t, block->step),
                            .end_step = -1};
}

static bool was_in(const span *s, const cm_chart_block *block)
{
    return (block->begin_ns < 0 || (uint64_t)block->begin_ns <= s->asked.end_ns) &&
           (block->end_ns < 0 || (uint64_t)block->end_ns >= s->asked.begin_ns);
}

static bool offer(charts *t, const cm_chart_block *block, uint16_t number, bool survivor)
{
    for (size_t i = 0; i < t->spans; i++) {
        span *s = &t->span[i];
        if (!was_in(s, block))
            continue;
        if (!know_devices(t, s))
            return false;
        if (s->device[number].interval == NULL)
            continue;
        if (!cm_chart_heap_offer(&s->device[number].largest, block) ||
            (survivor && !cm_chart_heap_offer(&s->device[number].survivors, block)))
            return false;
    }
    return true;
}

static bool see_block(charts *t, const cm_change *c, uint64_t time_ns)
{
    if (!t->with_blocks)
        return true;
    if (c->bytes > 0)
        return note_birth(t, &c->block, time_ns);
    cm_chart_block block = drawn(t, &c->block);
    block.end_ns = (int64_t)time_ns;
    block.end_step = step_or_none(t, t->run->replay->step);
    return offer(t, &block, c->block.device, false) && forget_birth(t, &c->block);
}

static bool offer_living(charts *t)
{
    size_t at = 0;
    for (const cm_block *b;
         t->with_blocks && (b = cm_blocks_next(&t->run->replay->blocks, &at)) != NULL;) {
        cm_chart_block block = drawn(t, b);
        if (!offer(t, &block, b->device, b->made))
            return false;
    }
    return true;
}

/* -- the part --------------------------------------------------------------------------------- */

static void *create(const cm_run *run)
{
    charts *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->run = run;
    t->end_ns = in_window(t, run->plan->end_ns);
    t->spans = run->options->chart_count;
    t->span = calloc(t->spans + 1, sizeof *t->span);
    bool fine = t->span != NULL;
    for (size_t i = 0; fine && i < t->spans; i++) {
        span *s = &t->span[i];
        s->asked = run->options->charts[i];
        if (s->asked.end_ns > t->end_ns)
            s->asked.end_ns = t->end_ns;
        if (s->asked.begin_ns > s->asked.end_ns)
            s->asked.begin_ns = s->asked.end_ns;
        uint64_t length = s->asked.end_ns - s->asked.begin_ns;
        s->width = length / s->asked.intervals;
        s->width += s->width < UINT64_MAX;
        s->intervals = (size_t)(length / s->width + 1);
        t->with_blocks = t->with_blocks || s->asked.blocks > 0;
        fine = know_devices(t, s);
        for (size_t d = 0; fine && d < s->devices; d++) {
            s->device[d].live = run->replay->device[d].live;
            s->device[d].reserved = run->replay->device[d].reserved;
        }
    }
    if (fine && (t->spans == 0 || cm_amounts_add_live(&t->alive, run->replay, -1)))
        return t;
    cm_part_charts.destroy(t);
    return NULL;
}

static void count_change(span *s, device *d, const cm_change *c, const cm_origin *origin,
                         uint64_t time_ns)
{
    cm_chart_interval *now = &d->interval[s->now];
    row *r = &s->row[c->block.origin];
    if (c->bytes > 0) {
        now->allocated += c->bytes;
        r->allocated += c->bytes;
        r->made++;
        if (c->event && origin->phase < CM_CHART_PHASES)
            now->allocations[origin->phase]++;
    } else {
        now->freed -= c->bytes;
        r->freed -= c->bytes;
    }
    if (c->live < now->low)
        now->low = c->live;
    if (c->live > now->high) {
        int64_t begin = now->begin_ns;
        now->high = c->live;
        now->high_ns = (int64_t)time_ns > begin ? (int64_t)time_ns : begin;
        d->moment++;
    }
}

static bool change(void *part, const cm_change *c)
{
    charts *t = part;
    uint32_t origin = c->block.origin;
    uint64_t time_ns = in_window(t, c->time_ns);
    cm_amount *alive = cm_amounts_of(&t->alive, origin);
    if (alive == NULL)
        return false;
    for (size_t i = 0; i < t->spans; i++) {
        span *s = &t->span[i];
        if (!come_to(t, s, time_ns))
            return false;
        if (s->over || !s->entered)
            continue;
        device *d = &s->device[c->block.device];
        if (d->interval == NULL)
            continue;
        if (!reserve_row(s, origin) || !touch(s, d, origin))
            return false;
        cm_snapshot_save(&s->row[origin].high, d->moment, *alive);
    }
    alive->bytes += c->bytes;
    for (size_t i = 0; i < t->spans; i++) {
        span *s = &t->span[i];
        if (s->over)
            continue;
        device *d = &s->device[c->block.device];
        d->live = c->live;
        if (s->entered && d->interval != NULL)
            count_change(s, d, c, &t->run->replay->origin[origin], time_ns);
    }
    return see_block(t, c, time_ns);
}

static bool event(void *part, const cm_record *record)
{
    charts *t = part;
    const cm_event *e = &record->event;
    const cm_replay *replay = t->run->replay;
    int number = cm_replay_find_device(replay, e->device_type, e->device_index);
    for (size_t i = 0; number >= 0 && i < t->spans; i++) {
        span *s = &t->span[i];
        if (!come_to(t, s, in_window(t, record->time_ns)))
            return false;
        if (s->over)
            continue;
        device *d = &s->device[number];
        if (d->interval == NULL)
            continue;
        cm_chart_interval *now = &d->interval[s->now];
        if (e->kind == CM_EV_RESERVED)
            d->reserved = replay->device[number].reserved;
        if (!s->entered)
            continue;
        if (e->kind == CM_EV_COMPACTED_BLOCKS) {
            now->allocated += e->size;
            now->freed += e->size;
        } else if (d->reserved > now->reserved) {
            now->reserved = d->reserved;
        }
    }
    return true;
}

/* -- the result ------------------------------------------------------------------------------- */

typedef struct origins {
    uint32_t *origin;
    size_t count, capacity;
} origins;

static bool want(span *s, origins *o, uint32_t origin)
{
    if (!reserve_row(s, origin))
        return false;
    if (s->row[origin].wanted)
        return true;
    if (!cm_grow((void **)&o->origin, &o->capacity, o->count + 1, sizeof *o->origin))
        return false;
    s->row[origin].wanted = true;
    o->origin[o->count++] = origin;
    return true;
}

static int by_number(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static int by_contributor(const void *left, const void *right)
{
    const cm_chart_entry *a = left, *b = right;
    if (a->contributor != b->contributor)
        return a->contributor < b->contributor ? -1 : 1;
    return a->interval < b->interval ? -1 : a->interval > b->interval;
}

/* Numbers the contributors in the replay's order of origins. */
static bool number_contributors(const charts *t, span *s, device *d, cm_chart *out)
{
    origins o = {0};
    bool fine = true;
    for (size_t i = 0; fine && i < d->entry_count; i++)
        fine = want(s, &o, d->entry[i].contributor);
    for (size_t i = 0; fine && i < out->block_count; i++)
        fine = want(s, &o, out->block[i].contributor);
    out->contributor = fine ? malloc((o.count + 1) * sizeof *out->contributor) : NULL;
    if (out->contributor != NULL)
        cm_sort(o.origin, o.count, sizeof *o.origin, by_number);
    for (size_t i = 0; out->contributor != NULL && i < o.count; i++) {
        row *r = &s->row[o.origin[i]];
        out->contributor[out->contributor_count++] =
            cm_contributor_of(t->run->replay, o.origin[i], (cm_amount){r->most, r->made});
        r->touched = (uint32_t)i; /* from here on its number */
    }
    for (size_t i = 0; out->contributor != NULL && i < d->entry_count; i++)
        d->entry[i].contributor = s->row[d->entry[i].contributor].touched;
    for (size_t i = 0; out->contributor != NULL && i < out->block_count; i++)
        out->block[i].contributor = s->row[out->block[i].contributor].touched;
    free(o.origin);
    return out->contributor != NULL;
}

static bool put(const charts *t, size_t number, size_t index, cm_chart *out)
{
    span *s = &t->span[number];
    device *d = &s->device[index];
    *out = (cm_chart){.device = (uint32_t)index,
                      .span = (uint32_t)number,
                      .begin_ns = (int64_t)s->asked.begin_ns,
                      .end_ns = (int64_t)s->asked.end_ns};
    if ((d->entry_count > s->asked.entries && !hide_smallest(s, d)) ||
        !cm_chart_heap_merge(&d->largest, &d->survivors, &out->block, &out->block_count) ||
        !number_contributors(t, s, d, out))
        return false;
    cm_sort(d->entry, d->entry_count, sizeof *d->entry, by_contributor);
    out->hidden = d->hidden;
    out->least_block = d->largest.least;
    out->least_survivor = d->survivors.least;
    out->interval = d->interval;
    out->interval_count = s->intervals;
    out->entry = d->entry;
    out->entry_count = d->entry_count;
    d->interval = NULL;
    d->entry = NULL;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    charts *t = part;
    size_t devices = t->run->replay->device_count;
    if (t->spans == 0)
        return true;
    if (!offer_living(t))
        return false;
    out->charts = calloc(t->spans * devices + 1, sizeof *out->charts);
    if (out->charts == NULL)
        return false;
    for (size_t i = 0; i < t->spans; i++) {
        span *s = &t->span[i];
        if (!know_devices(t, s) || (!s->over && !leave(t, s)))
            return false;
        for (size_t d = 0; d < devices; d++)
            if (s->device[d].interval != NULL && !put(t, i, d, &out->charts[out->chart_count++]))
                return false;
    }
    return true;
}

static void destroy(void *part)
{
    charts *t = part;
    for (size_t i = 0; t->span != NULL && i < t->spans; i++) {
        span *s = &t->span[i];
        for (size_t d = 0; d < s->devices; d++) {
            free(s->device[d].interval);
            free(s->device[d].touched);
            free(s->device[d].entry);
            cm_chart_heap_clear(&s->device[d].largest);
            cm_chart_heap_clear(&s->device[d].survivors);
        }
        free(s->device);
        free(s->row);
    }
    free(t->span);
    free(t->alive.of);
    cm_idmap_clear(&t->birth_of);
    free(t->birth);
    free(t->unused);
    free(t);
}

static bool listens(const cm_run *run)
{
    return run->options->chart_count > 0;
}

const cm_part_kind cm_part_charts = {.name = "charts",
                                     .create = create,
                                     .change = change,
                                     .listens = listens,
                                     .event = event,
                                     .events = CM_PART_EVENT(CM_EV_RESERVED) |
                                               CM_PART_EVENT(CM_EV_COMPACTED_BLOCKS),
                                     .finish = finish,
                                     .destroy = destroy};
