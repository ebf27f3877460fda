#include "blocks.h"

#include <stdlib.h>

#include "../base/hash.h"
#include "../base/grow.h"
#include "../base/table.h"

void cm_blocks_clear(cm_blocks *blocks)
{
    cm_pool_clear(&blocks->block);
    free(blocks->slot);
    free(blocks->note);
    *blocks = (cm_blocks){0};
}

bool cm_blocks_copy(cm_blocks *copy, const cm_blocks *blocks)
{
    *copy = *blocks;
    copy->slot = copy->note = NULL;
    if (cm_pool_copy(&copy->block, &blocks->block, sizeof(cm_block)) &&
        cm_copy((void **)&copy->slot, blocks->slot, blocks->slots, sizeof *blocks->slot) &&
        cm_copy((void **)&copy->note, blocks->note, blocks->note_capacity, sizeof *blocks->note))
        return true;
    cm_blocks_clear(copy);
    return false;
}

size_t cm_blocks_bytes(const cm_blocks *blocks)
{
    return blocks->block.highest * sizeof(cm_block) + blocks->slots * sizeof *blocks->slot +
           blocks->note_capacity * sizeof *blocks->note;
}

static uint64_t hash_of(const cm_blocks *blocks, uint16_t device, uint64_t address)
{
    uint64_t key = address ^ (uint64_t)device << 48;
    return blocks->keyed ? cm_hash(key) : cm_mix(key);
}

typedef struct place {
    uint64_t address;
    uint16_t device;
} place;

static const cm_block *block_at(const void *blocks, const void *entry)
{
    return cm_blocks_numbered(blocks, *(const uint32_t *)entry);
}

static uint64_t hash(const void *blocks, const void *entry)
{
    const cm_block *block = block_at(blocks, entry);
    return hash_of(blocks, block->device, block->address);
}

static bool is(const void *blocks, const void *entry, const void *wanted)
{
    const cm_block *block = block_at(blocks, entry);
    const place *at = wanted;
    return block->address == at->address && block->device == at->device;
}

static const cm_table_kind by_place = {sizeof(uint32_t), 1024, 3, cm_table_is_number, hash, is};

static inline size_t find(const cm_blocks *blocks, uint16_t device, uint64_t address)
{
    const place wanted = {address, device};
    return cm_table_find(&by_place, blocks, blocks->slot, blocks->slots,
                         hash_of(blocks, device, address), &wanted);
}

cm_block *cm_blocks_at(cm_blocks *blocks, uint16_t device, uint64_t address)
{
    uint32_t number = blocks->slots > 0 ? blocks->slot[find(blocks, device, address)] : 0;
    cm_block *block = number != 0 ? cm_blocks_numbered(blocks, number) : NULL;
    return block != NULL && block->alive ? block : NULL;
}

const cm_block *cm_blocks_find(const cm_blocks *blocks, uint16_t device, uint64_t address)
{
    return cm_blocks_at((cm_blocks *)blocks, device, address);
}

static bool make_room_for_notes(cm_blocks *blocks)
{
    return cm_grow_zeroed((void **)&blocks->note, &blocks->note_capacity,
                          (size_t)blocks->block.highest + 1, sizeof *blocks->note);
}

bool cm_blocks_keep_notes(cm_blocks *blocks)
{
    if (!blocks->noted && !make_room_for_notes(blocks))
        return false;
    blocks->noted = true;
    return true;
}

uint32_t *cm_blocks_note(const cm_blocks *blocks, const cm_block *block)
{
    return &blocks->note[blocks->slot[find(blocks, block->device, block->address)]];
}

/* The slot for a block there, after few others; SIZE_MAX: out of memory. */
static size_t make_room(cm_blocks *blocks, uint16_t device, uint64_t address)
{
    void **slot = (void **)&blocks->slot;
    if (!cm_table_make_room(&by_place, blocks, slot, &blocks->slots, blocks->count))
        return SIZE_MAX;
    size_t at = find(blocks, device, address);
    size_t far = (at - hash_of(blocks, device, address)) & (blocks->slots - 1);
    if (far <= CM_HASH_LONG || blocks->keyed)
        return at;
    blocks->keyed = true;
    return cm_table_rebuild(&by_place, blocks, slot, &blocks->slots, blocks->slots)
               ? find(blocks, device, address)
               : SIZE_MAX;
}

cm_block *cm_blocks_reserve(cm_blocks *blocks, uint16_t device, uint64_t address)
{
    size_t at = make_room(blocks, device, address);
    if (at == SIZE_MAX)
        return NULL;
    if (blocks->slot[at] != 0)
        return cm_blocks_numbered(blocks, blocks->slot[at]);
    uint32_t number = cm_pool_add(&blocks->block, sizeof(cm_block));
    if (number == 0 || (blocks->noted && !make_room_for_notes(blocks)))
        return NULL;
    blocks->slot[at] = number;
    blocks->count++;
    if (blocks->noted)
        blocks->note[number] = 0;
    cm_block *reserved = cm_blocks_numbered(blocks, number);
    *reserved = (cm_block){.address = address, .device = device};
    return reserved;
}

void cm_blocks_fill(cm_blocks *blocks, cm_block *reserved, const cm_block *block)
{
    if (reserved->alive && blocks->noted)
        *cm_blocks_note(blocks, reserved) = 0;
    *reserved = *block;
    reserved->alive = true;
}

const cm_block *cm_blocks_put(cm_blocks *blocks, const cm_block *block)
{
    cm_block *reserved = cm_blocks_reserve(blocks, block->device, block->address);
    if (reserved != NULL)
        cm_blocks_fill(blocks, reserved, block);
    return reserved;
}

bool cm_blocks_take(cm_blocks *blocks, uint16_t device, uint64_t address, cm_block *out,
                    uint32_t *note)
{
    if (blocks->slots == 0)
        return false;
    size_t at = find(blocks, device, address);
    uint32_t number = blocks->slot[at];
    if (number == 0 || !cm_blocks_numbered(blocks, number)->alive)
        return false;
    *out = *cm_blocks_numbered(blocks, number);
    if (note != NULL)
        *note = blocks->noted ? blocks->note[number] : 0;
    cm_table_remove(&by_place, blocks, blocks->slot, blocks->slots, at);
    cm_pool_remove(&blocks->block, sizeof(cm_block), number);
    blocks->count--;
    return true;
}
