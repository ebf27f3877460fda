/* Blocks of device memory.
 *
 * The model of what an allocation takes of a device, as far as cudaMemGetInfo lets one see a real
 * driver do it: requests of 1 MiB and more take whole units of 2 MiB; smaller ones are carved, at
 * multiples of 512 bytes, out of slabs of 2 MiB, and a slab goes back when it is empty. Slabs are
 * per device, kind and memory pool. So an account moves by multiples of 2 MiB, and a small block's
 * `charged` is its share of a slab. cudaMallocAsync's pool is charged like cudaMalloc, at once;
 * managed memory, too, as far as there is room: account.c. */
#include <stdlib.h>
#include <string.h>

#include "fork.h"
#include "known.h"
#include "memory.h"

enum {
    SMALL = 1 << 20, /* below it, out of a slab */
    UNIT = 512,
    UNITS = (int)(CM_SIM_CHUNK / UNIT),
    WORDS = UNITS / 64,
    KINDS = CM_SIM_ARRAY + 1
};

typedef struct large {
    cm_sim_region region;
    cm_sim_block block;
    size_t *backing; /* the pool's that it is of, or NULL */
    uint8_t owner;
    uint16_t context;
    struct large *next, *previous; /* of its device */
} large;

typedef struct slab {
    cm_sim_region region;
    cm_sim_kind kind;
    size_t *backing;  /* the pool's that it is of, or NULL */
    uint16_t context; /* in which all its blocks live */
    int blocks;
    int room; /* no more free units than this lie together */
    struct slab *next, *previous;
    uint64_t taken[WORDS], first[WORDS]; /* a bit per unit: used; the first of a block */
    uint32_t bytes[UNITS];               /* of the block that begins there, as asked for */
    uint8_t owner[UNITS];
} slab;

static slab *slabs[CM_SIM_DEVICES][KINDS]; /* under cm_sim_memory_lock, as all here */
static large *larges[CM_SIM_DEVICES];

/* A pool's memory is its device's: it lives as long as there is any context. */
static uint16_t context_of(const cm_sim_block *block)
{
    return block->kind == CM_SIM_POOL ? 0 : cm_sim_context_here(block->device);
}

static void back(size_t *backing, size_t bytes)
{
    if (backing != NULL)
        *backing += bytes;
}

static void unback(size_t *backing, size_t bytes)
{
    if (backing != NULL)
        *backing -= bytes;
}

/* --- Large blocks ----------------------------------------------------------------------------- */

static int take_large(cm_sim_block *block, uint8_t owner, size_t *backing)
{
    size_t charge;
    large *made;

    /* Before rounding: nothing can overflow then. */
    if (block->bytes > cm_sim_account_most(block->device, block->kind))
        charge = SIZE_MAX;
    else
        charge = cm_sim_round(block->bytes, CM_SIM_CHUNK);
    if (!cm_sim_account_take(block->device, charge, block->bytes, block->kind))
        return CM_SIM_OUT_OF_MEMORY;
    made = calloc(1, sizeof *made);
    if (made != NULL)
        block->address = (uintptr_t)cm_sim_space_take(charge, CM_SIM_CHUNK, true, made);
    if (made == NULL || block->address == 0) {
        free(made);
        cm_sim_account_give(block->device, charge, block->kind);
        return cm_sim_account_limited(block->device, "address space", block->bytes, block->kind);
    }
    block->charged = charge;
    made->region = (cm_sim_region){CM_SIM_REGION_BLOCK, block->device, block->address, charge};
    made->block = *block;
    made->owner = owner;
    made->backing = backing;
    back(backing, charge);
    made->context = context_of(block);
    made->next = larges[block->device];
    if (made->next != NULL)
        made->next->previous = made;
    larges[block->device] = made;
    cm_sim_owner_gets(owner, block->device, charge);
    cm_sim_account_given(CM_SIM_LOG_ALLOC, block, (int64_t)charge);
    return CM_SIM_OK;
}

static void give_large(large *gone)
{
    cm_sim_block block = gone->block;

    cm_sim_known_drop(gone->region.start, gone->region.bytes);
    cm_sim_space_give((void *)gone->region.start, gone->region.bytes);
    cm_sim_account_give(block.device, block.charged, block.kind);
    unback(gone->backing, block.charged);
    cm_sim_owner_loses(gone->owner, block.device, block.charged);
    if (gone->previous != NULL)
        gone->previous->next = gone->next;
    else
        larges[block.device] = gone->next;
    if (gone->next != NULL)
        gone->next->previous = gone->previous;
    free(gone);
    cm_sim_account_returned(CM_SIM_LOG_FREE, &block, -(int64_t)block.charged);
}

/* --- Slabs ------------------------------------------------------------------------------------ */

static bool bit(const uint64_t *bits, int at)
{
    return bits[at / 64] >> (at % 64) & 1;
}

