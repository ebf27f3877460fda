/* Shared by the files that build a report's objects. All with the GIL; NULL and -1 mean that an
 * exception is set. */
#ifndef CM_PYTHON_BUILD_H
#define CM_PYTHON_BUILD_H

#include "module.h"

#include <stdbool.h>
#include <stdint.h>

#include "../analysis/analysis.h"

/* The builder of one result's objects. Frequent objects are made once. */
typedef struct cm_py_builder {
    const cm_reader *reader;
    const cm_analysis *analysis;
    uint32_t tables;           /* cm_analysis_options.tables */
    PyObject *stacks;          /* stack id -> frames */
    PyObject *frames;          /* stack id -> its innermost frame */
    PyObject *names;           /* name id -> str */
    PyObject *strings;         /* address of a definition's string -> str */
    const cm_holder **holders; /* of the analysis, sorted by stack */
    uint64_t left;             /* budget for references to stacks, see cm_py_allow */
    uint64_t unshown;          /* references beyond that */
} cm_py_builder;

/* Call once, before use. Bounds the frames of all references by the trace's bytes: a few bytes can
 * define a stack of 1,024 calls, fewer refer to it, and a printed report repeats the frames for
 * every reference. */
void cm_py_allow(cm_py_builder *b);

PyObject *cm_py_text(const char *bytes); /* NULL -> None */
/* The same object for the same string, which outlives the builder: file names are in every frame.
 */
PyObject *cm_py_shared_text(cm_py_builder *b, const char *bytes);
/* The id as an int; adds its frames to the table of stacks. CM_STACK_LOST beyond the budget. */
PyObject *cm_py_stack_id(cm_py_builder *b, uint32_t stack);
/* Its frames, innermost first, each (file, function, line, end line, column, end column, module
 * class, module address, text of the line). */
PyObject *cm_py_stack(cm_py_builder *b, uint32_t stack);
/* The label of an autograd node's type name, None for 0. */
PyObject *cm_py_node_name(cm_py_builder *b, uint32_t name);
/* A text of a walk (CM_EV_LABEL), such as a module's name, None for 0. */
PyObject *cm_py_label(cm_py_builder *b, uint32_t name);
/* Of a library or a kernel, "" for 0. */
PyObject *cm_py_name(cm_py_builder *b, uint32_t name);
PyObject *cm_py_device_name(cm_py_builder *b, uint32_t device);
/* (file, line, function) of a line of the step clock, or None. */
PyObject *cm_py_clock_line(cm_py_builder *b, uint32_t line);
bool cm_py_sort_holders(cm_py_builder *b);
PyObject *cm_py_meta(const cm_reader *reader);
PyObject *cm_py_fail(const char *message); /* raises Error */

/* The progress callback of an analysis: calls `callback` (or NULL) and checks for signals, at most
 * ten times a second. Called without the GIL. false with an exception set. */
typedef struct cm_py_watcher {
    PyObject *callback;
    uint64_t next_ns;
} cm_py_watcher;
cm_py_watcher cm_py_watch(PyObject *callback); /* None: no callback */
bool cm_py_watched(double share, void *watcher);

extern const char *const cm_py_phases[],
    *const cm_py_states[], *const cm_py_categories[CM_CATEGORIES], *const cm_py_tables[CM_TABLES];

/* Both steal the reference, and return -1 for NULL. */
int cm_py_append(PyObject *list, PyObject *item);
int cm_py_put(PyObject *dict, const char *key, PyObject *value);

/* py_charts.c: the requested spans. */
bool cm_py_chart_spans(PyObject *rows, cm_chart_span *spans, size_t *count);

#endif
