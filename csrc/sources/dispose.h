/* Recording the end of nodes that are not destroyed through deleteNode.
 *
 * Before torch 2.13 a std::shared_ptr owns a node. Most have a deleter, which is called through a
 * slot. But some types lie inside the pointer's control block (std::make_shared: CopySlices,
 * GraphRoot, ...) or are deleted by it directly. Those end in the control block's virtual
 * _M_dispose, so that entry of each such type's vtable is redirected.
 *
 * Known types are found by name. A type without an exported name (TorchScript's) is noticed when a
 * node of it runs, and redirected at the collector's next wake-up; ends before that are missed. */
#ifndef CM_SOURCES_DISPOSE_H
#define CM_SOURCES_DISPOSE_H

#include <stddef.h>
#include <stdint.h>

/* Offset of the sequence number in these versions: after the vtable pointer and a weak pointer to
 * the node itself, which leads to the control block. */
enum { CM_DISPOSE_SEQUENCE_AT = 24 };

/* Redirects every vtable found now; call it after cm_slots_install or _rescan found slots. Any
 * thread, no GIL needed. */
void cm_dispose_install(void);
/* Redirects types that cm_dispose_met_hook has found since. The collector's idle callback. */
void cm_dispose_rescan(void);
/* Restores every vtable. */
void cm_dispose_remove(void);

/* Notes the type of a running node, which is not an AccumulateGrad. Only in versions that keep the
 * sequence number at the offset above. */
void cm_dispose_met_hook(const void *node);

/* The mangled type of a control block that could not be redirected, or NULL. Nodes of that type
 * seem to live forever. Static string. */
const char *cm_dispose_unseen(void);

/* Calls `each` for every vtable: its mangled type, its library, and whether it is redirected. */
void cm_dispose_each(void (*each)(void *context, const char *type, const char *library,
                                  int redirected),
                     void *context);

#endif
