/* What a mode of the stress program does right after a file was opened: linked with --wrap=open. */
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

#include "stress.h"

void (*stress_opened)(const char *path, int fd);

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    int fd = __real_open(path, flags, mode);
    if (fd >= 0 && stress_opened != NULL)
        stress_opened(path, fd);
    return fd;
}
