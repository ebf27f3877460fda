#include "live.h"

#include <stdlib.h>

#include "../base/grow.h"

void cm_live_clear(cm_live *live)
{
    cm_blocks_clear(&live->at);
    free(live->block);
    *live = (cm_live){0};
}

bool cm_live_requested(const cm_replay *replay, const cm_item *item, int64_t *bytes)
{
    /* The request is reported after its allocation, and on some devices never. */
    if (item->kind == CM_ITEM_ALLOC || !replay->device[item->device].slack_known)
        return false;
    *bytes = item->bytes - item->slack;
    return true;
}

/* A number for a new block, which is the last in the order. 0: out of memory. */
static uint32_t reserve(cm_live *live)
{
    uint32_t number = live->free;
    if (number != 0) {
        live->free = live->block[number - 1].after;
    } else {
        if (live->count >= UINT32_MAX - 1 ||
            !cm_grow((void **)&live->block, &live->capacity, live->count + 1, sizeof *live->block))
            return 0;
        number = (uint32_t)++live->count;
    }
    live->block[number - 1] = (cm_live_block){.before = live->last};
    if (live->last != 0)
        live->block[live->last - 1].after = number;
    else
        live->first = number;
    live->last = number;
    return number;
}

static void give_back(cm_live *live, uint32_t number)
{
    cm_live_block *b = &live->block[number - 1];
    *(b->before != 0 ? &live->block[b->before - 1].after : &live->first) = b->after;
    *(b->after != 0 ? &live->block[b->after - 1].before : &live->last) = b->before;
    b->after = live->free;
    live->free = number;
}

static cm_live_block *put(cm_live *live, uint16_t device, uint64_t address)
{
    const cm_block key = {.address = address, .device = device};
    if (!live->at.noted && !cm_blocks_keep_notes(&live->at))
        return NULL;
    uint32_t number = reserve(live);
    const cm_block *at = number == 0 ? NULL : cm_blocks_put(&live->at, &key);
    if (at == NULL)
        return NULL;
    *cm_blocks_note(&live->at, at) = number;
    return &live->block[number - 1];
}

cm_live_block *cm_live_add(cm_live *live, const cm_item *item, const cm_replay *replay)
{
    /* A replaced block ends before its successor is born: the replay reports it. */
    cm_live_block *b = cm_live_find(live, item->device, item->address);
    if (b == NULL)
        b = put(live, (uint16_t)item->device, item->address);
    if (b == NULL)
        return NULL;
    b->address = item->address;
    b->time_ns = item->time_ns;
    b->bytes = item->bytes;
    b->origin = item->origin;
    b->thread = item->thread;
    b->step = item->step;
    b->device = (uint16_t)item->device;
    b->started = item->kind == CM_ITEM_START;
    b->reported = item->reported;
    b->requested_known = cm_live_requested(replay, item, &b->requested);
    b->inside = false;
    return b;
}

cm_live_block *cm_live_find(cm_live *live, int16_t device, uint64_t address)
{
    const cm_block *at = device < 0 ? NULL : cm_blocks_find(&live->at, (uint16_t)device, address);
    return at == NULL ? NULL : &live->block[*cm_blocks_note(&live->at, at) - 1];
}

bool cm_live_take(cm_live *live, int16_t device, uint64_t address, cm_live_block *out)
{
    cm_block ignored;
    uint32_t number;
    if (device < 0 || !cm_blocks_take(&live->at, (uint16_t)device, address, &ignored, &number))
        return false;
    *out = live->block[number - 1];
    give_back(live, number);
    return true;
}

uint32_t cm_live_next(const cm_live *live, uint32_t after)
{
    return after == 0 ? live->first : live->block[after - 1].after;
}
