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
    /* Those that the memo keeps, which needs two bits for their kind. */
    CM_VALUE_OTHER, /* not kept */
    CM_VALUE_TEXT,  /* number: its id, as of the following */
    CM_VALUE_FRAME,
    CM_VALUE_STACK,  /* a list of frames */
    CM_VALUE_NUMBER, /* also None (0), booleans and integers, modulo 2^64 */
    CM_VALUE_MARK,   /* number: place of the mark below + 1 */
    CM_VALUE_EVENT,
    CM_VALUE_BLOCK,
    CM_VALUE_SEGMENT,
    CM_VALUE_NOTE,
    CM_VALUE_EVENTS, /* lists: first << 32 | behind the last */
    CM_VALUE_BLOCKS,
    CM_VALUE_SEGMENTS,
    CM_VALUE_NOTES,
    CM_VALUE_TRACES,               /* a list of lists of events */
    CM_VALUE_SNAPSHOT,             /* all of it */
    CM_VALUE_OPEN = 32,            /* a bit: it may still change */
    CM_VALUE_LIST = CM_VALUE_OPEN, /* empty so far */
    CM_VALUE_FRAMES, /* a list that gets its frames one by one: first << 32 | how many */
    CM_VALUE_DICT    /* open: first of its pairs << 32 | how many of them */
} cm_value_kind;

typedef struct cm_value {
    uint64_t number;
    uint32_t memo; /* where the memo has it + 1; 0: nowhere */
    uint8_t kind;
} cm_value;

/* A value in the memo: its id and its kind. */
typedef uint32_t cm_kept;

static inline cm_kept cm_keep(const cm_value *value)
{
    return value->kind <= CM_VALUE_STACK ? (cm_kept)(value->number << 2 | value->kind) : 0;
}

static inline cm_value cm_kept_value(cm_kept kept)
{
    return (cm_value){.number = kept >> 2, .kind = kept & 3};
}

_Static_assert(CM_VALUE_STACK == 3, "a kind in the memo is two bits");

/* All of them: false where there is no memory, or more of a kind than its numbers can count. */

/* At most CM_SNAP_TEXT_MAX bytes. */
bool cm_snap_add_text(cm_snap *snapshot, const uint8_t *bytes, size_t length, uint32_t *id);
/* The values of a dict, keys before values; what they make is in *out. */
bool cm_snap_add_dict(cm_snap *snapshot, const cm_value *pairs, size_t count, cm_value *out);
/* Makes a whole stack at once of an empty list; *is: whether all items are frames, else nothing has
 * changed. */
bool cm_snap_stack(cm_snap *snapshot, cm_value *list, const cm_value *items, size_t count,
                   bool *is);
/* Appends items to a list. */
bool cm_snap_extend(cm_snap *snapshot, cm_value *list, const cm_value *items, size_t count);
/* A list that gets no more items. */
bool cm_snap_close_list(cm_snap *snapshot, cm_value *list);
/* The value that the whole pickle is. false: it is no snapshot. */
bool cm_snap_finish(cm_snap *snapshot, const cm_value *value);

#endif
