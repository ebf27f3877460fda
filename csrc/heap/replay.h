/* The heap, record by record: what is alive, on which device, and its origin. The analyses of it
 * are in csrc/analysis. One owner, any thread.
 *
 * An allocation at a live address replaces the block there, because its free was lost or not
 * recorded. A free of an unknown block changes nothing. Both are counted. Blocks from before the
 * recording (cm_seed) are alive from its first moment, those that a later walk found from their
 * record on. */
#ifndef CM_HEAP_REPLAY_H
#define CM_HEAP_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "blocks.h"
#include "category.h"
#include "cohorts.h"
#include "driver_map.h"
#include "fate_list.h"
#include "../base/idmap.h"
#include "modules.h"
#include "nodes.h"
#include "operators.h"
#include "attribution.h"
#include "segments.h"

enum { CM_DEVICES_MAX = 256, CM_REPLAY_LATEST = 1 << 12 };

typedef struct cm_device {
    uint8_t type;
    int8_t index; /* -1 for the CPU, whatever its events contain */
    char name[24];
    int64_t live, reserved; /* reserved: -1 while unknown */
    uint64_t blocks;
    int64_t slack;     /* of the live bytes, those not requested, as far as known */
    int64_t direct;    /* of the live bytes, those outside PyTorch's cache */
    bool slack_known;  /* for some block */
    uint64_t changed;  /* position of the record that last added or removed a block */
    int64_t segmented; /* bytes in segments from cudaMalloc */
    uint64_t segments;
} cm_device;

/* The origin of a block: what the blocks of one contributor have in common. */
typedef struct cm_origin {
    uint32_t stack, own, name; /* charged, its own, name of the running node, else operator */
    uint32_t module, saved_by; /* name ids, 0 = unknown */
    uint16_t device;
    uint8_t phase;    /* cm_phase */
    uint8_t charge;   /* cm_charge_kind */
    uint8_t category; /* cm_category */
} cm_origin;

typedef struct cm_seed {
    uint64_t address;
    int64_t size;
    uint64_t position; /* of its record */
    uint8_t device_type;
    int8_t device_index;
    bool dropped; /* its address was allocated before the walk reached it */
    bool direct;
    int64_t slack;
} cm_seed;

/* One block added or removed. `live` and `blocks` are its device's, just after. */
typedef struct cm_change {
    cm_block block;
    int64_t bytes; /* its size, negative if removed */
    uint64_t time_ns;
    int64_t live;
    uint64_t blocks;
    bool event;            /* the program's own allocation or free, not a correction */
    bool highest;          /* live is the device's highest in the window so far: set by the analysis
                              (analyze.c) */
    uint32_t thread;       /* of the event */
    const cm_label *label; /* NULL: none; valid until the next record */
} cm_change;

typedef struct cm_replay {
    const char *error; /* why apply failed */
    char *code;        /* the packages that count as user code */
    cm_nodes *nodes;
    cm_operators operators;
    cm_attribution *attribution;
    cm_modules *modules;
    cm_fate_list *fates; /* of the replayed window, borrowed; NULL outside of one */
    bool only_labels;    /* outside of a window no place of birth gives a category, only a walk */
    bool labelled;       /* a walk has labelled something */
    const cm_block *relabelled; /* by the last label, from this origin; NULL: none */
    uint32_t relabelled_from;
    cm_label *label; /* distinct ones */
    size_t label_count, label_capacity;
    cm_idmap label_known, label_of; /* by content; of a live block, by its address */
    cm_blocks blocks;
    cm_cohorts *cohorts; /* of the blocks */
    cm_segments segments;
    cm_driver_map *driver; /* NULL before the first event of the driver level */
    const cm_reader *reader;
    cm_library *library; /* which code is the user's */
    cm_device *device;
    size_t device_count, device_capacity;
    cm_origin *origin;
    size_t origin_count, origin_capacity;
    int32_t step;      /* of births from now on; -1 = before the first */
    uint64_t seeded;   /* SEED records before this position are seeds at start */
    bool walked;       /* the walk at the start is over */
    uint64_t position; /* records applied */
    uint64_t freed_by; /* the last thread that freed, + 1; 0: none */
    uint64_t unknown_frees, replaced;
    cm_backward_bytes backward;
    int64_t compacted_bytes; /* of compacted blocks (compact/compact.h) */

    uint32_t *origin_slot; /* hash: origin number + 1 */
    size_t origin_slots;
    uint32_t latest[CM_REPLAY_LATEST]; /* origins found: see cm_replay_find_origin */
    uint16_t *device_number;           /* by type and index: number + 1 */
} cm_replay;

/* code: packages that count as user code (library.h). NULL: out of memory. */
cm_replay *cm_replay_new(const cm_reader *reader, const char *code);
/* An independent copy. NULL: out of memory. */
cm_replay *cm_replay_copy(const cm_replay *replay);
void cm_replay_free(cm_replay *replay);

/* Applies the fates that the window's first reading found to the live blocks, and from now on to
 * births. false: out of memory. */
bool cm_replay_foresee(cm_replay *replay, cm_fate_list *fates);
/* The label of a live block that has one. */
const cm_label *cm_replay_find_label(const cm_replay *replay, const cm_block *block);
/* The label of a live block; NULL: none. */
static inline const cm_label *cm_replay_label(const cm_replay *replay, const cm_block *block)
{
    return block->labelled ? cm_replay_find_label(replay, block) : NULL;
}

/* Before the first record: the seeds that were not dropped are alive. false: error is set. */
bool cm_replay_seed(cm_replay *replay, const cm_seed *seeds, size_t count);
/* The origin of a live block. */
static inline uint32_t cm_replay_origin(const cm_replay *replay, const cm_block *block)
{
    return block->grouped ? replay->cohorts->cohort[block->origin].origin : block->origin;
}
/* The next block that is in no cohort, from *at = 0 on; NULL: no more. The order depends on the
 * blocks alone. Blocks made in the window are loose, as are those with labels. */
const cm_block *cm_replay_next_loose(const cm_replay *replay, size_t *at);

/* A window begins: all live blocks are from before it, in no step of it. false: out of memory. */
bool cm_replay_begin(cm_replay *replay);
/* The number of changes (0 to 2), or -1 with error set. */
int cm_replay_apply(cm_replay *replay, const cm_record *record, cm_change change[2]);
/* The number of a device, made if need be; -1 with error set: too many devices. */
int cm_replay_device(cm_replay *replay, uint8_t type, int8_t index);
/* Its place in device_number: the CPU's, whatever the index of its events is. */
static inline size_t cm_replay_device_key(uint8_t type, int8_t index)
{
    return (size_t)type << 8 | (uint8_t)(type == CM_DEVICE_CPU ? -1 : index);
}
/* Live bytes of tensors in host memory. Pinned memory is private to the process and writable on the
 * simulated device only: where it is not, growth of it hides as much of something else's. */
int64_t cm_replay_host_live(const cm_replay *replay);
/* The number of a known device; -1: unknown. */
static inline int cm_replay_find_device(const cm_replay *replay, uint8_t type, int8_t index)
{
    return replay->device_number[cm_replay_device_key(type, index)] - 1;
}

#endif
