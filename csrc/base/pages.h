/* Memory straight from the kernel, for tables that grow inside hooks. It avoids mmap and its like,
 * because a program may replace them (an allocation tracker does) with ones that lock. */
#ifndef CM_BASE_PAGES_H
#define CM_BASE_PAGES_H

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Private and zero; MAP_FAILED without room. Any thread, in hooks too. */
static inline void *cm_pages_map(size_t bytes, int protection, int flags)
{
    return (void *)syscall(SYS_mmap, NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                           -1, 0);
}

static inline int cm_pages_protect(void *start, size_t bytes, int protection)
{
    return (int)syscall(SYS_mprotect, start, bytes, protection);
}

static inline void cm_pages_unmap(void *start, size_t bytes)
{
    syscall(SYS_munmap, start, bytes);
}

#endif
