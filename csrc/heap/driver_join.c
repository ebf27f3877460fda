#include "driver_join.h"

#include <stdlib.h>

#include "../base/grow.h"

enum { CHAIN = 16 }; /* of one id: the most that are searched */

void cm_driver_join_clear(cm_driver_join *j)
{
    free(j->events.entry);
    free(j->records.entry);
    cm_idmap_clear(&j->events.newest);
    cm_idmap_clear(&j->records.newest);
    *j = (cm_driver_join){0};
}

static bool copy_queue(cm_join_queue *copy, const cm_join_queue *q)
{
    size_t entries = q->entry == NULL ? 0 : CM_JOIN_WAITING;
    copy->first = q->first;
    copy->next = q->next;
    return cm_copy((void **)&copy->entry, q->entry, entries, sizeof *q->entry) &&
           cm_idmap_copy(&copy->newest, &q->newest);
}

bool cm_driver_join_copy(cm_driver_join *copy, const cm_driver_join *j)
{
    *copy = *j;
    copy->events = copy->records = (cm_join_queue){0};
    if (copy_queue(&copy->events, &j->events) && copy_queue(&copy->records, &j->records))
        return true;
    cm_driver_join_clear(copy);
    return false;
}

static uint64_t key_of(uint32_t correlation, bool release)
{
    return (uint64_t)correlation << 1 | release;
}

static cm_join_entry *at(const cm_join_queue *q, uint64_t number)
{
    if (number < q->first || number >= q->next)
        return NULL;
    return &q->entry[number % CM_JOIN_WAITING];
}

/* The newest with this key, as number + 1; 0: none. */
static uint64_t newest(const cm_join_queue *q, uint64_t key)
{
    uint32_t low;
    if (!cm_idmap_get(&q->newest, key, &low))
        return 0;
    uint64_t number = (q->next & ~(uint64_t)UINT32_MAX) | low;
    if (number >= q->next)
        number -= (uint64_t)1 << 32;
    const cm_join_entry *e = at(q, number);
    return e != NULL && e->key == key ? number + 1 : 0;
}

static bool expire(cm_join_queue *q)
{
    cm_join_entry *oldest = &q->entry[q->first % CM_JOIN_WAITING];
    if (newest(q, oldest->key) == q->first + 1)
        cm_idmap_remove(&q->newest, oldest->key);
    q->first++;
    return !oldest->done;
}

static bool add(cm_join_queue *q, uint64_t key, const cm_join_side *side, uint64_t *expired)
{
    if (q->entry == NULL) {
        q->entry = malloc(CM_JOIN_WAITING * sizeof *q->entry);
        if (q->entry == NULL)
            return false;
    }
    while (q->first < q->next &&
           (q->entry[q->first % CM_JOIN_WAITING].done || q->next - q->first == CM_JOIN_WAITING))
        *expired += expire(q);
    uint64_t older = newest(q, key);
    if (!cm_idmap_put(&q->newest, key, (uint32_t)q->next))
        return false;
    q->entry[q->next % CM_JOIN_WAITING] =
        (cm_join_entry){.side = *side, .key = key, .older = older};
    q->next++;
    return true;
}

/* Takes the oldest with the same address, else the oldest. */
static bool take(cm_join_queue *q, uint64_t key, uint64_t address, cm_join_side *out)
{
    cm_join_entry *best = NULL;
    bool fits = false;
    uint64_t number = newest(q, key);
    for (int i = 0; i < CHAIN && number != 0; i++) {
        cm_join_entry *e = at(q, number - 1);
        if (e == NULL || e->key != key)
            break;
        bool here = e->side.address == address;
        if (!e->done && (here || !fits)) {
            best = e;
            fits = here;
        }
        number = e->older;
    }
    if (best == NULL)
        return false;
    best->done = true;
    *out = best->side;
    return true;
}

static void judge(cm_driver_join *j, const cm_join_side *event, const cm_join_side *record)
{
    bool same = event->address == record->address &&
                (event->size == 0 || record->size == 0 || event->size == record->size) &&
                (event->device < 0 || record->device < 0 || event->device == record->device);
    j->matched += same;
    j->differ += !same;
}

int cm_driver_join_event(cm_driver_join *j, uint32_t correlation, const cm_join_side *event,
                         cm_join_side *other, uint64_t *number)
{
    uint64_t key = key_of(correlation, event->release);
    if (take(&j->records, key, event->address, other)) {
        judge(j, event, other);
        return 1;
    }
    if (!add(&j->events, key, event, &j->expired_events))
        return -1;
    *number = j->events.next - 1;
    return 0;
}

int cm_driver_join_record(cm_driver_join *j, uint32_t correlation, const cm_join_side *record,
                          cm_join_side *other)
{
    uint64_t key = key_of(correlation, record->release);
    if (take(&j->events, key, record->address, other)) {
        judge(j, other, record);
        return 1;
    }
    if (j->compacted_events > 0 && j->knows_compacted_id &&
        !cm_correlation_is_older(j->compacted_id, correlation)) {
        j->compacted_events--;
        return 0;
    }
    return add(&j->records, key, record, &j->expired_records) ? 0 : -1;
}

cm_join_side *cm_driver_join_waiting(cm_driver_join *j, uint64_t number)
{
    cm_join_entry *e = at(&j->events, number);
    return e != NULL && !e->done ? &e->side : NULL;
}

void cm_driver_join_forget(cm_driver_join *j, uint64_t number)
{
    cm_join_entry *e = at(&j->events, number);
    if (e != NULL)
        e->done = true;
}

static uint64_t waiting(const cm_join_queue *q)
{
    uint64_t count = 0;
    for (uint64_t i = q->first; i < q->next; i++)
        count += !q->entry[i % CM_JOIN_WAITING].done;
    return count;
}

uint64_t cm_driver_join_events_waiting(const cm_driver_join *j)
{
    return waiting(&j->events);
}

uint64_t cm_driver_join_records_waiting(const cm_driver_join *j)
{
    return waiting(&j->records);
}
