#include <sys/mman.h>

#include "space.h"
#include "sim.h"

enum {
    CHUNK_BITS = 21,
    LEAF_BITS = 13,    /* a leaf covers 16 GiB and takes 128 KiB, of which few pages are touched */
    ADDRESS_BITS = 48, /* no user address is higher on what this runs on */
    LEAVES = 1 << (ADDRESS_BITS - LEAF_BITS - CHUNK_BITS),
    LEAF = 1 << LEAF_BITS
};

static _Atomic(cm_sim_chunk *) leaves[LEAVES]; /* never freed: readers have no lock */

cm_sim_chunk *cm_sim_chunk_of(uintptr_t address)
{
    uintptr_t chunk = address >> CHUNK_BITS;

    if (chunk >> LEAF_BITS >= LEAVES)
        return NULL;
    cm_sim_chunk *leaf = atomic_load_explicit(&leaves[chunk >> LEAF_BITS], memory_order_acquire);
    return leaf != NULL ? &leaf[chunk & (LEAF - 1)] : NULL;
}

bool cm_sim_is_device(const void *address)
{
    cm_sim_chunk *chunk = cm_sim_chunk_of((uintptr_t)address);

    return chunk != NULL && atomic_load_explicit(&chunk->owner, memory_order_relaxed) != NULL;
}

static bool make_leaves(uintptr_t start, size_t bytes)
{
    for (uintptr_t i = start >> CHUNK_BITS >> LEAF_BITS,
                   last = (start + bytes - 1) >> CHUNK_BITS >> LEAF_BITS;
         i <= last; i++) {
        cm_sim_chunk *none = NULL;
        if (i >= LEAVES)
            return false;
        if (atomic_load(&leaves[i]) != NULL)
            continue;
        void *leaf = mmap(NULL, LEAF * sizeof(cm_sim_chunk), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (leaf == MAP_FAILED)
            return false;
        if (!atomic_compare_exchange_strong(&leaves[i], &none, leaf))
            munmap(leaf, LEAF * sizeof(cm_sim_chunk));
    }
    return true;
}

static void set_owner(uintptr_t start, size_t bytes, void *owner)
{
    for (size_t at = 0; at < bytes; at += CM_SIM_CHUNK)
        atomic_store_explicit(&cm_sim_chunk_of(start + at)->owner, owner, memory_order_relaxed);
}

static char *map(size_t bytes, bool access)
{
    char *mapped = mmap(NULL, bytes, access ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return mapped != MAP_FAILED ? mapped : NULL;
}

static char *map_aligned(size_t bytes, size_t alignment, bool access)
{
    size_t room = bytes + alignment - 4096;
    char *raw = map(bytes, access);

    /* The kernel puts mappings next to each other: after the first one, mostly aligned. */
    if (raw == NULL || (uintptr_t)raw % alignment == 0)
        return raw;
    munmap(raw, bytes);
    raw = room > bytes ? map(room, access) : NULL;
    if (raw == NULL)
        return NULL;
    char *start = raw + (-(uintptr_t)raw & (alignment - 1)), *end = raw + room;
    /* What was cut off may be mapped again at once, by others: never unmap it a second time. */
    if (start > raw && munmap(raw, (size_t)(start - raw)) == 0)
        raw = start;
    if (raw == start && start + bytes < end &&
        munmap(start + bytes, (size_t)(end - (start + bytes))) == 0)
        end = start + bytes;
    if (raw == start && end == start + bytes)
        return start;
    munmap(raw, (size_t)(end - raw));
    return NULL;
}

void *cm_sim_space_take(size_t bytes, size_t alignment, bool access, void *owner)
{
    char *start = map_aligned(bytes, alignment, access);

    if (start == NULL)
        return NULL;
    if (!make_leaves((uintptr_t)start, bytes)) {
        munmap(start, bytes);
        return NULL;
    }
    /* One touched byte must not commit 2 MiB of the host, and a core file must not have 80 GiB of
     * zeros. A kernel that knows neither advice is no error. */
    madvise(start, bytes, MADV_NOHUGEPAGE);
    madvise(start, bytes, MADV_DONTDUMP);
    set_owner((uintptr_t)start, bytes, owner);
    return start;
}

void cm_sim_space_give(void *address, size_t bytes)
{
    /* First: another thread may get the addresses as host memory at once. */
    set_owner((uintptr_t)address, bytes, NULL);
    if (munmap(address, bytes) != 0) {
        /* The host has too many mappings to split one: then the range stays as an empty hole. */
        cm_sim_note(CM_SIM_NOTE_LIMIT, "mappings of the process", bytes);
        madvise(address, bytes, MADV_DONTNEED);
    }
}

bool cm_sim_space_protect(void *address, size_t bytes, bool readable, bool writable)
{
    int access = (readable ? PROT_READ : PROT_NONE) | (writable ? PROT_WRITE : PROT_NONE);

    return mprotect(address, bytes, access) == 0;
}

bool cm_sim_space_clear(void *address, size_t bytes)
{
    return madvise(address, bytes, MADV_DONTNEED) == 0 && mprotect(address, bytes, PROT_NONE) == 0;
}
