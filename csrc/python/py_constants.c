/* cuptimem._core: the constants of events and reports for Python code. */
#include "module.h"

#include "../base/event.h"
#include "../sources/storage.h"
#include "py_build.h"

#define CONSTANT(name)                                                                             \
    {                                                                                              \
#name, CM_##name                                                                           \
    }

static const struct {
    const char *name;
    long value;
} constants[] = {
    CONSTANT(MARK_WINDOW_OPEN),  CONSTANT(MARK_WINDOW_CLOSE), CONSTANT(MARK_SEEDED),
    CONSTANT(MARK_FILLING),      CONSTANT(MARK_WALK),         CONSTANT(MARK_OOM_LEFT),
    CONSTANT(MARK_HELD),         CONSTANT(MARK_NAMED),        CONSTANT(MARK_EXIT),
    CONSTANT(TICK_STEP),         CONSTANT(OBJECT_MODULE),     CONSTANT(OBJECT_OPTIMIZER),
    CONSTANT(LABEL_MODULE),      CONSTANT(LABEL_PARAMETER),   CONSTANT(LABEL_BUFFER),
    CONSTANT(LABEL_GRADIENT),    CONSTANT(LABEL_TENSOR),      CONSTANT(LABEL_OPTIMIZER_STATE),
    CONSTANT(DEVICE_CPU),        CONSTANT(DEVICE_CUDA),       CONSTANT(DEVICE_PINNED),
    CONSTANT(STORAGE_ALLOCATOR), CONSTANT(STORAGE_SLICE),     CONSTANT(STACK_NONE),
    CONSTANT(STACK_LOST),
};

int cm_py_constants_exec(PyObject *module)
{
    PyObject *phases = PyTuple_New(CM_PHASE_BEFORE_START + 1);

    for (Py_ssize_t i = 0; phases != NULL && i <= CM_PHASE_BEFORE_START; i++) {
        PyObject *name = PyUnicode_InternFromString(cm_py_phases[i]);
        if (name == NULL)
            Py_CLEAR(phases);
        else
            PyTuple_SET_ITEM(phases, i, name);
    }
    int status = phases == NULL ? -1 : PyModule_AddObjectRef(module, "PHASES", phases);
    Py_XDECREF(phases);
    for (size_t i = 0; i < sizeof constants / sizeof *constants && status == 0; i++)
        status = PyModule_AddIntConstant(module, constants[i].name, constants[i].value);
    return status;
}
