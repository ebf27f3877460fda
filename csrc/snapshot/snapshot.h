/* What a memory snapshot of PyTorch's says (torch.cuda.memory._dump_snapshot, and those of its
 * other devices): the segments and blocks of its moment, and of each device the newest events. */
#ifndef CM_SNAPSHOT_SNAPSHOT_H
#define CM_SNAPSHOT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intern.h"
#include "words.h"

enum { CM_SNAP_TEXT_MAX = 4096, CM_SNAP_DEPTH = 1000 };

/* Texts, frames and stacks are known by their ids; 0 of a stack: no frames. */
typedef struct cm_snap_frame {
    uint32_t file, name;
    int32_t line;
} cm_snap_frame;

typedef struct cm_snap_event {
    uint64_t address;
    int64_t size;
    uint64_t time_us;
    int64_t block_size; /* of an allocation, as far as known: PyTorch says what was asked for */
    int64_t requested;  /* cuptimem says so where the size is the block's; -1: it does not */
    uint32_t stack;
    uint32_t metadata; /* text, 0: none */
    uint8_t action;    /* cm_snap_word, 0: unknown */
} cm_snap_event;

typedef struct cm_snap_block {
    uint64_t address;
    int64_t size, requested; /* requested: -1 unknown */
    uint32_t stack;
    uint8_t state; /* cm_snap_word, 0: unknown */
} cm_snap_block;

typedef struct cm_snap_segment {
    uint64_t address;
    int64_t size;
    uint32_t stack, first_block, end_block;
    int32_t device;
    uint8_t type; /* cm_snap_word, 0: unknown */
    bool expandable;
    bool alone; /* cuptimem made it up for its one block */
} cm_snap_segment;

/* The beginning or the end of what the program, or PyTorch's profiler hooks, gave a name. */
typedef struct cm_snap_note {
    uint64_t time_us;
    uint32_t name;
    int32_t device;
    uint8_t stage; /* cm_snap_word */
} cm_snap_note;

typedef struct cm_snap_range {
    uint32_t first, end;
} cm_snap_range;

enum { CM_SNAP_POWERS = 16, CM_SNAP_UNKNOWN = 8 };

typedef struct cm_snap {
    cm_texts texts;
    cm_records frames; /* cm_snap_frame */
    cm_sequences stacks;
    cm_snap_event *event;
    cm_snap_block *block;
    cm_snap_segment *segment;
    cm_snap_note *note;
    cm_snap_range *trace;
    size_t events, blocks, segments, notes, traces;
    uint32_t placed, traced; /* blocks that have a segment, events that have a device */
    size_t event_capacity, block_capacity, segment_capacity, note_capacity, trace_capacity;
    uint32_t *open; /* frames of lists that are not yet stacks */
    size_t opened, open_capacity;

    /* What the whole names. */
    cm_snap_range device_traces, host_events, all_segments, host_segments, annotations;
    uint32_t settings, exporter, devices, missing, unreported; /* texts */
    bool settings_known, from_xpu, has_traces;
    int64_t max_split; /* 0: none */
    uint8_t divisions[CM_SNAP_POWERS];
    uint32_t unknown[CM_SNAP_UNKNOWN]; /* keys that mean nothing here: texts */
    size_t unknown_count;
    uint64_t cut_stacks, cut_texts;
} cm_snap;

bool cm_snap_init(cm_snap *snapshot); /* false: out of memory */
void cm_snap_clear(cm_snap *snapshot);

static inline const cm_snap_frame *cm_snap_frame_at(const cm_snap *snapshot, uint32_t frame)
{
    return (const cm_snap_frame *)cm_records_at(&snapshot->frames, frame);
}

#endif
