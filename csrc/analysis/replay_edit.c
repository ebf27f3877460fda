#include "replay_edit.h"

#include "../base/grow.h"

#include <stdlib.h>

typedef struct event {
    int64_t position, bytes; /* bytes: negative at an end */
    size_t life;
} event;

struct cm_edit_base {
    event *event; /* sorted */
    size_t events, count;
};

static int by_position(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    return (a->bytes > 0) - (b->bytes > 0);
}

static size_t put_events(event *out, cm_edit_life life, size_t index)
{
    if (life.bytes <= 0 || (life.end >= 0 && life.end <= life.birth))
        return 0;
    out[0] = (event){life.birth, life.bytes, index};
    if (life.end < 0)
        return 1;
    out[1] = (event){life.end, -life.bytes, index};
    return 2;
}

cm_edit_base *cm_edit_base_new(const int64_t *birth, const int64_t *end, const int64_t *bytes,
                               size_t count)
{
    cm_edit_base *base = calloc(1, sizeof *base);
    event *events = malloc((2 * count + 1) * sizeof *events);
    if (base == NULL || events == NULL) {
        free(base);
        free(events);
        return NULL;
    }
    base->event = events;
    base->count = count;
    for (size_t i = 0; i < count; i++)
        base->events +=
            put_events(&events[base->events], (cm_edit_life){birth[i], end[i], bytes[i]}, i);
    cm_sort(events, base->events, sizeof *events, by_position);
    return base;
}

void cm_edit_base_free(cm_edit_base *base)
{
    if (base == NULL)
        return;
    free(base->event);
    free(base);
}

size_t cm_edit_base_count(const cm_edit_base *base)
{
    return base->count;
}

static cm_edit_peak merge(const cm_edit_base *base, const bool *gone, const event *added,
                          size_t added_count)
{
    cm_edit_peak peak = {0, 0};
    int64_t live = 0;
    for (size_t i = 0, j = 0; i < base->events || j < added_count;) {
        bool from_base =
            j >= added_count || (i < base->events && by_position(&base->event[i], &added[j]) <= 0);
        const event *e = from_base ? &base->event[i++] : &added[j++];
        if (from_base && gone[e->life])
            continue;
        live += e->bytes;
        if (live > peak.bytes)
            peak = (cm_edit_peak){live, e->position};
    }
    return peak;
}

bool cm_edit_replay(const cm_edit_base *base, const int64_t *removed, size_t removed_count,
                    const cm_edit_life *added, size_t added_count, cm_edit_peak *out)
{
    bool *gone = calloc(base->count + 1, sizeof *gone);
    event *events = malloc((2 * added_count + 1) * sizeof *events);
    size_t count = 0;
    bool fine = gone != NULL && events != NULL;
    if (fine) {
        for (size_t i = 0; i < removed_count; i++)
            gone[removed[i]] = true;
        for (size_t i = 0; i < added_count; i++)
            count += put_events(&events[count], added[i], i);
        cm_sort(events, count, sizeof *events, by_position);
        *out = merge(base, gone, events, count);
    }
    free(gone);
    free(events);
    return fine;
}
