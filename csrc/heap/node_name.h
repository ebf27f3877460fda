/* Names of autograd nodes as PyTorch prints them. */
#ifndef CM_HEAP_NODE_NAME_H
#define CM_HEAP_NODE_NAME_H

#include <stddef.h>

/* The last identifier of a type's RTTI name, template arguments left out:
 * N5torch8autograd9generated14AddmmBackward0E -> AddmmBackward0. Other names are copied unchanged.
 * Cut to fit; always terminated. */
void cm_node_name(const char *rtti, char *out, size_t size);

#endif
