/* Following the program's forks, exec, exit, and child processes that run Python.
 *
 * os.fork and similar functions are watched in place (py_watch.h). Our threads end before a fork
 * and start again after the function's last step, the warning of Python 3.12 about forking with
 * threads. For a fork by an extension they start in a handler of os.register_at_fork. All with the
 * GIL, which guards the state. */
#include "module.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "../base/environment.h"
#include "../capture/heap_sample.h"
#include "../capture/session.h"
#include "../sources/cupti/cupti.h"
#include "py_hidden.h"
#include "py_watch.h"

static int forking;                 /* running watched calls, in any thread */
static int paused;                  /* those of them that have ended our threads */
static unsigned long spawning;      /* the thread in fork_exec, else 0 */
static unsigned long long children; /* running Python, started by the watched functions */

/* --- our threads -------------------------------------------------------------------------------
 */

static PyObject *pause_or_resume(int (*what)(void))
{
    int status;

    Py_BEGIN_ALLOW_THREADS;
    status = what();
    Py_END_ALLOW_THREADS;
    if (status < 0) {
        errno = -status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* The collector may start the CUPTI thread, so the collector ends first and starts last. In a
 * forked child no capture is active. */
static int pause_threads(void)
{
    int status = 0;

    if (cm_session_active()) {
        status = cm_session_pause();
        cm_cupti_pause();
    }
    return status;
}

static int resume_threads(void)
{
    if (!cm_session_active())
        return 0;
    cm_cupti_resume();
    return cm_session_resume();
}

PyDoc_STRVAR(fork_before_doc,
             "fork_before()\n\nFor os.register_at_fork: ends our threads. Events wait.");

static PyObject *fork_before(PyObject *module, PyObject *unused)
{
    if (paused > 0)
        Py_RETURN_NONE;
    return pause_or_resume(pause_threads);
}

PyDoc_STRVAR(fork_parent_doc,
             "fork_parent()\n\nFor os.register_at_fork: starts them again, unless os.fork does so "
             "when it returns.");

static PyObject *fork_parent(PyObject *module, PyObject *unused)
{
    if (forking > 0)
        Py_RETURN_NONE;
    return pause_or_resume(resume_threads);
}

PyDoc_STRVAR(fork_child_doc,
             "fork_child()\n\nFor os.register_at_fork: the child has one thread and no children.");

static PyObject *fork_child(PyObject *module, PyObject *unused)
{
    children = 0;
    forking = forking > 0;
    paused = paused > 0;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    fork_is_spawn_doc,
    "fork_is_spawn() -> bool\n\nIn a forked child, before it has run code of the program's: "
    "it is about to become another program (subprocess with preexec_fn).");

static PyObject *fork_is_spawn(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(spawning == PyThread_get_thread_ident());
}

/* --- forks --------------------------------------------------------------------------------------
 */

static bool is_main_interpreter(void)
{
    return PyInterpreterState_Get() == PyInterpreterState_Main();
}

static void pause_or_resume_and_report(int (*what)(void))
{
    PyObject *nothing = pause_or_resume(what);

    if (nothing == NULL)
        PyErr_WriteUnraisable(NULL);
    Py_XDECREF(nothing);
}

/* Before any handler runs: while our threads end, other threads may run and register handlers. */
static void begin_fork(PyObject *const *arguments, Py_ssize_t count)
{
    if (!is_main_interpreter())
        return;
    forking++;
    pause_or_resume_and_report(pause_threads);
    paused++;
}

static void begin_spawn(PyObject *const *arguments, Py_ssize_t count)
{
    if (!is_main_interpreter())
        return;
    forking++;
    spawning = PyThread_get_thread_ident();
}

/* Runs in the child, too. */
static void end_watched(void)
{
    if (--forking == 0)
        pause_or_resume_and_report(resume_threads);
}

static bool is_process(PyObject *result)
{
    /* forkpty returns the process and a descriptor. */
    PyObject *number =
        result != NULL && PyTuple_Check(result) ? PyTuple_GET_ITEM(result, 0) : result;

    return number != NULL && PyLong_Check(number) && PyLong_AsLong(number) > 0;
}

static void on_fork(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    children += is_process(result);
    if (!is_main_interpreter())
        return;
    paused--;
    end_watched();
}

/* UTF-8 of bytes, or of a str when user code calls; else "". */
static const char *text_of(PyObject *item)
{
    const char *text = "";

    if (PyBytes_Check(item))
        text = PyBytes_AS_STRING(item);
    else if (PyUnicode_Check(item))
        text = PyUnicode_AsUTF8(item);
    PyErr_Clear();
    return text != NULL ? text : "";
}

/* Whether `is` holds for any text of a sequence. */
static bool any(PyObject *sequence, bool (*is)(const char *text))
{
    PyObject *items = PySequence_Fast(sequence, "");
    bool found = false;

    for (Py_ssize_t i = 0; items != NULL && !found && i < PySequence_Fast_GET_SIZE(items); i++)
        found = is(text_of(PySequence_Fast_GET_ITEM(items, i)));
    Py_XDECREF(items);
    PyErr_Clear();
    return found;
}

static bool is_python(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    return strncmp(name, "python", 6) == 0 && access(path, X_OK) == 0;
}

/* Whether this is a process of multiprocessing that runs no code of the program. */
static bool is_helper(const char *argument)
{
    return strstr(argument, "multiprocessing.resource_tracker") != NULL;
}

/* fork_exec(arguments, [executable, ...], ...), of subprocess and multiprocessing's spawn. */
static void on_fork_exec(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    if (count > 1 && is_process(result) && any(arguments[1], is_python) &&
        !any(arguments[0], is_helper))
        children++;
    if (!is_main_interpreter())
        return;
    spawning = 0;
    end_watched();
}

/* posix_spawn(path, ...), which subprocess uses from 3.13 on. */
static void on_spawn(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    children += count > 0 && is_process(result) && is_python(text_of(arguments[0]));
}

/* --- exec ---------------------------------------------------------------------------------------
 */

/* The process becomes another program, or the call returns with an error. */
static void on_exec(PyObject *const *arguments, Py_ssize_t count)
{
    const char *program = count > 0 ? text_of(arguments[0]) : "";

    if (!is_main_interpreter())
        return;
    Py_BEGIN_ALLOW_THREADS;
    cm_session_exec(program[0] != '\0' ? program : "another program");
    Py_END_ALLOW_THREADS;
}

static void on_exec_failed(PyObject *const *arguments, Py_ssize_t count, PyObject *result)
{
    if (!is_main_interpreter())
        return;
    Py_BEGIN_ALLOW_THREADS;
    cm_session_exec(NULL);
    Py_END_ALLOW_THREADS;
}

/* --- what is watched -----------------------------------------------------------------------------
 */

static const cm_py_watch fork_watch = {begin_fork, on_fork}, forkpty_watch = {begin_fork, on_fork},
                         fork_exec_watch = {begin_spawn, on_fork_exec},
                         spawn_watch = {NULL, on_spawn}, execv_watch = {on_exec, on_exec_failed},
                         execve_watch = {on_exec, on_exec_failed};

static const struct {
    const char *name;
    const cm_py_watch *watch;
} watched[] = {{"fork", &fork_watch},           {"forkpty", &forkpty_watch},
               {"fork_exec", &fork_exec_watch}, {"posix_spawn", &spawn_watch},
               {"execv", &execv_watch},         {"execve", &execve_watch}};

PyDoc_STRVAR(process_watch_doc,
             "process_watch(module)\n\nWatches the forks and execs of this process that go through "
             "this module (posix, _posixsubprocess), from now on and for good. Repeatable. "
             "RuntimeError: one cannot be watched.");

static PyObject *process_watch(PyObject *self, PyObject *module)
{
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        PyObject *function = PyObject_GetAttrString(module, watched[i].name);
        if (function == NULL) {
            PyErr_Clear(); /* another module has it, or this system lacks it */
            continue;
        }
        const char *why = cm_py_watch_calls(watched[i].watch, function);
        Py_DECREF(function);
        if (why != NULL)
            return PyErr_Format(PyExc_RuntimeError, "%s: %s", watched[i].name, why);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(process_children_doc,
             "process_children() -> int\n\nChildren of this process that are Pythons, since "
             "process_watch: forked by os.fork, or started by subprocess and multiprocessing.");

static PyObject *process_children(PyObject *module, PyObject *unused)
{
    return PyLong_FromUnsignedLongLong(children);
}

/* --- exit ---------------------------------------------------------------------------------------
 */

/* The program may have removed what our Python code needs (builtins, os, time). Then the recording
 * ends here, without that code's part, and one line reports it. */
static PyObject *run_at_exit(PyObject *function, PyObject *unused)
{
    char warning[CM_SESSION_ERROR_SIZE];
    cm_py_end end = cm_py_run_hidden(function);

    if (end == CM_PY_DONE)
        Py_RETURN_NONE;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool active = cm_session_active();
    Py_BEGIN_ALLOW_THREADS;
    cm_session_stop(NULL, warning, sizeof warning);
    Py_END_ALLOW_THREADS;
    if (end == CM_PY_RAISED) {
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    if (active)
        PySys_FormatStderr(
            "cuptimem: the recording was ended without its last collection: %S (%S)\n",
            value != NULL ? value : Py_None, type);
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    Py_RETURN_NONE;
}

static PyMethodDef at_exit_definition = {"at_exit", run_at_exit, METH_NOARGS, NULL};

PyDoc_STRVAR(
    process_at_exit_doc,
    "process_at_exit(function)\n\nA callable for atexit: the function, hidden. If it raises, "
    "the capture is ended all the same, and a line on standard error says why.");

static PyObject *process_at_exit(PyObject *module, PyObject *function)
{
    return PyCFunction_New(&at_exit_definition, function);
}

PyDoc_STRVAR(
    process_is_privileged_doc,
    "process_is_privileged() -> bool\n\nWhether this process has more rights than its caller, "
    "so that it obeys no environment variable (AT_SECURE of getauxval(3)).");

static PyObject *process_is_privileged(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(cm_environment_is_privileged());
}

PyDoc_STRVAR(
    process_trim_doc,
    "process_trim() -> tuple\n\nLets malloc return what it keeps free: bytes that are free, "
    "arenas of threads, bytes of these that are free, bytes of resident memory that were "
    "returned. None: it cannot, or nothing is recorded.");

static PyObject *process_trim(PyObject *module, PyObject *unused)
{
    cm_heap_trimmed trimmed;
    bool done;

    Py_BEGIN_ALLOW_THREADS;
    done = cm_heap_trim(&trimmed);
    Py_END_ALLOW_THREADS;
    if (!done)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLL)", (long long)trimmed.free, (long long)trimmed.arenas,
                         (long long)trimmed.in_arenas, (long long)trimmed.returned);
}

PyMethodDef cm_py_process_methods[] = {
    {"fork_before", fork_before, METH_NOARGS, fork_before_doc},
    {"fork_parent", fork_parent, METH_NOARGS, fork_parent_doc},
    {"fork_child", fork_child, METH_NOARGS, fork_child_doc},
    {"fork_is_spawn", fork_is_spawn, METH_NOARGS, fork_is_spawn_doc},
    {"process_watch", process_watch, METH_O, process_watch_doc},
    {"process_children", process_children, METH_NOARGS, process_children_doc},
    {"process_is_privileged", process_is_privileged, METH_NOARGS, process_is_privileged_doc},
    {"process_trim", process_trim, METH_NOARGS, process_trim_doc},
    {"process_at_exit", process_at_exit, METH_O, process_at_exit_doc},
    {NULL, NULL, 0, NULL},
};
