#define _GNU_SOURCE /* secure_getenv */
#include "environment.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>

static atomic_bool is_ignored;

void cm_environment_ignore(bool ignored)
{
    atomic_store(&is_ignored, ignored);
}

bool cm_environment_is_privileged(void)
{
    return getauxval(AT_SECURE) != 0;
}

const char *cm_environment_get(const char *name)
{
    return atomic_load(&is_ignored) ? NULL : secure_getenv(name);
}
