/* Comparing walks with Python's public API, before any stack is captured: a wrong offset would be a
 * crash or, worse, a wrong line. */
#ifndef CM_FRAMES_SELFTEST_H
#define CM_FRAMES_SELFTEST_H

/* Runs a few lines of Python that call back from a plain call, a generator, a closure, a call from
 * C and a method, and compares the raw chain (code, instruction, first local, copied strings) with
 * the public API at each. NULL if all are equal, else the difference (static string). GIL held;
 * leaves no exception set. */
const char *cm_selftest_run(void);

#endif
