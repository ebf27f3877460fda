/* Virtual memory: addresses are reserved, physical memory is created and charged, map joins them.
 *
 * A handle is a number in a table, so a stale one is an error and not a crash. Contents belong to
 * addresses here: what is unmapped is gone, even if its handle is mapped again elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "fork.h"
#include "known.h"
#include "memory.h"

typedef struct mapping {
    uintptr_t start;
    size_t bytes, offset;
    uint32_t slot;
    bool readable, writable;
} mapping;

typedef struct reservation {
    cm_sim_region region;
    size_t mapped;  /* bytes */
    mapping **maps; /* by chunk; as untouched as the addresses until something is mapped */
} reservation;

typedef struct physical {
    size_t bytes; /* 0: the slot is free */
    int device;
    uint32_t holders, maps;
    uint32_t generation; /* of the slot: detects a stale handle */
    uint32_t next_free;
} physical;

enum { NONE = UINT32_MAX >> 1 };

/* Under cm_sim_memory_lock. */
static physical *slots;
static uint32_t slot_count, slot_room, first_free = NONE;
static uint64_t in_use; /* reservations and physical memory */

bool cm_sim_virtual_in_use(void)
{
    return in_use > 0;
}

static cm_sim_physical *handle_of(uint32_t slot)
{
    return (cm_sim_physical *)((uintptr_t)slots[slot].generation << 32 | (slot + 1));
}

/* NONE: no such handle. */
static uint32_t slot_of(const cm_sim_physical *handle)
{
    uint32_t slot = (uint32_t)((uintptr_t)handle & UINT32_MAX) - 1;

    return slot < slot_count && slots[slot].bytes > 0 && handle_of(slot) == handle ? slot : NONE;
}

static uint32_t new_slot(void)
{
    if (first_free != NONE) {
        uint32_t slot = first_free;
        first_free = slots[slot].next_free;
        return slot;
    }
    if (slot_count == slot_room) {
        uint32_t room = slot_room == 0 ? 64 : slot_room * 2;
        physical *more = realloc(slots, room * sizeof *more);
        if (more == NULL)
            return NONE;
        slots = more;
        slot_room = room;
    }
    slots[slot_count] = (physical){0};
    return slot_count++;
}

static void free_slot(uint32_t slot)
{
    slots[slot].bytes = 0;
    slots[slot].generation = (slots[slot].generation + 1) & INT32_MAX;
    slots[slot].next_free = first_free;
    first_free = slot;
}

static reservation *reservation_at(uintptr_t address)
{
    cm_sim_chunk *chunk = cm_sim_chunk_of(address);
    cm_sim_region *region = chunk != NULL ? atomic_load(&chunk->owner) : NULL;

    return region != NULL && region->kind == CM_SIM_REGION_RESERVED ? (reservation *)region : NULL;
}

/* The reservation that a range of whole chunks lies in; NULL: none does. */
static reservation *reservation_of(uintptr_t address, size_t bytes)
{
    reservation *in = reservation_at(address);

    if (in == NULL || bytes == 0 || address % CM_SIM_CHUNK != 0 || bytes % CM_SIM_CHUNK != 0 ||
        bytes > in->region.start + in->region.bytes - address)
        return NULL;
    return in;
}

static mapping **map_at(const reservation *in, uintptr_t address)
{
    return &in->maps[(address - in->region.start) / CM_SIM_CHUNK];
}

/* Whether a range is made of whole mappings. */
static bool whole_mappings(const reservation *in, uintptr_t address, size_t bytes)
{
    for (uintptr_t at = address; at < address + bytes;) {
        mapping *map = *map_at(in, at);
        if (map == NULL || map->start != at || map->bytes > address + bytes - at)
            return false;
        at += map->bytes;
    }
    return true;
}

/* --- Addresses -------------------------------------------------------------------------------- */

int cm_sim_reserve(size_t bytes, size_t alignment, void **address)
{
    int error = cm_sim_device_check(0);
    reservation *made;

    *address = NULL;
    if (error != CM_SIM_OK)
        return error;
    if (alignment < CM_SIM_CHUNK)
        alignment = CM_SIM_CHUNK;
    if (bytes == 0 || bytes % CM_SIM_CHUNK != 0 || (alignment & (alignment - 1)) != 0)
        return CM_SIM_INVALID_VALUE;

    cm_sim_memory_lock();
    made = calloc(1, sizeof *made);
    if (made != NULL)
        made->maps = calloc(bytes / CM_SIM_CHUNK, sizeof *made->maps);
    if (made != NULL && made->maps != NULL)
        *address = cm_sim_space_take(bytes, alignment, false, made);
    if (*address == NULL) {
        if (made != NULL)
            free(made->maps);
        free(made);
        error = cm_sim_account_limited(-1, "address space", bytes, CM_SIM_MAPPED);
    } else {
        made->region = (cm_sim_region){CM_SIM_REGION_RESERVED, -1, (uintptr_t)*address, bytes};
        in_use++;
        cm_sim_account_log(CM_SIM_LOG_RESERVE,
                           &(cm_sim_block){(uintptr_t)*address, bytes, 0, -1, CM_SIM_MAPPED}, 0, 0);
    }
    cm_sim_memory_unlock();
    return error;
}

