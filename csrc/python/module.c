/* cuptimem._core: the module, made of all tables of functions. */
#include "module.h"

#include "../base/environment.h"
#include "../capture/collector.h"
#include "../capture/session.h"
#include "../compact/overflow.h"
#include "../recover/orphan.h"
#include "../trace/tail.h"
#include "py_hidden.h"

PyObject *cm_py_error;

/* Sets the pointers through which capture/ and trace/ call rooms that they do not include. */
static void connect_rooms(void)
{
    cm_collector_set_compactor(&cm_overflow);
    cm_session_set_sweeper(cm_orphan_sweep_all);
    cm_tail_set_source(&cm_orphan_tail);
}

static int obey_environment(void)
{
    PyObject *flags = PySys_GetObject("flags"); /* borrowed */
    PyObject *ignores = flags != NULL ? PyObject_GetAttrString(flags, "ignore_environment") : NULL;
    int ignored = ignores != NULL ? PyObject_IsTrue(ignores) : -1;

    Py_XDECREF(ignores);
    if (ignored >= 0)
        cm_environment_ignore(ignored);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ImportError, "sys.flags is gone");
    return ignored < 0 ? -1 : 0;
}

static int module_exec(PyObject *module)
{
    PyMethodDef *const parts[] = {
        cm_py_frames_methods,       cm_py_capture_methods,  cm_py_events_methods,
        cm_py_hidden_methods,       cm_py_process_methods,  cm_py_garbage_methods,
        cm_py_referrers_methods,    cm_py_sources_methods,  cm_py_torch_calls_methods,
        cm_py_walks_methods,        cm_py_cupti_methods,    cm_py_temporary_methods,
        cm_py_trace_methods,        cm_py_analysis_methods, cm_py_sourcetext_methods,
        cm_py_rewrite_methods,      cm_py_values_methods,   cm_py_fields_methods,
        cm_py_edits_methods,        cm_py_snapshot_methods, cm_py_tree_methods,
        cm_py_object_graph_methods, cm_py_arrays_methods};

    /* There is one capture per process, and hooks outlive every interpreter. Only isolated
     * interpreters check the slot below, and only from 3.12 on. */
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "cuptimem._core works in the main interpreter only, "
                                           "and this is one of its subinterpreters");
        return -1;
    }
    if (obey_environment() < 0)
        return -1;
    connect_rooms();
    cm_py_error = PyErr_NewExceptionWithDoc("cuptimem.Error",
                                            "What was asked could not be done; one line says why.",
                                            PyExc_RuntimeError, NULL);
    if (cm_py_error == NULL || PyModule_AddObjectRef(module, "Error", cm_py_error) < 0)
        return -1;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (PyModule_AddFunctions(module, parts[i]) < 0)
            return -1;
    if (cm_py_constants_exec(module) < 0 || cm_py_reader_exec(module) < 0 ||
        cm_py_follow_exec(module) < 0)
        return -1;
    return cm_py_hidden_exec(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cuptimem._core",
    .m_doc = "The C core of cuptimem: hooks, frames, rings, trace, analysis.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
