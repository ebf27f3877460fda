#include "control.h"

#include <stdbool.h>
#include <stdint.h>

#include "intern.h"
#include "offsets.h"
#include "selftest.h"
#include "walk.h"

static bool stacks_work;

/* --- code lifetime: an address identifies a code object only until that is freed ------------- */

#if PY_VERSION_HEX >= 0x030c0000

static int on_code_event(PyCodeEvent event, PyCodeObject *code)
{
    if (event == PY_CODE_EVENT_DESTROY)
        cm_intern_forget_code(code);
    return 0;
}

static const char *watch_codes(void)
{
    if (PyCode_AddWatcher(on_code_event) >= 0)
        return NULL;
    PyErr_Clear();
    return "no code watcher is free in this interpreter (all 8 are taken)";
}

#else

/* 3.11 has no watchers, and co_extra would have to be set per code, with the GIL, in a hook. */
static destructor free_code;

static void forget_and_free_code(PyObject *code)
{
    cm_intern_forget_code(code);
    free_code(code);
}

static const char *watch_codes(void)
{
    free_code = PyCode_Type.tp_dealloc;
    PyCode_Type.tp_dealloc = forget_and_free_code;
    return NULL;
}

#endif

int cm_frames_init(const char **why)
{
    static bool done;
    static const char *reason;

    if (!done) {
        reason = cm_offsets_check();
        if (reason == NULL)
            reason = cm_selftest_run();
        if (reason == NULL)
            reason = watch_codes();
        stacks_work = reason == NULL;
        done = true;
    }
    *why = reason;
    return reason == NULL ? 0 : -1;
}

int cm_frames_begin(void)
{
    return cm_intern_begin(stacks_work);
}

void cm_frames_before_fork(void)
{
    cm_intern_lock();
}

void cm_frames_after_fork(void)
{
    cm_intern_unlock();
}

int cm_frames_hide(const char *prefix)
{
    return cm_intern_add_hidden(prefix) ? 0 : -1;
}

int cm_frames_barrier(PyCodeObject *code)
{
    if (!cm_intern_add_barrier(code))
        return -1;
    Py_INCREF(code);
    return 0;
}

/* Whether the first local is an argument that stays in its slot. If an inner function uses it, a
 * cell replaces it. */
static bool first_local_is_plain(PyCodeObject *code)
{
    PyObject *names = PyCode_GetVarnames(code), *cells = PyCode_GetCellvars(code);
    int captured = 1;

    if (code->co_argcount > 0 && names != NULL && cells != NULL)
        captured = PySequence_Contains(cells, PyTuple_GET_ITEM(names, 0));
    Py_XDECREF(names);
    Py_XDECREF(cells);
    PyErr_Clear();
    return captured == 0;
}

int cm_frames_module_call(PyCodeObject *code)
{
    if (code == NULL) {
        cm_intern_set_module_code(0);
        return 0;
    }
    /* Address and size share one word, so that no walk sees one without the other. */
    uint64_t start = (uint64_t)code + CM_OFFSET_BYTECODE, units = (uint64_t)Py_SIZE(code);
    if (!first_local_is_plain(code) || units > UINT16_MAX || start >> 48 != 0)
        return -1;
    Py_INCREF(code);
    cm_intern_set_module_code(start << 16 | units);
    return 0;
}
