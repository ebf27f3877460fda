/* A pickle's instructions, as far as plain data needs them: dicts, lists, tuples, strings, bytes,
 * integers, floats, None and booleans of the protocols 0 to 5. Anything else, a class or a call
 * above all, is refused by name. Nothing is built: each dict and list is handed to the builder
 * (builder.h) as it closes, and the memo keeps what the builder has made of it.
 *
 * The bytes may be hostile. Memory: 24 bytes for each byte of the pickle at most, beside the
 * builder's; time is linear; nothing recurses, however deep the data is nested. */
#ifndef CM_SNAPSHOT_PICKLE_H
#define CM_SNAPSHOT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "builder.h"

typedef struct cm_pickle {
    cm_snap *snapshot;
    cm_value *stack;
    size_t count, capacity;
    size_t mark; /* place of the newest mark + 1; 0: there is none */
    cm_kept *memo;
    size_t memo_count, memo_capacity;
    cm_value *pair; /* keys and values of dicts that get theirs one by one */
    size_t pairs, pair_capacity;
    uint64_t offset; /* of the next byte in the pickle */
    uint64_t skip;   /* bytes to pass over before the next instruction: the rest of a long text */
    bool over;       /* its end was read: what follows is ignored */
    char error[160];
} cm_pickle;

/* Takes the instructions that are whole, and returns how many bytes they are; what is left comes
 * again in front of the next piece. On failure `error` is a line, and nothing more is taken. */
size_t cm_pickle_feed(cm_pickle *pickle, const uint8_t *bytes, size_t length);
/* After the last piece. false: it was cut off, or had failed. */
bool cm_pickle_end(cm_pickle *pickle);
void cm_pickle_clear(cm_pickle *pickle);

#endif
