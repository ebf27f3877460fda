/* What the files that build a report's objects share. All with the GIL held; NULL and -1 mean that
 * an exception is set. */
#ifndef CM_PYTHON_BUILD_H
#define CM_PYTHON_BUILD_H

#include "module.h"

#include <stdbool.h>
#include <stdint.h>

#include "../analysis/analysis.h"

/* What is built from one result. Objects that occur often are made once. */
typedef struct cm_py_builder {
    const cm_reader *reader;
    const cm_analysis *analysis;
    uint32_t tables;   /* cm_analysis_options.tables */
    PyObject *stacks;  /* stack id -> frames */
    PyObject *names;   /* name id -> str */
    PyObject *strings; /* address of a definition's string -> str */
} cm_py_builder;

PyObject *cm_py_text(const char *bytes); /* NULL -> None */
/* The id as an int; its frames go into the table of stacks. */
PyObject *cm_py_stack_id(cm_py_builder *b, uint32_t stack);
/* Both take the reference, and pass a NULL on as -1. */
int cm_py_append(PyObject *list, PyObject *item);
int cm_py_put(PyObject *dict, const char *key, PyObject *value);

/* py_ledger.c: the keys of the driver level. */
bool cm_py_put_ledger(cm_py_builder *b, PyObject *dict);

#endif
