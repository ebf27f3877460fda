/* What becomes of a pickle's values. A value that later ones need is interned and known by its
 * number: texts, frames, stacks. Events, blocks, segments and annotations go into arrays as their
 * dicts close; lists of them are ranges. Everything else is forgotten. */
#ifndef CM_SNAPSHOT_BUILDER_H
#define CM_SNAPSHOT_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

typedef enum cm_value_kind {
    CM_VALUE_OTHER, /* not kept */
    CM_VALUE_MARK,
    CM_VALUE_NUMBER, /* also None (0), booleans and integers, modulo 2^64 */
    CM_VALUE_TEXT,   /* number: its id, as of the following */
    CM_VALUE_FRAME,
    CM_VALUE_STACK, /* a list of frames */
    CM_VALUE_EVENT,
    CM_VALUE_BLOCK,
    CM_VALUE_SEGMENT,
    CM_VALUE_NOTE,
    CM_VALUE_EVENTS, /* lists: first << 32 | behind the last */
    CM_VALUE_BLOCKS,
    CM_VALUE_SEGMENTS,
    CM_VALUE_NOTES,
    CM_VALUE_TRACES,   /* a list of lists of events */
    CM_VALUE_SNAPSHOT, /* all of it */
    CM_VALUE_LIST,     /* empty so far */
    CM_VALUE_FRAMES,   /* a list that gets its frames one by one: first << 32 | how many */
    CM_VALUE_DICT      /* open: first of its pairs << 32 | how many of them */
} cm_value_kind;

typedef struct cm_value {
    uint64_t number;
    uint32_t memo; /* where the memo has it + 1; 0: nowhere */
    uint8_t kind;
} cm_value;

/* A value in the memo: its id and a kind that needs two bits. */
typedef uint32_t cm_kept;

enum { CM_KEPT_OTHER = 0, CM_KEPT_TEXT = 1, CM_KEPT_FRAME = 2, CM_KEPT_STACK = 3 };
enum { CM_KEPT_MAX = (1 << 30) - 1 };

static inline cm_kept cm_keep(const cm_value *value)
{
    switch (value->kind) {
    case CM_VALUE_TEXT:
        return (cm_kept)(value->number << 2 | CM_KEPT_TEXT);
    case CM_VALUE_FRAME:
        return (cm_kept)(value->number << 2 | CM_KEPT_FRAME);
    case CM_VALUE_STACK:
        return (cm_kept)(value->number << 2 | CM_KEPT_STACK);
    default:
        return CM_KEPT_OTHER;
    }
}

static inline cm_value cm_kept_value(cm_kept kept)
{
    static const uint8_t kind[] = {CM_VALUE_OTHER, CM_VALUE_TEXT, CM_VALUE_FRAME, CM_VALUE_STACK};
    return (cm_value){.number = kept >> 2, .kind = kind[kept & 3]};
}

/* All of them: false where there is no memory, or more of a kind than its numbers can count. */

/* At most CM_SNAP_TEXT_MAX bytes. */
bool cm_snap_add_text(cm_snap *snapshot, const uint8_t *bytes, size_t length, uint32_t *id);
/* The values of a dict, keys before values; what they make is in *out. */
bool cm_snap_add_dict(cm_snap *snapshot, const cm_value *pairs, size_t count, cm_value *out);
/* Appends items to a list. */
bool cm_snap_extend(cm_snap *snapshot, cm_value *list, const cm_value *items, size_t count);
/* A list that gets no more items. */
bool cm_snap_close_list(cm_snap *snapshot, cm_value *list);
/* The value that the whole pickle is. false: it is no snapshot. */
bool cm_snap_finish(cm_snap *snapshot, const cm_value *value);

#endif
