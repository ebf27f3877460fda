/* Pools, and totals of devices. */
#include "driver_map_parts.h"

/* A bounded table: programs have few pools. */
void cm_driver_map_apply_pool(cm_driver_map *m, const cm_event *e)
{
    struct cm_driver_pool *found = NULL, *vacant = NULL;
    for (size_t i = 0; i < CM_DRIVER_POOLS && found == NULL; i++) {
        struct cm_driver_pool *p = &m->pool[i];
        if (!p->known || p->address == e->address)
            found = p;
        else if (p->gone && vacant == NULL)
            vacant = p;
    }
    if (found == NULL || !found->known)
        found = vacant != NULL ? vacant : found;
    if (found == NULL || e->size < 0 || e->size > CM_DRIVER_SIZE_MOST)
        return;
    bool gone = e->flags == CM_POOL_DESTROYED;
    *found = (struct cm_driver_pool){e->address, gone ? 0 : e->size, e->device_index, true, gone};
}

/* Bytes that the pools of a device hold; -1: unknown. */
static int64_t held_by_pools(const cm_driver_map *m, int8_t index, int64_t pooled)
{
    int64_t held = -1;
    if (pooled >= 0)
        return pooled + m->device[cm_driver_map_place(index)].async_other;
    for (size_t i = 0; i < CM_DRIVER_POOLS && m->pool[i].known; i++)
        if (m->pool[i].device == index)
            held = (held < 0 ? 0 : held) + m->pool[i].size;
    return held;
}

static int64_t known_bytes(int64_t size)
{
    return size < 0 || size > CM_DRIVER_SIZE_MOST ? -1 : size;
}

static int64_t known(int64_t bytes)
{
    return bytes > 0 ? bytes : 0;
}

static void end_moment(cm_driver_map *m, int8_t index, bool quiet)
{
    cm_driver_state *d = &m->device[cm_driver_map_place(index)];
    cm_driver_moment now = d->reading;
    int64_t live = d->async_own + d->async_other, held = held_by_pools(m, index, now.pooled);
    if (held >= 0) {
        now.pool_slack = held > live ? held - live : 0;
        now.pool_short = held < live ? live - held : 0;
    }
    /* Less than their bytes: overlapping allocations, which is damage. */
    int64_t paged = d->pages * CM_GRANULE;
    now.driver_rounding = paged > d->paged ? paged - d->paged : 0;
    now.quiet = quiet;
    now.block_bytes = d->block_bytes;
    now.block_slack = d->block_slack;
    now.driver = m->totals.device[cm_driver_map_place(index)].bytes;
    if (quiet && !d->context_known) {
        d->context = now.used - known(now.others) - known(now.host) - known(now.cache) -
                     m->totals.device[cm_driver_map_place(index)].bytes - now.pool_slack -
                     now.driver_rounding;
        if (d->context < 0)
            d->context = 0;
        d->context_known = true;
    }
    now.context = d->context;
    d->last = now;
    if (quiet && d->first_quiet.used < 0)
        d->first_quiet = now;
    if (quiet)
        d->last_quiet = now;
    d->moments++;
    d->reading = CM_DRIVER_MOMENT_UNKNOWN;
}

void cm_driver_map_apply_device(cm_driver_map *m, const cm_event *e)
{
    cm_driver_moment *reading = &m->device[cm_driver_map_place(e->device_index)].reading;
    int64_t bytes = known_bytes(e->size);
    switch (e->address) {
    case CM_DEVICE_BYTES_TOTAL:
        reading->total = bytes;
        return;
    case CM_DEVICE_BYTES_OWN:
        reading->own = bytes;
        return;
    case CM_DEVICE_BYTES_OTHERS:
        reading->others = bytes;
        return;
    case CM_DEVICE_BYTES_POOLED:
        reading->pooled = bytes;
        return;
    case CM_DEVICE_BYTES_RESERVED:
        reading->reserved = bytes;
        return;
    case CM_DEVICE_BYTES_HOST:
        reading->host = bytes;
        return;
    case CM_DEVICE_BYTES_CACHE:
        reading->cache = bytes;
        return;
    case CM_DEVICE_BYTES_USED:
        reading->used = bytes;
        if (bytes >= 0)
            end_moment(m, e->device_index, (e->flags & CM_EVF_QUIET) != 0);
        return;
    default:
        return;
    }
}
