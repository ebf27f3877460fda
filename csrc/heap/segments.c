#include "segments.h"

#include <stdlib.h>

#include "../base/grow.h"

/* Keys of the maps are below UINT64_MAX. */
static uint64_t key_of(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

void cm_segments_clear(cm_segments *s)
{
    free(s->segment);
    cm_idmap_clear(&s->at);
    cm_idmap_clear(&s->gone);
    *s = (cm_segments){0};
}

bool cm_segments_copy(cm_segments *copy, const cm_segments *s)
{
    *copy = (cm_segments){.count = s->count, .capacity = s->count};
    if (cm_copy((void **)&copy->segment, s->segment, s->count, sizeof *s->segment) &&
        cm_idmap_copy(&copy->at, &s->at) && cm_idmap_copy(&copy->gone, &s->gone))
        return true;
    cm_segments_clear(copy);
    return false;
}

int cm_segments_add(cm_segments *s, const cm_segment *segment, cm_segment *replaced)
{
    uint64_t key = key_of(segment->address);
    uint32_t at;
    bool known = cm_idmap_get(&s->at, key, &at);
    *replaced = (cm_segment){0};
    if (segment->before_start && (known || cm_idmap_get(&s->gone, key, &(uint32_t){0})))
        return 0;
    if (known) {
        *replaced = s->segment[at];
    } else {
        at = (uint32_t)s->count;
        if (s->count >= UINT32_MAX ||
            !cm_grow((void **)&s->segment, &s->capacity, s->count + 1, sizeof *s->segment) ||
            !cm_idmap_put(&s->at, key, at))
            return -1;
        s->count++;
    }
    s->segment[at] = *segment;
    return 1;
}

int cm_segments_take(cm_segments *s, uint64_t address, cm_segment *out)
{
    uint64_t key = key_of(address);
    uint32_t at;
    if (!cm_idmap_get(&s->at, key, &at))
        return cm_idmap_put(&s->gone, key, 0) ? 0 : -1;
    *out = s->segment[at];
    cm_idmap_remove(&s->at, key);
    cm_segment last = s->segment[--s->count];
    if (at == s->count)
        return 1;
    s->segment[at] = last;
    return cm_idmap_put(&s->at, key_of(last.address), at) ? 1 : -1;
}
