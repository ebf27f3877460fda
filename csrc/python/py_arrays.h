/* numpy's arrays: the collector tracks neither them nor dictionaries and tuples that have nothing
 * else, so nothing seems to lead to a tensor that has an array's memory, as tensor.numpy() shares
 * it, nor to what an array of objects has. With the GIL; no code of the program runs. */
#ifndef CM_PYTHON_ARRAYS_H
#define CM_PYTHON_ARRAYS_H

#include "module.h"

#include <stdbool.h>

/* Borrowed; NULL: numpy is not imported. */
PyTypeObject *cm_py_array_type(void);

/* The object that has the memory of an array of exactly that type, such as a tensor. An array with
 * its own, and any other object, is its own. Borrowed: the array has it. */
PyObject *cm_py_array_owner(PyTypeObject *array, PyObject *o);

/* As the object's tp_traverse; of an array of objects, each of these. */
int cm_py_traverse(PyTypeObject *array, PyObject *o, visitproc visit, void *argument);

/* Whether it is a dictionary or tuple that is not tracked and leads to a tensor by an array, or an
 * array of objects that the collector knows: by the few parts that are looked at, for a reference
 * costs that each time it is met. */
bool cm_py_leads_to_tensor(PyTypeObject *array, PyObject *o);

#endif
