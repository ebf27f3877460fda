/* A Reader (py_reader.c) for the types that format its items as bytes. All with the GIL. */
#ifndef CM_PYTHON_READER_H
#define CM_PYTHON_READER_H

#include "module.h"

#include <stdbool.h>

#include "../analysis/stream.h"

typedef struct cm_py_batch {
    const cm_item *item;
    size_t count; /* 0: there are no more */
    const cm_replay *replay;
    size_t steps;
} cm_py_batch;

/* The next items. Until they are returned, the reader gives stacks, but neither moves on nor ends.
 * false: an exception is set, and nothing was lent. */
bool cm_py_reader_lend(PyObject *reader, cm_py_batch *batch);
void cm_py_reader_return(PyObject *reader);
/* While it is lent: a device's name; (device, stack, own stack, phase, operator, category, module,
 * saved by) of an origin. */
PyObject *cm_py_reader_device(PyObject *reader, uint16_t device);
PyObject *cm_py_reader_origin(PyObject *reader, uint32_t origin);

/* The method arrow_stream (py_arrow.c). */
PyObject *cm_py_arrow_stream(PyObject *reader, PyObject *arguments);

#endif
