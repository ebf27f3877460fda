/* Shared by the replay's files: records (replay.c), devices, origins and labels by number
 * (replay_numbers.c). */
#ifndef CM_HEAP_REPLAY_PARTS_H
#define CM_HEAP_REPLAY_PARTS_H

#include "replay.h"

extern const char cm_replay_out_of_memory[];

/* The number of an origin; -1: out of memory. */
int64_t cm_replay_find_origin(cm_replay *r, const cm_origin *wanted);
/* The label of a block that has one. false: error is set. */
bool cm_replay_put_label(cm_replay *r, const cm_block *block, const cm_label *label);
void cm_replay_drop_label(cm_replay *r, const cm_block *block);

#endif
