/* cuptimem._core: temporary files.
 *
 * def temporary_file(path: str) -> object
 *     The file is removed with the object, by the process that made it.
 * def temporary_files_remove() -> None
 *     Removes the files of all live objects, at exit.
 *
 * In C, because profilers would see a finalizer in Python, and an interrupt during one is lost. */
#include "module.h"

#include <unistd.h>

static const char capsule_name[] = "cuptimem temporary file";

typedef struct temporary {
    struct temporary *next, **link; /* link: what points here; NULL: the file is removed */
    pid_t owner;
    char path[];
} temporary;

static temporary *all; /* guarded by the GIL */

static void remove_file(temporary *file)
{
    if (file->link == NULL)
        return;
    *file->link = file->next;
    if (file->next != NULL)
        file->next->link = file->link;
    file->link = NULL;
    if (file->owner == getpid())
        unlink(file->path); /* another clean-up may have removed it */
}

static void forget(PyObject *capsule)
{
    temporary *file = PyCapsule_GetPointer(capsule, capsule_name);

    remove_file(file);
    PyMem_Free(file);
}

static PyObject *temporary_file(PyObject *self, PyObject *path)
{
    PyObject *bytes;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    size_t size = (size_t)PyBytes_GET_SIZE(bytes) + 1;
    temporary *file = PyMem_Malloc(sizeof *file + size);
    if (file == NULL) {
        Py_DECREF(bytes);
        return PyErr_NoMemory();
    }
    *file = (temporary){.next = all, .link = &all, .owner = getpid()};
    memcpy(file->path, PyBytes_AS_STRING(bytes), size);
    Py_DECREF(bytes);
    PyObject *capsule = PyCapsule_New(file, capsule_name, forget);
    if (capsule == NULL) {
        PyMem_Free(file);
        return NULL;
    }
    if (all != NULL)
        all->link = &file->next;
    all = file;
    return capsule;
}

static PyObject *temporary_files_remove(PyObject *self, PyObject *unused)
{
    while (all != NULL)
        remove_file(all);
    Py_RETURN_NONE;
}

PyMethodDef cm_py_temporary_methods[] = {
    {"temporary_file", temporary_file, METH_O, NULL},
    {"temporary_files_remove", temporary_files_remove, METH_NOARGS, NULL},
    {NULL},
};
