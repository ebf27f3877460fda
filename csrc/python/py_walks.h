/* When the walk over living objects (cuptimem/objects/walks.py) is due, or an early look for who
 * holds what grows (cuptimem/objects/holders.py), and the call of them.
 *
 * A walk costs milliseconds, so it follows the first two ticks; later ones only if a module or an
 * optimizer was made since, and then at tick 4, 8, 16 and so on. New optimizers may begin another
 * training (a fold of a cross-validation): they bring it forward, while walks get rarer.
 *
 * A look reads the trace, so looks get rarer, too: tick 24, 36, 72, 144 and so on. Where nothing
 * ticks, outermost calls of modules count. */
#ifndef CM_PYTHON_PY_WALKS_H
#define CM_PYTHON_PY_WALKS_H

#include <stdbool.h>

#include "module.h"

/* A cm_object_kind was made. With the GIL. */
void cm_py_walks_count_object(int kind);

enum { CM_DUE_WALK = 1, CM_DUE_LOOK = 2 };

/* A tick of an optimizer, or of a backward pass, was emitted. Whether anything is due; that it is
 * made counts from here. A pass counts only while no optimizer ticks; any thread, no GIL needed. */
bool cm_py_walks_tick(bool pass);
/* An outermost call of a module has returned. Whether a look is due. */
bool cm_py_walks_call(void);

/* Makes what is due, hidden from the program's profilers and tracers. With the GIL. An exception
 * that is set afterwards came out of a signal's handler: it belongs to the program. */
void cm_py_walks_make(void);

#endif
