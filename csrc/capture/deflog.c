/* The definition log: a byte ring in the shared mapping, one producer (whoever holds the intern
 * mutex), one consumer (the collector). */
#include "../frames/deflog.h"

#include <string.h>

#include "collector.h"
#include "ring.h"

bool cm_deflog_append_hook(const void *records, size_t length)
{
    cm_space *space = &cm_the_space;
    cm_ring_header *header = space->header;

    if (header == NULL)
        return false;
    uint64_t head = atomic_load_explicit(&space->log_head, memory_order_relaxed);
    /* Acquire: the bytes before tail have been copied out before they are written again. */
    uint64_t tail = atomic_load_explicit(&space->log_tail, memory_order_acquire);
    if (length > space->log_bytes - (head - tail)) {
        cm_collector_wake_hook();
        return false;
    }
    size_t at = (size_t)(head % space->log_bytes);
    size_t first = space->log_bytes - at;
    if (first > length)
        first = length;
    memcpy(space->log + at, records, first);
    memcpy(space->log, (const char *)records + first, length - first);
    /* Release: the records are there for whoever sees the position; and any event that the caller
     * publishes afterwards comes after it. */
    atomic_store_explicit(&space->log_head, head + length, memory_order_release);
    atomic_store_explicit(&header->log_head, head + length, memory_order_release);
    if (head + length - tail > space->log_bytes / 2)
        cm_collector_wake_hook();
    return true;
}
