/* cuptimem._core: tree samples, of a trace and of processes that run now. */
#include "module.h"

#include "../capture/process_tree.h"
#include "../trace/tree_chunk.h"
#include "py_build.h"

/* Of the sizes from first to before end. */
static PyObject *sizes_tuple(const cm_process *process, bool known, int first, int end)
{
    if (!known)
        Py_RETURN_NONE;
    PyObject *sizes = PyTuple_New(end - first);
    for (int i = first; sizes != NULL && i < end; i++) {
        PyObject *bytes = PyLong_FromUnsignedLongLong(process->kib[i] << 10);
        if (bytes == NULL)
            Py_CLEAR(sizes);
        else
            PyTuple_SET_ITEM(sizes, i - first, bytes);
    }
    return sizes;
}

static PyObject *process_tuple(const cm_process *process)
{
    PyObject *status =
        sizes_tuple(process, process->known & CM_KNOWN_STATUS, 0, CM_PROCESS_STATUS_SIZES);
    PyObject *rollup = sizes_tuple(process, process->known & CM_KNOWN_ROLLUP,
                                   CM_PROCESS_STATUS_SIZES, CM_PROCESS_SIZES);
    return Py_BuildValue("(iiKINNNK)", (int)process->pid, (int)process->parent,
                         (unsigned long long)process->started, (unsigned)process->role,
                         cm_py_text(process->name), status, rollup,
                         (unsigned long long)process->queued_kib << 10);
}

static PyObject *file_tuple(const cm_mapped_file *file)
{
    return Py_BuildValue("(iKNKO)", (int)file->pid, (unsigned long long)file->bytes,
                         cm_py_text(file->path), (unsigned long long)file->copied,
                         file->code ? Py_True : Py_False);
}

static PyObject *tree_tuple(const cm_process_tree *tree)
{
    PyObject *processes = PyList_New(0), *files = PyList_New(0), *open = PyList_New(0);
    bool good = processes != NULL && files != NULL && open != NULL;

    for (uint32_t i = 0; good && i < tree->count; i++)
        good = cm_py_append(processes, process_tuple(&tree->process[i])) == 0;
    for (uint32_t i = 0; good && tree->has_files && i < tree->files; i++)
        good = cm_py_append(files, file_tuple(&tree->file[i])) == 0;
    for (uint32_t i = 0; good && i < tree->opens; i++)
        good = cm_py_append(open, file_tuple(&tree->open[i])) == 0;
    if (good && !tree->has_files) {
        Py_DECREF(files);
        files = Py_NewRef(Py_None);
    }
    if (good)
        return Py_BuildValue("(KKKKINNNI)", (unsigned long long)tree->realtime_ns,
                             (unsigned long long)tree->cpu_ns, (unsigned long long)tree->shm_bytes,
                             (unsigned long long)tree->shm_used, (unsigned)tree->left_out,
                             processes, files, open, (unsigned)tree->unseen);
    Py_XDECREF(processes);
    Py_XDECREF(files);
    Py_XDECREF(open);
    return NULL;
}

PyDoc_STRVAR(
    tree_samples_doc,
    "tree_samples(path) -> list\n\n"
    "The tree samples of a trace: a tuple each of wall clock in ns, CPU time in ns that it took,\n"
    "bytes of /dev/shm and of these in use, processes left out, processes, files, open files. A "
    "process is\n"
    "(pid, parent, start in clock ticks since boot, role, name, sizes of status, of rollup, bytes\n"
    "queued), sizes in bytes, in the order of base/process_tree.h, None where they were not read.\n"
    "files: None, not looked at; else (pid, bytes, path, bytes copied, whether it is code). Last:\n"
    "files that are being loaded, as files; processes of the machine that were not looked at.");

static bool append_tree(void *list, const cm_process_tree *tree)
{
    return cm_py_append(list, tree_tuple(tree)) == 0;
}

static PyObject *tree_samples(PyObject *module, PyObject *argument)
{
    char error[512];
    PyObject *path;

    if (!PyUnicode_FSConverter(argument, &path))
        return NULL;
    cm_reader *reader = cm_reader_open(PyBytes_AS_STRING(path), error, sizeof error);
    Py_DECREF(path);
    if (reader == NULL)
        return cm_py_fail(error);
    cm_process_tree *tree = PyMem_Malloc(sizeof *tree);
    PyObject *list = PyList_New(0);
    if (tree == NULL)
        PyErr_NoMemory();
    const char *wrong =
        tree == NULL || list == NULL ? NULL : cm_tree_read_all(reader, tree, append_tree, list);
    cm_reader_close(reader);
    PyMem_Free(tree);
    if (wrong != NULL)
        cm_py_fail(wrong);
    if (PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

PyDoc_STRVAR(tree_now_doc,
             "tree_now(pid) -> tuple\n\nThe same of a process that runs now, with files, as far as "
             "this user may read it. None: there is no such process, or it may not be read.");

static PyObject *tree_now(PyObject *module, PyObject *argument)
{
    long pid = PyLong_AsLong(argument);
    bool found = false;

    if (pid == -1 && PyErr_Occurred())
        return NULL;
    cm_process_tree *tree = PyMem_Malloc(sizeof *tree);
    if (tree == NULL)
        return PyErr_NoMemory();
    if (pid > 0 && pid <= INT32_MAX)
        found = cm_process_tree_read((int32_t)pid, CM_TREE_MAPPED, NULL, tree);
    PyObject *made = found ? tree_tuple(tree) : Py_NewRef(Py_None);
    PyMem_Free(tree);
    return made;
}

PyMethodDef cm_py_tree_methods[] = {
    {"tree_samples", tree_samples, METH_O, tree_samples_doc},
    {"tree_now", tree_now, METH_O, tree_now_doc},
    {NULL, NULL, 0, NULL},
};
