/* Nodes that do not pass through deleteNode when they die.
 *
 * Before torch 2.13 a node belongs to a std::shared_ptr. Most are made with a deleter, which is a
 * slot like any other; but some types lie inside the pointer's control block (std::make_shared:
 * CopySlices, GraphRoot, ...) or are deleted by it directly. All that ends those is the control
 * block's virtual _M_dispose: its word in the vtable of each such type is redirected.
 *
 * Known types are found by name. One without an exported name (TorchScript's) is met when such a
 * node runs, and redirected from the collector's next wake-up on; what was made before is not seen
 * dying. */
#ifndef CM_SOURCES_DISPOSE_H
#define CM_SOURCES_DISPOSE_H

#include <stddef.h>
#include <stdint.h>

/* Where a node of these versions keeps its sequence number: behind its vtable pointer and its weak
 * pointer to itself, which leads to the control block. */
enum { CM_DISPOSE_SEQUENCE_AT = 24 };

/* Redirects every vtable that is there now; after cm_slots_install or _rescan found something. Any
 * thread, no GIL needed. */
void cm_dispose_install(void);
/* Redirects what cm_dispose_met_hook has met since. The collector's idle callback. */
void cm_dispose_rescan(void);
/* Gives every vtable back. */
void cm_dispose_remove(void);

/* A node runs, of a version that keeps sequence numbers there, and is no AccumulateGrad. */
void cm_dispose_met_hook(const void *node);

/* The mangled type of a control block that could not be redirected, or NULL: nodes of that type
 * seem to live for ever. Static string. */
const char *cm_dispose_unseen(void);

/* One call for each vtable: its mangled type, the library it lies in, and whether it is ours. */
void cm_dispose_each(void (*each)(void *context, const char *type, const char *library,
                                  int redirected),
                     void *context);

#endif
