/* What the driver level knows to be alive, as events once more (CM_EVF_ALREADY): the beginning of
 * a trace that is a window of another. */
#ifndef CM_HEAP_DRIVER_PROLOGUE_H
#define CM_HEAP_DRIVER_PROLOGUE_H

#include "driver_map.h"

/* false: it failed. The stack of a DRIVER_MORE is a name id. */
typedef bool (*cm_driver_prologue_emit)(void *context, cm_event event);

/* false as soon as emit returned false. map may be NULL. */
bool cm_driver_prologue(const cm_driver_map *map, cm_driver_prologue_emit emit, void *context);

#endif
