/* Finding the block of memory behind a c10::StorageImpl, for blocks allocated before recording
 * began.
 *
 * Python gives a storage's address and size, but not its allocator: one filled by torch.load and
 * one that wraps a numpy array look alike. The storage's deleter differs, and its offset is found
 * on storages of known origin. */
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

/* Finds the offsets from at least three samples of different sizes, and from a slice of one of them
 * (its object and its parent's; 0, 0: none). GIL held; the storages stay alive meanwhile. Returns
 * NULL, or the reason why allocators cannot be distinguished (static string). */
const char *cm_storage_calibrate(const cm_storage_sample *samples, size_t count, uintptr_t slice,
                                 uintptr_t parent);

/* Offsets inside c10::StorageImpl. All 0: not calibrated. */
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
