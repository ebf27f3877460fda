/* Reads of values that a simulated device never computed, by stack, device and whether the host had
 * written them. */
#include "../base/grow.h"
#include "../base/idmap.h"
#include "parts.h"

typedef struct reads {
    const cm_run *run;
    cm_host_read *read;
    size_t count, capacity;
    cm_idmap at; /* device, written, stack -> index */
} reads;

static void *create(const cm_run *run)
{
    reads *r = calloc(1, sizeof *r);
    if (r != NULL)
        r->run = run;
    return r;
}

static bool event(void *part, const cm_record *record)
{
    reads *r = part;
    const cm_event *e = &record->event;
    uint32_t at;
    if (e->size < 0)
        return true;
    int device = cm_replay_find_device(r->run->replay, e->device_type, e->device_index);
    bool written = (e->flags & CM_EVF_WRITTEN) != 0;
    uint64_t key = ((uint64_t)(uint32_t)device << 1 | written) << 32 | e->stack;
    if (device < 0)
        return true;
    if (!cm_idmap_get(&r->at, key, &at)) {
        at = (uint32_t)r->count;
        if (!cm_grow((void **)&r->read, &r->capacity, r->count + 1, sizeof *r->read) ||
            !cm_idmap_put(&r->at, key, at))
            return false;
        r->read[r->count++] =
            (cm_host_read){.stack = e->stack, .device = (uint32_t)device, .written = written};
    }
    r->read[at].count++;
    if (e->size <= INT64_MAX - r->read[at].bytes)
        r->read[at].bytes += e->size;
    return true;
}

static int by_count(const void *left, const void *right)
{
    const cm_host_read *a = left, *b = right;
    if (a->written != b->written)
        return a->written ? 1 : -1;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    if (a->device != b->device)
        return a->device > b->device ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static bool finish(void *part, cm_analysis *out)
{
    reads *r = part;
    cm_sort(r->read, r->count, sizeof *r->read, by_count);
    out->host_reads = r->read;
    out->host_read_count = r->count;
    r->read = NULL;
    return true;
}

static void destroy(void *part)
{
    reads *r = part;
    free(r->read);
    cm_idmap_clear(&r->at);
    free(r);
}

const cm_part_kind cm_part_host_reads = {.name = "host reads",
                                         .create = create,
                                         .event = event,
                                         .events = CM_PART_EVENT(CM_EV_HOST_READ),
                                         .finish = finish,
                                         .destroy = destroy};