int cm_sim_unreserve(void *address, size_t bytes)
{
    int error = CM_SIM_INVALID_VALUE;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    cm_sim_memory_lock();
    reservation *gone = reservation_at((uintptr_t)address);
    if (gone != NULL && gone->region.start == (uintptr_t)address && gone->region.bytes == bytes &&
        gone->mapped == 0) {
        cm_sim_space_give(address, bytes);
        free(gone->maps);
        free(gone);
        in_use--;
        cm_sim_account_log(CM_SIM_LOG_UNRESERVE,
                           &(cm_sim_block){(uintptr_t)address, bytes, 0, -1, CM_SIM_MAPPED}, 0, 0);
        error = CM_SIM_OK;
    }
    cm_sim_memory_unlock();
    return error;
}

/* --- Physical memory -------------------------------------------------------------------------- */

static cm_sim_block physical_block(uint32_t slot)
{
    return (cm_sim_block){(uintptr_t)handle_of(slot), slots[slot].bytes, slots[slot].bytes,
                          slots[slot].device, CM_SIM_MAPPED};
}

int cm_sim_create(int device, size_t bytes, cm_sim_physical **handle)
{
    int error = cm_sim_context(device);

    *handle = NULL;
    if (error != CM_SIM_OK)
        return error;
    if (bytes == 0 || bytes % CM_SIM_CHUNK != 0)
        return CM_SIM_INVALID_VALUE;
    cm_sim_memory_lock();
    if (!cm_sim_account_take(device, bytes, bytes, CM_SIM_MAPPED)) {
        error = CM_SIM_OUT_OF_MEMORY;
    } else {
        uint32_t slot = new_slot();
        if (slot == NONE) {
            cm_sim_account_give(device, bytes, CM_SIM_MAPPED);
            error = cm_sim_account_limited(device, "host memory", bytes, CM_SIM_MAPPED);
        } else {
            slots[slot].bytes = bytes;
            slots[slot].device = device;
            slots[slot].holders = 1;
            slots[slot].maps = 0;
            *handle = handle_of(slot);
            in_use++;
            cm_sim_block block = physical_block(slot);
            cm_sim_account_given(CM_SIM_LOG_CREATE, &block, (int64_t)bytes);
        }
    }
    cm_sim_memory_unlock();
    return error;
}

static void destroy_if_unused(uint32_t slot)
{
    cm_sim_block block = physical_block(slot);

    if (slots[slot].holders > 0 || slots[slot].maps > 0)
        return;
    free_slot(slot);
    in_use--;
    cm_sim_account_give(block.device, block.charged, CM_SIM_MAPPED);
    cm_sim_account_returned(CM_SIM_LOG_DESTROY, &block, -(int64_t)block.charged);
}

int cm_sim_release(cm_sim_physical *handle)
{
    int error = CM_SIM_INVALID_VALUE;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    cm_sim_memory_lock();
    uint32_t slot = slot_of(handle);
    if (slot != NONE && slots[slot].holders > 0) {
        slots[slot].holders--;
        destroy_if_unused(slot);
        error = CM_SIM_OK;
    }
    cm_sim_memory_unlock();
    return error;
}

cm_sim_physical *cm_sim_retain(const void *address)
{
    cm_sim_physical *handle = NULL;

    if (cm_sim_forked())
        return NULL;
    cm_sim_memory_lock();
    reservation *in = reservation_at((uintptr_t)address);
    mapping *map = in != NULL ? *map_at(in, (uintptr_t)address) : NULL;
    if (map != NULL) {
        slots[map->slot].holders++;
        handle = handle_of(map->slot);
    }
    cm_sim_memory_unlock();
    return handle;
}

int cm_sim_physical_device(const cm_sim_physical *handle)
{
    cm_sim_memory_lock();
    uint32_t slot = slot_of(handle);
    int device = slot != NONE ? slots[slot].device : -1;
    cm_sim_memory_unlock();
    return device;
}

/* --- Joining them ----------------------------------------------------------------------------- */

