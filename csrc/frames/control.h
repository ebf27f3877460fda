/* Settings for stacks, made by Python code before a capture starts. GIL held. */
#ifndef CM_FRAMES_CONTROL_H
#define CM_FRAMES_CONTROL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Hides frames of files under this path; their callers stay visible. "/a/b" covers /a/b and
 * /a/b/c.py, not /a/bc.py. 0, or -1: too many prefixes, or no memory. */
int cm_frames_hide(const char *prefix);

/* Hides this code's frames and all frames outside them. Keeps the code alive forever. 0, or -1: too
 * many barriers. */
int cm_frames_barrier(PyCodeObject *code);

/* Declares frames of this code to be module calls: their first local, `self`, is part of the
 * stack's identity. NULL: there are none. Keeps the code alive forever. 0, or -1 if the first local
 * is not a plain argument (an inner function captures it) or the code's size is not supported. */
int cm_frames_module_call(PyCodeObject *code);

#endif
