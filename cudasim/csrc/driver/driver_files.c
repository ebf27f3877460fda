/* The files of the real driver's devices: whoever asks whether one is there is answered that it is.
 *
 * JAX looks for them before it asks the driver, and takes the CPU where there are none. Only their
 * being there is simulated: there is nothing to open, which is the driver's own business. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_device(const char *path)
{
    static const char start[] = "/dev/nvidia";
    if (!path || strncmp(path, start, sizeof start - 1))
        return false;
    const char *name = path + sizeof start - 1;
    char *end;
    if (!strcmp(name, "ctl") || !strcmp(name, "-uvm"))
        return cm_sim_config_get()->installed > 0;
    if (*name < '0' || *name > '9' || (*name == '0' && name[1]))
        return false;
    unsigned long number = strtoul(name, &end, 10);
    return !*end && number < (unsigned long)cm_sim_config_get()->installed;
}

/* A character device, as the real one is, that every system has. */
static const char *existing(const char *path)
{
    return is_device(path) ? "/dev/null" : path;
}

/* The C library's functions have no prototypes here: older ones define some of them inline. */
#define ASKS(name, parameters, ...)                                                                \
    CM_SIM_EXPORT int name parameters;                                                             \
    CM_SIM_EXPORT int name parameters                                                              \
    {                                                                                              \
        static _Atomic(void *) found;                                                              \
        int(*next) parameters;                                                                     \
        void *known = atomic_load_explicit(&found, memory_order_relaxed);                          \
        if (!known) {                                                                              \
            known = dlsym(RTLD_NEXT, #name);                                                       \
            atomic_store_explicit(&found, known, memory_order_relaxed);                            \
        }                                                                                          \
        if (!known) {                                                                              \
            errno = ENOSYS;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        *(void **)&next = known;                                                                   \
        return next(__VA_ARGS__);                                                                  \
    }

ASKS(access, (const char *path, int mode), existing(path), mode)
ASKS(stat, (const char *path, void *to), existing(path), to)
ASKS(stat64, (const char *path, void *to), existing(path), to)
ASKS(fstatat, (int at, const char *path, void *to, int flags), at, existing(path), to, flags)
ASKS(fstatat64, (int at, const char *path, void *to, int flags), at, existing(path), to, flags)
ASKS(statx, (int at, const char *path, int flags, unsigned mask, void *to), at, existing(path),
     flags, mask, to)
/* Programs that were linked with a C library before 2.33. */
ASKS(__xstat, (int version, const char *path, void *to), version, existing(path), to)
ASKS(__xstat64, (int version, const char *path, void *to), version, existing(path), to)
