/* Synthetic events from threads without Python, for tests and benchmarks of the capture. */
#ifndef CM_PYTHON_PY_CAPTURE_EMIT_H
#define CM_PYTHON_PY_CAPTURE_EMIT_H

#include "module.h"

PyObject *cm_py_capture_emit(PyObject *module, PyObject *arguments, PyObject *keywords);
extern const char cm_py_capture_emit_doc[];

#endif
