/* Is what the walk reads what Python says? Asked of the running interpreter before any stack is
 * captured, because a wrong offset would be a crash or, worse, a wrong line. */
#ifndef CM_FRAMES_SELFTEST_H
#define CM_FRAMES_SELFTEST_H

/* Runs a few lines of Python that call back from a plain call, a generator, a closure, a call from
 * C and a method, and compares the raw chain (code, instruction, first local, copied strings) with
 * the public API at each. NULL: all equal; else what was not (static string). GIL held; leaves no
 * exception behind. */
const char *cm_selftest_run(void);

#endif