static int map_locked(uintptr_t address, size_t bytes, size_t offset, cm_sim_physical *handle)
{
    reservation *in = reservation_of(address, bytes);
    uint32_t slot = slot_of(handle);
    mapping *made;

    if (in == NULL || slot == NONE || offset % CM_SIM_CHUNK != 0 || offset > slots[slot].bytes ||
        bytes > slots[slot].bytes - offset)
        return CM_SIM_INVALID_VALUE;
    for (uintptr_t at = address; at < address + bytes; at += CM_SIM_CHUNK)
        if (*map_at(in, at) != NULL)
            return CM_SIM_INVALID_VALUE;
    made = malloc(sizeof *made);
    if (made == NULL)
        return cm_sim_account_limited(slots[slot].device, "host memory", bytes, CM_SIM_MAPPED);
    *made = (mapping){address, bytes, offset, slot, false, false};
    for (uintptr_t at = address; at < address + bytes; at += CM_SIM_CHUNK)
        *map_at(in, at) = made;
    in->mapped += bytes;
    slots[slot].maps++;
    cm_sim_account_log(CM_SIM_LOG_MAP,
                       &(cm_sim_block){address, bytes, 0, slots[slot].device, CM_SIM_MAPPED}, 0,
                       (uintptr_t)handle);
    return CM_SIM_OK;
}

int cm_sim_map(void *address, size_t bytes, size_t offset, cm_sim_physical *handle)
{
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    cm_sim_memory_lock();
    int error = map_locked((uintptr_t)address, bytes, offset, handle);
    cm_sim_memory_unlock();
    return error;
}

static void unmap_one(reservation *in, mapping *gone)
{
    uint32_t slot = gone->slot;

    cm_sim_account_log(
        CM_SIM_LOG_UNMAP,
        &(cm_sim_block){gone->start, gone->bytes, 0, slots[slot].device, CM_SIM_MAPPED}, 0,
        (uintptr_t)handle_of(slot));
    for (uintptr_t at = gone->start; at < gone->start + gone->bytes; at += CM_SIM_CHUNK)
        *map_at(in, at) = NULL;
    in->mapped -= gone->bytes;
    free(gone);
    slots[slot].maps--;
    destroy_if_unused(slot);
}

int cm_sim_unmap(void *address, size_t bytes)
{
    uintptr_t start = (uintptr_t)address;
    int error = CM_SIM_INVALID_VALUE;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    cm_sim_memory_lock();
    reservation *in = reservation_of(start, bytes);
    if (in != NULL && whole_mappings(in, start, bytes)) {
        cm_sim_known_drop(start, bytes);
        if (!cm_sim_space_clear(address, bytes))
            cm_sim_note(CM_SIM_NOTE_LIMIT, "mappings of the process", bytes);
        for (uintptr_t at = start; at < start + bytes;) {
            mapping *map = *map_at(in, at);
            at += map->bytes;
            unmap_one(in, map);
        }
        error = CM_SIM_OK;
    }
    cm_sim_memory_unlock();
    return error;
}

int cm_sim_access(void *address, size_t bytes, bool writable)
{
    uintptr_t start = (uintptr_t)address;
    int error = CM_SIM_INVALID_VALUE;

    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    cm_sim_memory_lock();
    reservation *in = reservation_of(start, bytes);
    if (in != NULL && whole_mappings(in, start, bytes)) {
        /* What is read-only for kernels is still ours to clear. */
        if (!cm_sim_space_protect(address, bytes, true, true)) {
            error = cm_sim_account_limited(-1, "mappings of the process", bytes, CM_SIM_MAPPED);
        } else {
            for (uintptr_t at = start; at < start + bytes; at += (*map_at(in, at))->bytes) {
                (*map_at(in, at))->readable = true;
                (*map_at(in, at))->writable = writable;
            }
            error = CM_SIM_OK;
        }
    }
    cm_sim_memory_unlock();
    return error;
}

bool cm_sim_mapping_find(const cm_sim_region *region, uintptr_t address, cm_sim_block *block)
{
    mapping *map = *map_at((const reservation *)region, address);

    if (map == NULL)
        return false;
    *block =
        (cm_sim_block){map->start, map->bytes, map->bytes, slots[map->slot].device, CM_SIM_MAPPED};
    return true;
}

bool cm_sim_mapping_reach(const cm_sim_region *region, uintptr_t address, size_t bytes, bool write)
{
    const reservation *in = (const reservation *)region;
    uintptr_t end = address + bytes;

    if (end < address || end > region->start + region->bytes)
        return false;
    for (uintptr_t at = address; at < end;) {
        mapping *map = *map_at(in, at);
        if (map == NULL || !(write ? map->writable : map->readable))
            return false;
        at = map->start + map->bytes;
    }
    return true;
}
