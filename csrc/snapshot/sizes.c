#include "sizes.h"

#include "../base/event.h"
#include "../base/idmap.h"

enum { UNIT = 512 };

static unsigned log2_of(uint64_t x)
{
    return 63 - (unsigned)__builtin_clzll(x);
}

/* The next larger of so many steps between powers of two. */
static uint64_t round_to_division(uint64_t size, unsigned divisions)
{
    if ((size & (size - 1)) == 0)
        return size;
    uint64_t below = UINT64_C(1) << log2_of(size), step = below >> log2_of(divisions);
    if (step == 0)
        return below << 1;
    return (size + step - 1) & ~(step - 1);
}

/* As CUDACachingAllocator::round_size, with the setting roundup_power2_divisions. */
static int64_t rounded(const cm_snap *s, int64_t asked)
{
    enum { FIRST_POWER = 20 };
    uint64_t size = (uint64_t)asked;
    if (asked <= UNIT || asked > INT64_MAX / 4)
        return asked <= UNIT ? UNIT : asked;
    unsigned power = log2_of(size) < FIRST_POWER ? 0 : log2_of(size) - FIRST_POWER;
    unsigned divisions = s->divisions[power < CM_SNAP_POWERS ? power : CM_SNAP_POWERS - 1];
    if (divisions > 1 && size > (uint64_t)UNIT * divisions)
        return (int64_t)round_to_division(size, divisions);
    return (int64_t)((size + UNIT - 1) / UNIT * UNIT);
}

static bool is_rounded(const cm_snap *s, const cm_snap_device *d)
{
    return s->exporter == 0 && (d->type == CM_DEVICE_CUDA || d->type == CM_DEVICE_XPU);
}

/* The block at an address, while events are followed: a number of an event, or of a block from
 * before, and which of them. */
enum { OF_EVENT = 0, OF_BEFORE = 1 };

static bool put(cm_idmap *live, uint64_t address, size_t number, int of)
{
    return !cm_snap_is_address(address) || number > UINT32_MAX / 2 - 1 ||
           cm_idmap_put(live, address, (uint32_t)number << 1 | (uint32_t)of);
}

/* A free has its allocation's size; 0: nothing is known to be there. */
static void follow_free(const cm_snap *s, const cm_snap_history *before, cm_idmap *live,
                        cm_snap_event *e)
{
    uint32_t value;
    e->block_size = 0;
    if (!cm_snap_is_address(e->address) || !cm_idmap_get(live, e->address, &value))
        return;
    uint32_t number = value >> 1;
    e->block_size =
        (value & 1) == OF_BEFORE ? before->block[number].size : s->event[number].block_size;
    cm_idmap_remove(live, e->address);
}

bool cm_snap_sizes(cm_snap *s, const cm_snap_device *d, cm_snap_history *before)
{
    bool rounds = is_rounded(s, d), fine = true;
    cm_idmap live = {0};
    for (size_t i = 0; fine && i < before->blocks; i++) {
        cm_snap_before *b = &before->block[i];
        if (b->size == 0)
            b->size = rounds ? rounded(s, b->requested) : b->requested;
        fine = put(&live, b->address, i, OF_BEFORE);
    }
    for (uint32_t i = d->events.first; fine && i < d->events.end; i++) {
        cm_snap_event *e = &s->event[i];
        if (e->action == CM_SAYS_ALLOC) {
            if (e->block_size == 0)
                e->block_size = rounds ? rounded(s, e->size) : e->size;
            fine = put(&live, e->address, i, OF_EVENT);
        } else if (e->action == CM_SAYS_FREE_REQUESTED || e->action == CM_SAYS_FREE) {
            follow_free(s, before, &live, e);
        }
    }
    cm_idmap_clear(&live);
    return fine;
}
