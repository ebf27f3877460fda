/* The driver level's totals, and the ledgers of selected moments. The map belongs to the replay
 * (driver_map.h). */
#include <stdlib.h>

#include "../base/grow.h"
#include "parts.h"

typedef struct moment {
    bool seen;
    cm_driver_moment measured;
    uint64_t time_ns;
    int64_t step;
} moment;

typedef struct ledger {
    const cm_run *run;
    moment moment[CM_TOTALS_HOST][CM_SNAPSHOTS];
    int64_t step;
    bool begun; /* with the map: counts start here */
    uint64_t allocations, frees, unknown_frees, failed_frees, replaced;
    cm_record_check record_check;
} ledger;

static void begin(ledger *l)
{
    cm_driver_map *map = l->run->replay->driver;
    if (l->begun || map == NULL)
        return;
    l->begun = true;
    for (size_t i = 0; i < CM_TOTALS_DEVICES; i++)
        map->totals.device[i].peak = map->totals.device[i].bytes;
}

/* Compacted stretches may have more late records than missing ones: records of events before the
 * trace. */
static uint64_t count_missing(const cm_driver_join *join, uint64_t waiting)
{
    int64_t compacted = join->compacted_events;
    uint64_t known = join->expired_events + waiting;
    if (compacted >= 0)
        return known + (uint64_t)compacted;
    return known > (uint64_t)-compacted ? known + (uint64_t)compacted : 0;
}

