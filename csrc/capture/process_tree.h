/* Reads a process and all below it from /proc. Reads nothing of what the processes have in memory,
 * and allocates nothing. */
#ifndef CM_CAPTURE_PROCESS_TREE_H
#define CM_CAPTURE_PROCESS_TREE_H

#include <stdatomic.h>

#include "../base/process_tree.h"

/* root's role is CM_ROLE_RECORDED. Every process is opened for a moment: the calling thread either
 * has its own descriptor table, or no other one closes descriptors meanwhile. stop: NULL, or set by
 * another thread to end it early. false: the root is gone or cannot be read, it was ended, or
 * another thread is reading. */
bool cm_process_tree_read(int32_t root, cm_tree_depth depth, const atomic_bool *stop,
                          cm_process_tree *into);

#endif
