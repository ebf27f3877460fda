#include "sizes.h"

#include <stdlib.h>

#include "../base/event.h"
#include "../base/idmap.h"
#include "ordered.h"

enum {
    UNIT = 512,
    SMALL = 1 << 20
}; /* SMALL: the largest block that comes out of a segment of small ones */

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

/* --- what is left of a gap ------------------------------------------------------------------ */

/* An allocation takes the beginning of a free range. Large ones take all of it where what would be
 * left is too small to be of use, or where the setting max_split_size says so: then the block ends
 * where the next one begins, or its segment. Ranges stay free until free_completed. */
typedef struct layout {
    cm_ordered blocks, segments; /* large blocks in use; segments */
    uint64_t *end;               /* of each segment; 0: it grows, and leaves nothing over */
    bool follows;                /* the device's allocator works like that */
} layout;

static bool is_segment(const cm_snap_event *e)
{
    return e->action == CM_SAYS_SEGMENT_ALLOC || e->action == CM_SAYS_SEGMENT_MAP;
}

static bool build(const cm_snap *s, const cm_snap_device *d, const cm_snap_history *before,
                  layout *l)
{
    bool fine = true;
    for (size_t i = 0; fine && i < before->blocks; i++)
        fine =
            before->block[i].size <= SMALL || cm_ordered_add(&l->blocks, before->block[i].address);
    for (size_t i = 0; fine && i < before->segments; i++)
        fine = cm_ordered_add(&l->segments, before->segment[i].address);
    for (uint32_t i = d->events.first; fine && i < d->events.end; i++) {
        const cm_snap_event *e = &s->event[i];
        if (e->action == CM_SAYS_ALLOC && e->size > SMALL - UNIT)
            fine = cm_ordered_add(&l->blocks, e->address);
        else if (is_segment(e))
            fine = cm_ordered_add(&l->segments, e->address);
    }
    if (!fine || !cm_ordered_build(&l->blocks) || !cm_ordered_build(&l->segments))
        return false;
    l->end = calloc(l->segments.count + 1, sizeof *l->end);
    return l->end != NULL;
}

static void use_block(layout *l, uint64_t address, bool used)
{
    size_t i = cm_ordered_find(&l->blocks, address);
    if (i < l->blocks.count && l->blocks.key[i] == address)
        cm_ordered_use(&l->blocks, i, used);
}

static void use_segment(layout *l, uint64_t address, uint64_t end, bool used)
{
    size_t i = cm_ordered_find(&l->segments, address);
    if (i >= l->segments.count || l->segments.key[i] != address)
        return;
    cm_ordered_use(&l->segments, i, used);
    l->end[i] = end;
}

static void begin(const cm_snap_history *before, layout *l)
{
    for (size_t i = 0; i < before->blocks; i++)
        use_block(l, before->block[i].address, true);
    for (size_t i = 0; i < before->segments; i++)
        use_segment(l, before->segment[i].address,
                    before->segment[i].expandable
                        ? 0
                        : before->segment[i].address + (uint64_t)before->segment[i].size,
                    true);
}

/* The end of the free range at this address; 0: unknown. */
static uint64_t end_of_gap(const layout *l, uint64_t address)
{
    size_t i = cm_ordered_find(&l->segments, address);
    if (i == l->segments.count || l->segments.key[i] != address) {
        if (i == 0)
            return 0;
        i--;
    }
    i = cm_ordered_last(&l->segments, i);
    if (i == SIZE_MAX || address >= l->end[i])
        return 0;
    size_t next = cm_ordered_next(&l->blocks, cm_ordered_find(&l->blocks, address));
    bool inside = next != SIZE_MAX && l->blocks.key[next] < l->end[i];
    return inside ? l->blocks.key[next] : l->end[i];
}

static int64_t given_out(const cm_snap *s, const layout *l, const cm_snap_event *e)
{
    int64_t size = l->follows ? rounded(s, e->size) : e->size;
    if (!l->follows || size <= SMALL)
        return size;
    uint64_t end = end_of_gap(l, e->address), left = end - e->address - (uint64_t)size;
    if (end <= e->address || end - e->address < (uint64_t)size)
        return size;
    bool splits = left > SMALL && (s->max_split == 0 || size < s->max_split);
    return splits ? size : (int64_t)(end - e->address);
}

static void follow_layout(layout *l, const cm_snap_event *e)
{
    switch (e->action) {
    case CM_SAYS_ALLOC:
        if (e->block_size > SMALL)
            use_block(l, e->address, true);
        break;
    case CM_SAYS_FREE_COMPLETED:
    case CM_SAYS_FREE:
        if (e->size > SMALL - UNIT)
            use_block(l, e->address, false);
        break;
    case CM_SAYS_SEGMENT_ALLOC:
        use_segment(l, e->address, e->address + (uint64_t)e->size, true);
        break;
    case CM_SAYS_SEGMENT_MAP:
        use_segment(l, e->address, 0, true);
        break;
    case CM_SAYS_SEGMENT_FREE:
        use_segment(l, e->address, 0, false);
        break;
    default:
        break;
    }
}

/* --- all events ----------------------------------------------------------------------------- */

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

/* What was said of a block later is said of its allocation. */
static void follow_note(cm_snap *s, const cm_idmap *live, const cm_snap_event *e)
{
    uint32_t value;
    if (e->metadata != 0 && cm_snap_is_address(e->address) &&
        cm_idmap_get(live, e->address, &value) && (value & 1) == OF_EVENT)
        s->event[value >> 1].metadata = e->metadata;
}

static bool follow(cm_snap *s, const cm_snap_device *d, cm_snap_history *before, layout *l)
{
    cm_idmap live = {0};
    bool fine = true;
    for (size_t i = 0; fine && i < before->blocks; i++)
        fine = put(&live, before->block[i].address, i, OF_BEFORE);
    for (uint32_t i = d->events.first; fine && i < d->events.end; i++) {
        cm_snap_event *e = &s->event[i];
        if (e->action == CM_SAYS_ALLOC) {
            if (e->block_size == 0)
                e->block_size = given_out(s, l, e);
            fine = put(&live, e->address, i, OF_EVENT);
        } else if (e->action == CM_SAYS_FREE_REQUESTED || e->action == CM_SAYS_FREE) {
            follow_free(s, before, &live, e);
        } else if (e->action == CM_SAYS_ANNOTATE) {
            follow_note(s, &live, e);
        }
        follow_layout(l, e);
    }
    cm_idmap_clear(&live);
    return fine;
}

bool cm_snap_sizes(cm_snap *s, const cm_snap_device *d, cm_snap_history *before)
{
    layout l = {.follows = is_rounded(s, d)};
    for (size_t i = 0; i < before->blocks; i++) {
        cm_snap_before *b = &before->block[i];
        if (b->size == 0)
            b->size = l.follows ? rounded(s, b->requested) : b->requested;
    }
    bool fine = build(s, d, before, &l);
    if (fine)
        begin(before, &l);
    fine = fine && follow(s, d, before, &l);
    cm_ordered_clear(&l.blocks);
    cm_ordered_clear(&l.segments);
    free(l.end);
    return fine;
}