static void *create(const cm_run *run)
{
    ledger *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->run = run;
    l->step = -1;
    const cm_driver_map *map = run->replay->driver;
    if (map != NULL) {
        l->allocations = map->allocations;
        l->frees = map->frees;
        l->unknown_frees = map->unknown_frees;
        l->failed_frees = map->failed_frees;
        l->replaced = map->replaced;
        l->record_check = (cm_record_check){map->join.record_count, map->join.matched,
                                            count_missing(&map->join, 0), map->join.differ,
                                            map->join.expired_records};
    }
    begin(l);
    return l;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* A moment before the context's size is known has it among what nothing explains. */
static bool is_nearer(const moment *kept, const moment *now, uint64_t at)
{
    if (!kept->seen)
        return true;
    if (kept->measured.context < 0 && now->measured.context >= 0)
        return true;
    return distance(now->time_ns, at) < distance(kept->time_ns, at);
}

static bool is_kept(const ledger *l, const moment *kept, cm_snapshot_kind snapshot,
                    const moment *now)
{
    int64_t asked = l->run->options->ledger_at_ns;
    switch (snapshot) {
    case CM_SNAPSHOT_QUIET_PEAK:
        return now->measured.quiet && (!kept->seen || now->measured.used > kept->measured.used);
    case CM_SNAPSHOT_PEAK:
        return !kept->seen || now->measured.used > kept->measured.used;
    case CM_SNAPSHOT_ASKED:
        return asked >= 0 && is_nearer(kept, now, l->run->begin_ns + (uint64_t)asked);
    default:
        return true;
    }
}

static bool event(void *part, const cm_record *record)
{
    ledger *l = part;
    const cm_event *e = &record->event;
    begin(l);
    if (e->kind != CM_EV_DEVICE || e->address != CM_DEVICE_BYTES_USED)
        return true;
    cm_driver_map *map = l->run->replay->driver;
    uint16_t place = cm_driver_map_place(e->device_index);
    const moment now = {true, map->device[place].last, record->time_ns, l->step};
    if (now.measured.used < 0)
        return true;
    for (cm_snapshot_kind p = 0; p < CM_SNAPSHOTS; p++) {
        moment *kept = &l->moment[place][p];
        if (!is_kept(l, kept, p, &now))
            continue;
        *kept = now;
        cm_totals_take_snapshot(&map->totals, place, p);
    }
    return true;
}

static bool step(void *part, int64_t ended, cm_moment end)
{
    ledger *l = part;
    int64_t last = (int64_t)l->run->steps->count - 1;
    l->step = ended + 1 <= last ? ended + 1 : -1;
    return true;
}

static bool make_ledger(const ledger *l, uint16_t place, cm_snapshot_kind snapshot,
                        cm_ledger_what what, cm_ledger *out)
{
    const cm_driver_map *map = l->run->replay->driver;
    const moment *m = &l->moment[place][snapshot];
    const cm_driver_moment *t = &m->measured;
    *out = (cm_ledger){.device = place - 128,
                       .time_ns = m->time_ns,
                       .step = m->step,
                       .what = what,
                       .quiet = t->quiet,
                       .used = t->used,
                       .total = t->total,
                       .own = t->own,
                       .others = t->others,
                       .driver_reserved = t->reserved,
                       .host = t->host,
                       .cache = t->cache,
                       .tensors = t->block_bytes - t->block_slack,
                       .rounding = t->block_slack,
                       .driver_rounding = t->driver_rounding,
                       .pool_slack = t->pool_slack,
                       .pool_short = t->pool_short,
                       .context = t->context,
                       .context_measured = map->device[place].context_made};
    if (!cm_totals_lines(&map->totals, place, snapshot, &out->line, &out->line_count))
        return false;
    int64_t torch = cm_totals_torch(&map->totals, place, snapshot), sum = 0;
    out->cached = torch > t->block_bytes ? torch - t->block_bytes : 0;
    for (size_t i = 0; i < out->line_count; i++)
        sum += out->line[i].bytes;
    sum += out->tensors + out->rounding + out->cached + out->driver_rounding + out->pool_slack;
    const int64_t beside[] = {t->context, t->others, t->host, t->cache};
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        sum += beside[i] > 0 ? beside[i] : 0;
    out->residual = t->used - sum;
    return true;
}

static bool make_ledgers(const ledger *l, cm_analysis *out)
{
    size_t capacity = 0;
    for (uint16_t place = 0; place < CM_TOTALS_HOST; place++) {
        const moment *m = l->moment[place];
        cm_snapshot_kind peak =
            m[CM_SNAPSHOT_QUIET_PEAK].seen ? CM_SNAPSHOT_QUIET_PEAK : CM_SNAPSHOT_PEAK;
        const cm_snapshot_kind snapshots[] = {peak, CM_SNAPSHOT_END, CM_SNAPSHOT_ASKED};
        for (cm_ledger_what what = CM_LEDGER_PEAK; what <= CM_LEDGER_ASKED; what++) {
            if (!m[snapshots[what]].seen)
                continue;
            if (!cm_grow((void **)&out->ledgers, &capacity, out->ledger_count + 1,
                         sizeof *out->ledgers) ||
                !make_ledger(l, place, snapshots[what], what, &out->ledgers[out->ledger_count++]))
                return false;
        }
    }
    return true;
}

static bool describe(const cm_totals *totals, uint16_t place, cm_driver_device *out)
{
    *out = (cm_driver_device){.index = place == CM_TOTALS_HOST ? -1 : place - 128,
                              .bytes = totals->device[place].bytes,
                              .peak = totals->device[place].peak};
    return cm_totals_lines(totals, place, CM_SNAPSHOTS, &out->line, &out->line_count);
}

static bool finish(void *part, cm_analysis *out)
{
    ledger *l = part;
    const cm_driver_map *map = l->run->replay->driver;
    cm_driver_report *d = &out->driver;
    size_t capacity = 0;
    d->host.index = -1;
    if (map == NULL)
        return true;
    d->seen = true;
    d->allocations = map->allocations - l->allocations;
    d->frees = map->frees - l->frees;
    d->unknown_frees = map->unknown_frees - l->unknown_frees;
    d->failed_frees = map->failed_frees - l->failed_frees;
    d->replaced = map->replaced - l->replaced;
    const cm_driver_join *join = &map->join;
    uint64_t unmatched = count_missing(join, cm_driver_join_events_waiting(join));
    uint64_t alone = join->expired_records + cm_driver_join_records_waiting(join);
    d->record_check = (cm_record_check){
        .records = join->record_count - l->record_check.records,
        .matched = join->matched - l->record_check.matched,
        .missing = join->record_count > 0 && unmatched > l->record_check.missing
                       ? unmatched - l->record_check.missing
                       : 0,
        .differ = join->differ - l->record_check.differ,
        .alone = alone - l->record_check.alone,
    };
    for (uint16_t place = 0; place < CM_TOTALS_HOST; place++) {
        if (!map->totals.device[place].seen)
            continue;
        if (!cm_grow((void **)&d->device, &capacity, d->device_count + 1, sizeof *d->device) ||
            !describe(&map->totals, place, &d->device[d->device_count++]))
            return false;
    }
    return describe(&map->totals, CM_TOTALS_HOST, &d->host) && make_ledgers(l, out);
}

static void destroy(void *part)
{
    free(part);
}

const cm_part_kind cm_part_ledger = {.name = "ledger",
                                     .create = create,
                                     .event = event,
                                     .events = CM_DRIVER_MAP_EVENTS,
                                     .step = step,
                                     .finish = finish,
                                     .destroy = destroy};
