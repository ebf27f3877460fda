/* Bytes of driver allocations by library, stack and kind, now and in snapshots (snapshot.h). If an
 * allocation's library or PyTorch's ownership becomes known later, its snapshots are corrected,
 * too. One owner, any thread. */
#ifndef CM_HEAP_GROUP_TOTALS_H
#define CM_HEAP_GROUP_TOTALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

/* Driver allocations of one kind that one library made on one stack. */
typedef struct cm_driver_line {
    int64_t bytes;
    uint64_t count;
    uint32_t library; /* name id, 0 = unknown */
    uint32_t stack;
    uint8_t kind;  /* cm_driver_kind */
    bool torch;    /* PyTorch's allocator holds it (driver_map.h) */
    bool backward; /* made while an autograd node ran: charged like blocks (nodes.h) */
} cm_driver_line;

typedef enum cm_snapshot_kind {
    CM_SNAPSHOT_PEAK = 0,
    CM_SNAPSHOT_QUIET_PEAK,
    CM_SNAPSHOT_END,
    CM_SNAPSHOT_ASKED,
    CM_SNAPSHOTS
} cm_snapshot_kind;

#define CM_TOTALS_MOST ((int64_t)1 << 60) /* larger sums are damage */
enum { CM_TOTALS_NONE = UINT32_MAX };
enum { CM_TOTALS_HOST = 256, CM_TOTALS_DEVICES }; /* index + 128 for devices; host memory */

typedef struct cm_total {
    cm_driver_line line; /* now */
    uint16_t device;     /* index into cm_totals.device */
    cm_snapshot saved[CM_SNAPSHOTS];
} cm_total;

/* The total that an allocation belongs to. */
typedef struct cm_total_key {
    uint32_t library, stack;
    uint16_t device;
    uint8_t kind;
    bool torch, backward;
} cm_total_key;

typedef struct cm_totals {
    struct cm_totals_device {
        bool seen;
        int64_t bytes, peak; /* of kinds that take memory there */
        uint64_t snapshot[CM_SNAPSHOTS];
    } device[CM_TOTALS_DEVICES];
    uint64_t clock; /* numbers allocations and snapshots in their order */
    cm_total *total;
    size_t count, capacity;
    uint32_t *slot; /* hash: total + 1 */
    size_t slots;
} cm_totals;

/* Whether this kind takes memory of the device of its event. */
bool cm_totals_takes(uint8_t kind);
bool cm_totals_is_host(uint8_t kind);

void cm_totals_clear(cm_totals *totals);                       /* all zero is an empty one */
bool cm_totals_copy(cm_totals *copy, const cm_totals *totals); /* false: out of memory */
/* The total's number; CM_TOTALS_NONE: out of memory. */
uint32_t cm_totals_find(cm_totals *totals, const cm_total_key *key);
cm_total_key cm_totals_key(const cm_totals *totals, uint32_t total);
/* Adds (sign 1) or removes (-1) one allocation. false: sums of an impossible size. */
bool cm_totals_add(cm_totals *totals, uint32_t total, int64_t size, int sign);
/* Moves an allocation that lived from clock birth to death (0: still lives) to another total of the
 * same device. */
void cm_totals_move(cm_totals *totals, uint32_t from, uint32_t to, int64_t size, uint64_t birth,
                    uint64_t death);
/* Clock of the newest snapshot of the total's device; 0: none, or no total. */
uint64_t cm_totals_latest(const cm_totals *totals, uint32_t total);
void cm_totals_take_snapshot(cm_totals *totals, uint16_t device, cm_snapshot_kind snapshot);
/* PyTorch's bytes in that snapshot, of kinds that take memory. */
int64_t cm_totals_torch(const cm_totals *totals, uint16_t device, cm_snapshot_kind snapshot);
/* The lines of a device, largest first; the caller frees them. snapshot < CM_SNAPSHOTS: those of
 * that moment that take memory and are not PyTorch's; otherwise all of now. false: out of memory.
 */
bool cm_totals_lines(const cm_totals *totals, uint16_t device, cm_snapshot_kind snapshot,
                     cm_driver_line **lines, size_t *count);

#endif
