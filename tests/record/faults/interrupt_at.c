/* Raises a signal when the given line of a package's Python files is about to run, as if it had
 * come from outside: Python calls its handler at its next check, in that code. */
#include <Python.h>
#include <string.h>

static struct {
    const char *folder;
    long left;
    int signal;
    long lines;
} at;

static int trace(PyObject *unused, PyFrameObject *frame, int what, PyObject *argument)
{
    if (what != PyTrace_LINE)
        return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    Py_DECREF(code);
    if (file == NULL || strncmp(file, at.folder, strlen(at.folder)) != 0)
        return 0;
    at.lines++;
    if (--at.left == 0)
        PyErr_SetInterruptEx(at.signal);
    return 0;
}

/* From here on in this thread; line 0: none, they are only counted. */
__attribute__((visibility("default"))) void begin(const char *folder, long line, int signal)
{
    at.folder = folder;
    at.left = line;
    at.signal = signal;
    at.lines = 0;
    PyEval_SetTrace(trace, NULL);
}

/* How many such lines have run since. */
__attribute__((visibility("default"))) long end(void)
{
    PyEval_SetTrace(NULL, NULL);
    return at.lines;
}
