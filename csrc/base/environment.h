/* Environment variables, where they are obeyed: in no Python that ignores its environment, and in
 * no process with more rights than its caller. */
#ifndef CM_BASE_ENVIRONMENT_H
#define CM_BASE_ENVIRONMENT_H

#include <stdbool.h>

/* Before the first question, once: whether Python ignores its environment (-I, -E). */
void cm_environment_ignore(bool ignored);

/* Whether the kernel says that this process has more rights than its caller (AT_SECURE). */
bool cm_environment_is_privileged(void);

/* NULL: the variable is not set, or not obeyed. */
const char *cm_environment_get(const char *name);

#endif
