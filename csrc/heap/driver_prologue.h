/* The live driver allocations as events (CM_EVF_ALREADY), for the beginning of a trace extracted
 * from a window. */
#ifndef CM_HEAP_DRIVER_PROLOGUE_H
#define CM_HEAP_DRIVER_PROLOGUE_H

#include "driver_map.h"

/* false on failure. The stack of a DRIVER_MORE is a name id. */
typedef bool (*cm_driver_prologue_emit)(void *context, cm_event event);

/* false as soon as emit returned false. map may be NULL. */
bool cm_driver_prologue(const cm_driver_map *map, cm_driver_prologue_emit emit, void *context);

#endif
