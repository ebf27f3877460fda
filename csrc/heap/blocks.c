#include "blocks.h"

#include <stdlib.h>

#include "../base/hash.h"
#include "../base/grow.h"
#include "../base/table.h"

void cm_blocks_clear(cm_blocks *blocks)
{
    free(blocks->slot);
    free(blocks->note);
    *blocks = (cm_blocks){0};
}

bool cm_blocks_copy(cm_blocks *copy, const cm_blocks *blocks)
{
    *copy = *blocks;
    copy->note = NULL;
    if (cm_copy((void **)&copy->slot, blocks->slot, blocks->slots, sizeof *blocks->slot) &&
        (blocks->note == NULL ||
         cm_copy((void **)&copy->note, blocks->note, blocks->slots, sizeof *blocks->note)))
        return true;
    cm_blocks_clear(copy);
    return false;
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

static bool is_alive(const void *entry)
{
    return ((const cm_block *)entry)->alive;
}

static uint64_t hash(const void *blocks, const void *entry)
{
    const cm_block *block = entry;
    return hash_of(blocks, block->device, block->address);
}

static bool is(const void *blocks, const void *entry, const void *wanted)
{
    (void)blocks;
    const cm_block *block = entry;
    const place *at = wanted;
    return block->address == at->address && block->device == at->device;
}

static const cm_table_kind by_place = {sizeof(cm_block), 1024, 3, is_alive, hash, is};

static inline size_t find(const cm_blocks *blocks, uint16_t device, uint64_t address)
{
    const place wanted = {address, device};
    return cm_table_find(&by_place, blocks, blocks->slot, blocks->slots,
                         hash_of(blocks, device, address), &wanted);
}

cm_block *cm_blocks_at(cm_blocks *blocks, uint16_t device, uint64_t address)
{
    if (blocks->slots == 0)
        return NULL;
    size_t i = find(blocks, device, address);
    return blocks->slot[i].alive ? &blocks->slot[i] : NULL;
}

const cm_block *cm_blocks_find(const cm_blocks *blocks, uint16_t device, uint64_t address)
{
    return cm_blocks_at((cm_blocks *)blocks, device, address);
}

bool cm_blocks_keep_notes(cm_blocks *blocks)
{
    if (blocks->slots > 0 && !blocks->noted) {
        blocks->note = calloc(blocks->slots, sizeof *blocks->note);
        if (blocks->note == NULL)
            return false;
    }
    blocks->noted = true;
    return true;
}

static bool rebuild(cm_blocks *blocks, size_t slots, bool keyed)
{
    cm_blocks larger = {.slots = slots, .count = blocks->count, .keyed = keyed};
    larger.slot = calloc(larger.slots, sizeof *larger.slot);
    if (larger.slot == NULL || (blocks->noted && !cm_blocks_keep_notes(&larger))) {
        free(larger.slot);
        return false;
    }
    for (size_t i = 0; i < blocks->slots; i++) {
        const cm_block *old = &blocks->slot[i];
        if (!old->alive)
            continue;
        size_t at = find(&larger, old->device, old->address);
        larger.slot[at] = *old;
        if (blocks->noted)
            larger.note[at] = blocks->note[i];
    }
    free(blocks->slot);
    free(blocks->note);
    *blocks = larger;
    return true;
}

cm_block *cm_blocks_reserve(cm_blocks *blocks, uint16_t device, uint64_t address)
{
    if (blocks->count * 4 >= blocks->slots * by_place.quarters &&
        !rebuild(blocks, blocks->slots ? blocks->slots * 2 : by_place.least, blocks->keyed))
        return NULL;
    size_t i = find(blocks, device, address);
    size_t far = (i - hash_of(blocks, device, address)) & (blocks->slots - 1);
    if (far <= CM_HASH_LONG || blocks->keyed)
        return &blocks->slot[i];
    if (!rebuild(blocks, blocks->slots, true))
        return NULL;
    return &blocks->slot[find(blocks, device, address)];
}

void cm_blocks_fill(cm_blocks *blocks, cm_block *slot, const cm_block *block)
{
    blocks->count += !slot->alive;
    *slot = *block;
    slot->alive = true;
    if (blocks->noted)
        blocks->note[slot - blocks->slot] = 0;
}

const cm_block *cm_blocks_put(cm_blocks *blocks, const cm_block *block)
{
    cm_block *slot = cm_blocks_reserve(blocks, block->device, block->address);
    if (slot != NULL)
        cm_blocks_fill(blocks, slot, block);
    return slot;
}

bool cm_blocks_take(cm_blocks *blocks, uint16_t device, uint64_t address, cm_block *out,
                    uint32_t *note)
{
    if (blocks->slots == 0)
        return false;
    size_t hole = find(blocks, device, address);
    cm_block *slot = blocks->slot;
    if (!slot[hole].alive)
        return false;
    *out = slot[hole];
    if (note != NULL)
        *note = blocks->noted ? blocks->note[hole] : 0;
    for (size_t i; (i = cm_table_filler(&by_place, blocks, slot, blocks->slots, hole)) != SIZE_MAX;
         hole = i) {
        slot[hole] = slot[i];
        if (blocks->noted)
            blocks->note[hole] = blocks->note[i];
    }
    slot[hole].alive = false;
    blocks->count--;
    return true;
}
