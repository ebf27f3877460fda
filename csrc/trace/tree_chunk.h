/* Tree samples in a trace: chunks of the kind CM_CHUNK_TREE. */
#ifndef CM_TRACE_TREE_CHUNK_H
#define CM_TRACE_TREE_CHUNK_H

#include <stddef.h>

#include "../base/bytes.h"
#include "../base/process_tree.h"
#include "reader.h"

enum {
    CM_TREE_CHUNK_MOST = 512 +
                         CM_TREE_PROCESSES * (2 + CM_TREE_NAME + 10 * (CM_PROCESS_SIZES + 7)) +
                         (CM_TREE_FILES + 1 + CM_TREE_OPEN) * (36 + CM_TREE_PATH)
};

/* Writes a sealed chunk of at most CM_TREE_CHUNK_MOST bytes. Returns its length. */
size_t cm_tree_encode(const cm_process_tree *tree, uint8_t *chunk);
/* false: the payload is damaged. Processes and files beyond the tables are left out. */
bool cm_tree_decode(cm_cursor *payload, cm_process_tree *tree);
/* Calls back with every sample of the file, in its order, without reading anything else of it. NULL
 * or what is wrong, one line; `see` returns false to end it. */
const char *cm_tree_read_all(cm_reader *reader, cm_process_tree *into,
                             bool (*see)(void *context, const cm_process_tree *tree),
                             void *context);

#endif
