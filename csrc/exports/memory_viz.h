/* The entries and segments of torch.cuda.memory._snapshot(), pickled, for memory_viz: the format is
 * in cuptimem/output/exports/memory_viz.py. Texts come from a namer, whole the first time and then
 * as a number under which the pickle's reader keeps them. They are asked for in the order in which
 * they stand in the file. One owner, any thread. */
#ifndef CM_EXPORTS_MEMORY_VIZ_H
#define CM_EXPORTS_MEMORY_VIZ_H

#include "live.h"
#include "text.h"

typedef enum cm_word {
    /* actions */
    CM_WORD_ALLOC = 0,
    CM_WORD_FREE_REQUESTED,
    CM_WORD_FREE_COMPLETED,
    CM_WORD_SEGMENT_ALLOC,
    CM_WORD_SEGMENT_FREE,
    CM_WORD_SEGMENT_MAP,
    CM_WORD_SEGMENT_UNMAP,
    CM_WORD_MOMENT,
    CM_WORD_OOM,
    /* keys and values */
    CM_WORD_ACTION,
    CM_WORD_ADDR,
    CM_WORD_SIZE,
    CM_WORD_STREAM,
    CM_WORD_TIME_US,
    CM_WORD_FRAMES,
    CM_WORD_USER_METADATA,
    CM_WORD_DEVICE_FREE,
    CM_WORD_DEVICE,
    CM_WORD_ADDRESS,
    CM_WORD_TOTAL_SIZE,
    CM_WORD_ALLOCATED_SIZE,
    CM_WORD_ACTIVE_SIZE,
    CM_WORD_SEGMENT_TYPE,
    CM_WORD_IS_EXPANDABLE,
    CM_WORD_LARGE,
    CM_WORD_SMALL,
    CM_WORD_BLOCKS,
    CM_WORD_REQUESTED_SIZE,
    CM_WORD_STATE,
    CM_WORD_ACTIVE_ALLOCATED,
    CM_WORD_INACTIVE,
    CM_WORD_ALONE,        /* cuptimem's own: the segment is made up for one block */
    CM_WORD_BEFORE_START, /* cuptimem's own: the block was alive before its events began */
    CM_WORDS
} cm_word;
extern const char *const cm_words[CM_WORDS];

typedef enum cm_viz_what {
    CM_VIZ_WORD,   /* number: a cm_word */
    CM_VIZ_ORIGIN, /* the frames of a block's origin */
    CM_VIZ_STACK   /* the frames of a segment, of a refused allocation */
} cm_viz_what;

typedef struct cm_viz_name {
    cm_piece first, later; /* later: without bytes, it is asked for again */
    cm_piece about;        /* of an origin: what is known of its blocks */
} cm_viz_name;

/* false: the export fails. */
typedef bool (*cm_viz_namer)(void *context, uint16_t device, cm_viz_what what, uint32_t number,
                             cm_viz_name *name);

typedef struct cm_viz_device cm_viz_device;

typedef struct cm_viz {
    cm_viz_namer namer;
    void *context;
    uint64_t start_us, newest; /* newest: entries of each device that are kept; 0: all */
    uint64_t entries;          /* of all devices, also of those that were not kept */
    uint64_t overlapping;      /* segments that were left out: events are missing */
    cm_live live;
    cm_viz_name *origin; /* by number */
    size_t origins;
    cm_viz_device *device; /* in the order in which they were met */
    size_t devices, device_capacity;
} cm_viz;

/* With namer, context, start_us and newest set and the rest zero, it is at the start. */
void cm_viz_clear(cm_viz *s);
/* All these: false: the namer failed, or out of memory. */
bool cm_viz_add(cm_viz *s, const cm_item *item, const cm_replay *replay);
/* After the last item: entries that wait in a device, up to `most`; then the end of its list. */
bool cm_viz_end_entries(cm_viz *s, size_t device, size_t most, bool *over);
/* After that, with its number in the file: what is there at the end, some segments at a time.
 * *listed counts the items of the list, which is one for all devices. */
bool cm_viz_segments(cm_viz *s, size_t device, uint32_t number, uint64_t *listed, bool *over);
void cm_viz_end_list(cm_text *out, uint64_t listed);
/* What was written of a device since it was taken last; the caller empties it. */
cm_text *cm_viz_text(cm_viz *s, size_t device);
uint16_t cm_viz_number(const cm_viz *s, size_t device); /* in the replay */

#endif