static void set_bits(uint64_t *bits, int at, int length, bool value)
{
    for (int end = at + length; at < end; at++)
        if (value)
            bits[at / 64] |= (uint64_t)1 << (at % 64);
        else
            bits[at / 64] &= ~((uint64_t)1 << (at % 64));
}

static int units_of(uint32_t bytes)
{
    return (int)(((uint64_t)bytes + UNIT - 1) / UNIT);
}

/* The first place with this many free units in a row; -1: none. */
static int find_room(const slab *in, int units)
{
    int run = 0;

    for (int at = 0; at < UNITS; at++) {
        if (at % 64 == 0 && in->taken[at / 64] == UINT64_MAX) {
            run = 0;
            at += 63;
            continue;
        }
        run = bit(in->taken, at) ? 0 : run + 1;
        if (run == units)
            return at - units + 1;
    }
    return -1;
}

/* Appended after `last`: the oldest slabs are filled first, so that the newest become empty. */
static slab *make_slab(const cm_sim_block *block, slab *last, size_t *backing, int *error)
{
    void *start = NULL;
    slab *made;

    *error = CM_SIM_OUT_OF_MEMORY;
    if (!cm_sim_account_take(block->device, CM_SIM_CHUNK, block->bytes, block->kind))
        return NULL;
    made = calloc(1, sizeof *made);
    if (made != NULL)
        start = cm_sim_space_take(CM_SIM_CHUNK, CM_SIM_CHUNK, true, made);
    if (start == NULL) {
        free(made);
        cm_sim_account_give(block->device, CM_SIM_CHUNK, block->kind);
        *error = cm_sim_account_limited(block->device, "address space", block->bytes, block->kind);
        return NULL;
    }
    made->region =
        (cm_sim_region){CM_SIM_REGION_SLAB, block->device, (uintptr_t)start, CM_SIM_CHUNK};
    made->kind = block->kind;
    made->backing = backing;
    back(backing, CM_SIM_CHUNK);
    made->context = context_of(block);
    made->room = UNITS;
    made->previous = last;
    if (last != NULL)
        last->next = made;
    else
        slabs[block->device][block->kind] = made;
    return made;
}

static int take_small(cm_sim_block *block, uint8_t owner, size_t *backing)
{
    int units = units_of((uint32_t)block->bytes), at = -1, error;
    int64_t change = 0;
    slab *in, *last = NULL;

    for (in = slabs[block->device][block->kind]; in != NULL; last = in, in = in->next) {
        if (in->room < units || in->backing != backing || in->context != context_of(block))
            continue;
        at = find_room(in, units);
        if (at >= 0)
            break;
        in->room = units - 1;
    }
    if (in == NULL) {
        in = make_slab(block, last, backing, &error);
        if (in == NULL)
            return error;
        at = 0;
        change = (int64_t)CM_SIM_CHUNK;
    }
    set_bits(in->taken, at, units, true);
    set_bits(in->first, at, 1, true);
    in->bytes[at] = (uint32_t)block->bytes;
    in->owner[at] = owner;
    in->blocks++;
    block->address = in->region.start + (uintptr_t)at * UNIT;
    block->charged = (size_t)units * UNIT;
    cm_sim_owner_gets(owner, block->device, block->charged);
    cm_sim_account_given(CM_SIM_LOG_ALLOC, block, change);
    return CM_SIM_OK;
}

/* The unit at which the block begins that this one belongs to; -1: it is free. */
static int first_unit(const slab *in, int at)
{
    if (!bit(in->taken, at))
        return -1;
    while (!bit(in->first, at))
        at--;
    return at;
}

static cm_sim_block small_block(const slab *in, int at)
{
    return (cm_sim_block){
        .address = in->region.start + (uintptr_t)at * UNIT,
        .bytes = in->bytes[at],
        .charged = (size_t)units_of(in->bytes[at]) * UNIT,
        .device = in->region.device,
        .kind = in->kind,
    };
}

static void give_small(slab *in, int at)
{
    int units = units_of(in->bytes[at]);
    cm_sim_block block = small_block(in, at);

    set_bits(in->taken, at, units, false);
    set_bits(in->first, at, 1, false);
    in->room = UNITS;
    in->blocks--;
    cm_sim_owner_loses(in->owner[at], block.device, block.charged);
    if (in->blocks > 0) {
        cm_sim_known_forget(block.address, block.charged);
        cm_sim_account_returned(CM_SIM_LOG_FREE, &block, 0);
        return;
    }
    if (in->previous != NULL)
        in->previous->next = in->next;
    else
        slabs[block.device][in->kind] = in->next;
    if (in->next != NULL)
        in->next->previous = in->previous;
    cm_sim_known_drop(in->region.start, CM_SIM_CHUNK);
    cm_sim_space_give((void *)in->region.start, CM_SIM_CHUNK);
    cm_sim_account_give(block.device, CM_SIM_CHUNK, block.kind);
    unback(in->backing, CM_SIM_CHUNK);
    free(in);
    cm_sim_account_returned(CM_SIM_LOG_FREE, &block, -(int64_t)CM_SIM_CHUNK);
}

