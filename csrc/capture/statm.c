#include "statm.h"

#include <stdatomic.h>
#include <stdio.h>

#include "../base/descriptor.h"

/* Opened once: the program may close a short-lived descriptor (os.closerange), and our close would
 * then hit the file that reused its number. */
static _Atomic int number; /* descriptor + 1; 0: not open */
static struct stat file;   /* written while number is 0 */

static bool holds(int fd)
{
    return cm_descriptor_is(fd, file.st_dev, file.st_ino);
}

bool cm_statm_open(void)
{
    if (holds(atomic_load(&number) - 1))
        return true;
    atomic_store(&number, 0);
    int fd = cm_descriptor_open("/proc/self/statm", O_RDONLY, &file);
    atomic_store(&number, fd < 0 ? 0 : fd + 1);
    return fd >= 0;
}

void cm_statm_close(void)
{
    int fd = atomic_exchange(&number, 0) - 1;
    if (holds(fd))
        close(fd);
}

bool cm_statm_read(cm_statm *out)
{
    char text[128] = {0};
    long long resident, data;
    int fd = atomic_load(&number) - 1;

    if (!holds(fd) || pread(fd, text, sizeof text - 1, 0) <= 0 ||
        sscanf(text, "%*d %lld %*d %*d %*d %lld", &resident, &data) != 2)
        return false;
    int64_t page = sysconf(_SC_PAGESIZE);
    *out = (cm_statm){.resident = resident * page, .writable = data * page};
    return true;
}
