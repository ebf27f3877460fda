/* The definition log: a byte ring in the shared mapping, one producer (holding the intern mutex),
 * one consumer (the collector). */
#include "../frames/deflog.h"

#include <string.h>

#include "ringfile.h"
#include "wake.h"

bool cm_deflog_append_hook(const void *records, size_t length)
{
    cm_ringfile_state *file = &cm_ringfile;
    cm_ring_header *header = file->header;

    if (header == NULL)
        return false;
    uint64_t head = atomic_load_explicit(&file->log_head, memory_order_relaxed);
    /* Acquire: the bytes before tail have been copied out before they are overwritten. */
    uint64_t tail = atomic_load_explicit(&file->log_tail, memory_order_acquire);
    if (length > file->log_bytes - (head - tail)) {
        cm_wake_collector_hook();
        return false;
    }
    size_t at = (size_t)(head % file->log_bytes);
    size_t first = file->log_bytes - at;
    if (first > length)
        first = length;
    memcpy(file->log + at, records, first);
    memcpy(file->log, (const char *)records + first, length - first);
    /* Release: a reader of the position sees the records; events that the caller publishes
     * afterwards come after it. */
    atomic_store_explicit(&file->log_head, head + length, memory_order_release);
    atomic_store_explicit(&header->log_head, head + length, memory_order_release);
    if (head + length - tail > file->log_bytes / 2)
        cm_wake_collector_hook();
    return true;
}
