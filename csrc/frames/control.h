/* What Python code decides about stacks before a capture starts. GIL held. */
#ifndef CM_FRAMES_CONTROL_H
#define CM_FRAMES_CONTROL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Frames of files under this path never show, their callers do. 0, or -1: too many prefixes, or
 * no memory. "/a/b" covers /a/b and /a/b/c.py, not /a/bc.py. */
int cm_frames_hide(const char *prefix);

/* This code's frames and all outside them never show. Keeps the code alive for ever. 0, or -1: too
 * many barriers. */
int cm_frames_barrier(PyCodeObject *code);

/* Frames of this code are module calls: their first local, `self`, is part of the stack's identity.
 * NULL: none are. Keeps the code alive for ever. 0, or -1 when the first local is not a plain
 * argument (an inner function captures it) or the code is of a size that is not supported. */
int cm_frames_module_call(PyCodeObject *code);

#endif
