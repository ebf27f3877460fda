/* The definitions of the trace that a snapshot becomes: names, and stacks of Python frames. One
 * owner. */
#ifndef CM_SNAPSHOT_DEFINITIONS_H
#define CM_SNAPSHOT_DEFINITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/idmap.h"
#include "snapshot.h"

typedef struct cm_snap_defs {
    const cm_snap *snapshot;
    uint8_t *record; /* those made since the last take */
    size_t length, capacity;
    cm_idmap child;                         /* parent << 32 | frame -> stack */
    uint32_t *string, *name, *code, *stack; /* by text, text, frame, stack: id in the trace */
    uint32_t strings, names, codes, stacks; /* ids given so far */
} cm_snap_defs;

bool cm_snap_defs_init(cm_snap_defs *defs, const cm_snap *snapshot); /* false: out of memory */
void cm_snap_defs_clear(cm_snap_defs *defs);

/* The ids in the trace. false: out of memory. A stack lacks its frames of C++. */
bool cm_snap_defs_stack(cm_snap_defs *defs, uint32_t stack, uint32_t *id);
bool cm_snap_defs_name(cm_snap_defs *defs, uint32_t text, uint32_t *id);
/* The stack without so many of its inner frames. */
bool cm_snap_defs_outer(cm_snap_defs *defs, uint32_t stack, size_t inner, uint32_t *id);

/* The records made since the last call, to be written before any reference to them; valid until the
 * next function here. */
const void *cm_snap_defs_take(cm_snap_defs *defs, size_t *length);

/* Whether a frame is one of C++, as stacks="all" has them between those of Python. */
bool cm_snap_is_native(const cm_snap *snapshot, uint32_t frame);

/* Whether it is none, but names an operator or a node in a snapshot that cuptimem wrote. */
bool cm_snap_is_exported(const cm_snap *snapshot, uint32_t frame);

static inline const uint32_t *cm_snap_frames(const cm_snap *s, uint32_t stack, size_t *count)
{
    const uint32_t *frames = cm_intern_at(&s->stacks, stack, count);
    *count /= sizeof *frames;
    return frames;
}

static inline const char *cm_snap_text(const cm_snap *s, uint32_t text, size_t *length)
{
    return cm_intern_at(&s->texts, text, length);
}

#endif
