/* Which block of memory a c10::StorageImpl stands for: needed when a profile starts in mid-run and
 * blocks must be found that no hook has seen. Python tells address and size, but not who allocated:
 * a storage that torch.load filled and one that wraps a numpy array look alike. The storage's
 * deleter tells; where it is kept is found on storages of known origin. */
#ifndef CM_SOURCES_STORAGE_H
#define CM_SOURCES_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A storage fresh from the CPU allocator: where the object lies and what it holds. */
typedef struct cm_storage_sample {
    uintptr_t object;
    uint64_t address, size;
} cm_storage_sample;

/* Learns from at least three samples of different sizes, and from a slice of one of them (object
 * and its parent's object; 0, 0: none at hand). GIL held, the storages stay alive meanwhile. NULL,
 * or why blocks cannot be told apart (static string). */
const char *cm_storage_calibrate(const cm_storage_sample *samples, size_t count, uintptr_t slice,
                                 uintptr_t parent);

/* What was learned: offsets inside c10::StorageImpl. All 0: not calibrated. */
typedef struct cm_storage_offsets {
    long data, deleter, context, size;
} cm_storage_offsets;
cm_storage_offsets cm_storage_get_offsets(void);

typedef enum cm_storage_origin {
    CM_STORAGE_UNKNOWN = 0,   /* another deleter: mapped, or not PyTorch's memory at all */
    CM_STORAGE_ALLOCATOR = 1, /* the CPU allocator's block at *address */
    CM_STORAGE_SLICE = 2      /* a part of the storage whose object is at *address */
} cm_storage_origin;

/* GIL held, the storage stays alive meanwhile. */
cm_storage_origin cm_storage_origin_of(uintptr_t object, uint64_t *address, uint64_t *size);

#endif
