/* Each py_<part>.c gives its functions as one table; module.c joins them into cuptimem._core.
 * csrc/python is the only folder (besides csrc/frames, which needs CPython's layout) that includes
 * Python.h. */
#ifndef CM_PYTHON_MODULE_H
#define CM_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef cm_py_frames_methods[];
extern PyMethodDef cm_py_capture_methods[];
extern PyMethodDef cm_py_events_methods[];
extern PyMethodDef cm_py_hidden_methods[];
extern PyMethodDef cm_py_process_methods[];
extern PyMethodDef cm_py_garbage_methods[];
extern PyMethodDef cm_py_object_graph_methods[];
extern PyMethodDef cm_py_referrers_methods[];
extern PyMethodDef cm_py_sources_methods[];
extern PyMethodDef cm_py_torch_calls_methods[];
extern PyMethodDef cm_py_walks_methods[];
extern PyMethodDef cm_py_cupti_methods[];
extern PyMethodDef cm_py_temporary_methods[];
extern PyMethodDef cm_py_trace_methods[];
extern PyMethodDef cm_py_rewrite_methods[];
extern PyMethodDef cm_py_analysis_methods[];
extern PyMethodDef cm_py_fields_methods[];
extern PyMethodDef cm_py_edits_methods[];
extern PyMethodDef cm_py_snapshot_methods[];
extern PyMethodDef cm_py_tree_methods[];
extern PyMethodDef cm_py_sourcetext_methods[];
extern PyMethodDef cm_py_values_methods[];
extern PyMethodDef cm_py_arrays_methods[];

int cm_py_reader_exec(PyObject *module); /* adds the type Reader */
int cm_py_follow_exec(PyObject *module); /* adds the type Follower */
/* Adds the types of py_export.c, which read a Reader. */
int cm_py_export_exec(PyObject *module, PyObject *reader_type);
int cm_py_constants_exec(PyObject *module); /* adds the numbers of py_constants.c */

/* cuptimem.Error, a RuntimeError with a message of one line. */
extern PyObject *cm_py_error;

#endif
