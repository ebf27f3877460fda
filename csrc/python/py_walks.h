/* Scheduling the walk over living objects (cuptimem/objects/walks.py) and the early search for
 * holders of growing memory (cuptimem/record/holder_search.py), and calling them.
 *
 * A walk costs milliseconds. It follows the first two ticks, and later ticks 4, 8, 16 and so on if
 * a module or an optimizer was made since. New optimizers may begin another training (a split of a
 * cross-validation): they bring the walk forward, while walks get rarer.
 *
 * A search reads the trace, so searches get rarer, too: tick 24, 36, 72, 144 and so on; tick 12
 * is for recordings that are too long to be read at tick 24. Without ticks, outermost calls of
 * modules are counted; without an optimizer, too, a walk follows the first one, and later ones 2,
 * 4, 8 and so on if a module was made since: inference has no other moment.
 *
 * What takes longer than a slice (cuptimem/objects/slices.py) goes on at the next tick; without
 * ticks at a module's return, at most every 20 ms. */
#ifndef CM_PYTHON_PY_WALKS_H
#define CM_PYTHON_PY_WALKS_H

#include <stdbool.h>

#include "module.h"

/* Counts a new object (cm_object_kind), and remembers a module or an optimizer by a weak reference,
 * so that no walk has to search for it. With the GIL, outside of hooks. */
void cm_py_walks_see_object(int kind, PyObject *object);

enum { CM_DUE_WALK = 1, CM_DUE_LOOK = 2, CM_DUE_LOOK_SOONER = 4, CM_DUE_SLICE = 8 };

/* Counts a tick of an optimizer or of a backward pass. Returns whether anything is due, which then
 * counts as made. A pass counts only if no optimizer ticks. Any thread, no GIL needed. */
bool cm_py_walks_tick(bool pass);
/* Counts an outermost call of a module. Returns whether anything is due, for an inner one whether
 * slices are left. */
bool cm_py_walks_call(bool outermost);

/* Makes what is due, hidden from the program's profilers and tracers. With the GIL. An exception
 * set afterwards is the program's (py_hidden.h). */
void cm_py_walks_make(void);

#endif
