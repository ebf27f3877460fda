/* Which release of CUDA a program was built with.
 *
 * The libraries of both are preloaded under their names, so that only who needs them tells: the
 * entries DT_NEEDED of what is loaded. A program that looks the runtime up by name, as CuPy does,
 * has none, and counts as one of CUDA 13 until a library that has one is loaded. */
#define _GNU_SOURCE
#include "sim.h"

#include <link.h>
#include <string.h>

enum { NONE = 0, OLD = 12, NEW = 13 };

static int look(struct dl_phdr_info *object, size_t size, void *found)
{
    const ElfW(Dyn) *dynamic = NULL;
    const char *strings = NULL;

    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (const ElfW(Dyn) *d = dynamic; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)d->d_un.d_ptr;
    /* The linker has made an address of it, but not for the kernel's own object (vDSO). */
    if (!strings || (uintptr_t)strings < object->dlpi_addr)
        return 0;
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag != DT_NEEDED)
            continue;
        if (!strcmp(strings + d->d_un.d_val, "libcudart.so.13"))
            *(int *)found = NEW;
        else if (!strcmp(strings + d->d_un.d_val, "libcudart.so.12") && *(int *)found == NONE)
            *(int *)found = OLD;
    }
    return *(int *)found == NEW;
}

int cm_sim_cuda_major(void)
{
    static atomic_int known;
    int major = atomic_load_explicit(&known, memory_order_relaxed);

    if (major == NONE) {
        dl_iterate_phdr(look, &major);
        atomic_store_explicit(&known, major, memory_order_relaxed);
    }
    return major == NONE ? NEW : major;
}