static void give_all_small(slab *in)
{
    for (int at = 0, left = in->blocks; left > 0; at++)
        if (bit(in->first, at)) {
            left--;
            give_small(in, at); /* the last one's takes the slab with it */
        }
}

/* --- All of them ------------------------------------------------------------------------------ */

static cm_sim_region *region_at(uintptr_t address)
{
    cm_sim_chunk *chunk = cm_sim_chunk_of(address);

    return chunk != NULL ? atomic_load(&chunk->owner) : NULL;
}

int cm_sim_alloc(int device, cm_sim_kind kind, size_t bytes, const char *owner, void **address)
{
    return cm_sim_alloc_backed(device, kind, bytes, owner, NULL, address);
}

int cm_sim_alloc_backed(int device, cm_sim_kind kind, size_t bytes, const char *owner,
                        size_t *backing, void **address)
{
    cm_sim_block block = {.bytes = bytes, .device = device, .kind = kind};
    int error = cm_sim_context(device);

    *address = NULL;
    if (error != CM_SIM_OK)
        return error;
    if (kind < CM_SIM_DEVICE || kind > CM_SIM_ARRAY || kind == CM_SIM_MAPPED)
        return CM_SIM_INVALID_VALUE;
    if (bytes == 0)
        return CM_SIM_OK; /* as cudaMalloc(0): no memory, no error */
    cm_sim_memory_lock();
    uint8_t number = cm_sim_owner(owner);
    error =
        bytes < SMALL ? take_small(&block, number, backing) : take_large(&block, number, backing);
    cm_sim_memory_unlock();
    *address = (void *)block.address;
    return error;
}

int cm_sim_free(void *address, cm_sim_block *block)
{
    cm_sim_block gone = {0};
    int error = CM_SIM_INVALID_VALUE;

    if (block != NULL)
        memset(block, 0, sizeof *block);
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (address == NULL)
        return CM_SIM_OK;
    cm_sim_memory_lock();
    cm_sim_region *region = region_at((uintptr_t)address);
    if (region != NULL && region->kind == CM_SIM_REGION_BLOCK &&
        region->start == (uintptr_t)address) {
        gone = ((large *)region)->block;
        give_large((large *)region);
        error = CM_SIM_OK;
    } else if (region != NULL && region->kind == CM_SIM_REGION_SLAB) {
        slab *in = (slab *)region;
        size_t offset = (uintptr_t)address - region->start;
        int at = (int)(offset / UNIT);
        if (offset % UNIT == 0 && bit(in->first, at)) {
            gone = small_block(in, at);
            give_small(in, at);
            error = CM_SIM_OK;
        }
    }
    cm_sim_memory_unlock();
    if (error == CM_SIM_OK && block != NULL)
        *block = gone;
    return error;
}

/* Under the lock. */
static bool find(uintptr_t address, cm_sim_block *block)
{
    cm_sim_region *region = region_at(address);

    if (region == NULL)
        return false;
    if (region->kind == CM_SIM_REGION_RESERVED)
        return cm_sim_mapping_find(region, address, block);
    if (region->kind == CM_SIM_REGION_BLOCK) {
        *block = ((large *)region)->block;
        return true;
    }
    slab *in = (slab *)region;
    int at = first_unit(in, (int)((address - region->start) / UNIT));
    if (at < 0)
        return false;
    *block = small_block(in, at);
    return true;
}

bool cm_sim_find(const void *address, cm_sim_block *block)
{
    cm_sim_block found;

    if (!cm_sim_is_device(address))
        return false;
    cm_sim_memory_lock();
    bool there = find((uintptr_t)address, &found);
    cm_sim_memory_unlock();
    if (there && block != NULL)
        *block = found;
    return there;
}

bool cm_sim_reach(const void *address, size_t bytes, bool write, int *device)
{
    uintptr_t at = (uintptr_t)address;
    cm_sim_block found;

    cm_sim_memory_lock();
    bool there = find(at, &found);
    if (there && found.kind == CM_SIM_MAPPED)
        there = cm_sim_mapping_reach(region_at(at), at, bytes, write);
    else if (there)
        there = bytes <= found.address + found.charged - at;
    cm_sim_memory_unlock();
    if (there)
        *device = found.device;
    return there;
}

void cm_sim_blocks_end(int device, unsigned context, bool pools)
{
    for (large *one = larges[device], *next; one != NULL; one = next) {
        next = one->next;
        if (one->block.kind == CM_SIM_POOL ? pools : one->context == context)
            give_large(one);
    }
    for (int kind = CM_SIM_DEVICE; kind < KINDS; kind++)
        for (slab *in = slabs[device][kind], *next; in != NULL; in = next) {
            next = in->next;
            if (kind == CM_SIM_POOL ? pools : in->context == context)
                give_all_small(in);
        }
}
