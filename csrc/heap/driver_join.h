/* Joins driver events with the activity records of the same calls, by correlation id. Either may
 * come first. Ids wrap, so only the last CM_JOIN_WAITING of each kind wait. One id may have several
 * records, so one with the same address is preferred. One owner, any thread. */
#ifndef CM_HEAP_DRIVER_JOIN_H
#define CM_HEAP_DRIVER_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/idmap.h"

enum { CM_JOIN_WAITING = 1 << 15 };

typedef struct cm_join_side {
    uint64_t address;
    int64_t size; /* 0: unknown */
    int device;   /* -1: unknown */
    uint32_t library;
    bool release;
    /* Of an event: the allocation that receives the library. Its slot is reused later. */
    uint32_t allocation; /* slot + 1; 0: none, or gone */
    uint32_t total;
    int64_t counted;
    uint64_t birth, death;
} cm_join_side;

typedef struct cm_join_entry {
    cm_join_side side;
    uint64_t key;
    uint64_t older; /* number of the previous one with this key, + 1 */
    bool done;
} cm_join_entry;

typedef struct cm_join_queue {
    cm_join_entry *entry; /* a ring */
    uint64_t first, next; /* numbers */
    cm_idmap newest;      /* key -> low half of the newest one's number */
} cm_join_queue;

typedef struct cm_driver_join {
    cm_join_queue events, records;
    uint64_t record_count, matched, differ;
    uint64_t expired_events, expired_records;
    int64_t compacted_events; /* compacted events without a record, less later records */
    uint32_t compacted_id;    /* the newest of theirs */
    bool knows_compacted_id;
} cm_driver_join;

/* Ids are given out in the order of calls, and wrap. */
static inline bool cm_correlation_is_older(uint32_t one, uint32_t other)
{
    return (int32_t)(one - other) < 0;
}

/* All zero is an empty one. */
void cm_driver_join_clear(cm_driver_join *join);
bool cm_driver_join_copy(cm_driver_join *copy,
                         const cm_driver_join *join); /* false: out of memory */
/* 1: *other is the half that waited; 0: this one waits now, as number *number; -1: out of memory.
 * A record does not wait that came behind the compacted part of a trace (its program was killed)
 * and may be of a call in there: whether the two agree cannot be told any more. */
int cm_driver_join_event(cm_driver_join *join, uint32_t correlation, const cm_join_side *event,
                         cm_join_side *other, uint64_t *number);
int cm_driver_join_record(cm_driver_join *join, uint32_t correlation, const cm_join_side *record,
                          cm_join_side *other);
/* An event that waits, or NULL. */
cm_join_side *cm_driver_join_waiting(cm_driver_join *join, uint64_t number);
/* Stops waiting, because its call failed. */
void cm_driver_join_forget(cm_driver_join *join, uint64_t number);
uint64_t cm_driver_join_events_waiting(const cm_driver_join *join);
uint64_t cm_driver_join_records_waiting(const cm_driver_join *join);

#endif
