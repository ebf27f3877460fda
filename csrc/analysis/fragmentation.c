/* PyTorch's segments against its blocks, sorted only at the few moments of the report. The first
 * reading found when reserved bytes reach their maximum. */
#include "fragmentation.h"

#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "parts.h"
#include "../heap/scan.h"

typedef struct piece { /* what goes back whole: a segment of cudaMalloc, or a mapped handle */
    uint64_t address;
    int64_t size, allocated;
    uint32_t reservation; /* of a mapping: slot + 1; 0: unknown */
    bool mapped;
} piece;

typedef struct range { /* pieces without a gap between them */
    uint64_t address;
    int64_t size, allocated, largest_free;
    size_t first, count; /* pieces */
} range;

typedef struct span { /* a segment as reports have it: all ranges of a reservation */
    uint64_t address;
    int64_t size, allocated, largest_free;
    size_t first, count; /* ranges */
    uint32_t reservation;
    bool mapped;
} span;

typedef struct holding { /* blocks of one stack in one piece, then in one span */
    uint32_t stack;
    uint32_t span;
    size_t piece;
    int64_t bytes, pinned;
    uint64_t count;
} holding;

typedef struct layout { /* of one device */
    const cm_replay *replay;
    const cm_block **block;
    size_t blocks, block_capacity;
    piece *piece;
    size_t pieces, piece_capacity;
    int64_t bytes; /* of all pieces */
    range *range;
    size_t ranges, range_capacity;
    span *span;
    size_t spans, span_capacity;
    holding *holding;
    size_t holdings, holding_capacity;
} layout;

typedef struct fragments {
    const cm_run *run;
    cm_fragmentation *found;
    size_t count, capacity;
    bool peak_seen[CM_TOTALS_HOST], oom_seen[CM_TOTALS_HOST];
} fragments;

static void clear(layout *p)
{
    free(p->block);
    free(p->piece);
    free(p->range);
    free(p->span);
    free(p->holding);
}

/* --- what there is ------------------------------------------------------------------------- */

static bool add_piece(layout *p, piece one)
{
    if (p->bytes >= CM_TOTALS_MOST)
        return true; /* larger than any memory: damage */
    p->bytes += one.size;
    if (!cm_grow((void **)&p->piece, &p->piece_capacity, p->pieces + 1, sizeof *p->piece))
        return false;
    p->piece[p->pieces++] = one;
    return true;
}

static int by_address(const void *left, const void *right)
{
    const piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static int by_block_address(const void *left, const void *right)
{
    const cm_block *const *a = left, *const *b = right;
    return (*a)->address < (*b)->address ? -1 : (*a)->address > (*b)->address;
}

static bool collect_mapped(layout *p, const cm_driver_map *map, int index)
{
    cm_driver_mapping m;
    for (uint64_t at = 0; cm_driver_map_next_mapping(map, at, &m); at = m.address + 1) {
        piece one = {.address = m.address,
                     .size = m.size,
                     .reservation = cm_driver_map_reservation(map, m.address),
                     .mapped = true};
        if (m.device == index && !add_piece(p, one))
            return false;
        if (m.address == UINT64_MAX)
            break;
    }
    return true;
}

static bool collect_pieces(layout *p, uint16_t number)
{
    const cm_replay *r = p->replay;
    for (size_t i = 0; i < r->segments.count; i++) {
        const cm_segment *s = &r->segments.segment[i];
        if (s->device == number && !add_piece(p, (piece){.address = s->address, .size = s->size}))
            return false;
    }
    return r->driver == NULL || collect_mapped(p, r->driver, r->device[number].index);
}

/* Ranges of pieces, and spans of ranges. */
static bool divide(layout *p)
{
    for (size_t i = 0; i < p->pieces; i++) {
        const piece *now = &p->piece[i];
        range *r = p->ranges > 0 ? &p->range[p->ranges - 1] : NULL;
        span *s = p->spans > 0 ? &p->span[p->spans - 1] : NULL;
        bool both = s != NULL && s->mapped && now->mapped;
        bool adjacent = both && r->address + (uint64_t)r->size == now->address;
        if (adjacent && s->reservation == now->reservation) {
            r->size += now->size;
            r->count++;
            s->size += now->size;
            continue;
        }
        if (!cm_grow((void **)&p->range, &p->range_capacity, p->ranges + 1, sizeof *p->range))
            return false;
        p->range[p->ranges++] =
            (range){.address = now->address, .size = now->size, .first = i, .count = 1};
        if (both && s->reservation != 0 && s->reservation == now->reservation) {
            s->size += now->size;
            s->count++;
            continue;
        }
        if (!cm_grow((void **)&p->span, &p->span_capacity, p->spans + 1, sizeof *p->span))
            return false;
        p->span[p->spans++] = (span){.address = now->address,
                                     .size = now->size,
                                     .first = p->ranges - 1,
                                     .count = 1,
                                     .reservation = now->reservation,
                                     .mapped = now->mapped};
    }
    return true;
}

static bool collect(layout *p, uint16_t number)
{
    if (!collect_pieces(p, number))
        return false;
    if (p->pieces == 0)
        return true;
    cm_sort(p->piece, p->pieces, sizeof *p->piece, by_address);
    if (!divide(p))
        return false;
    const cm_blocks *blocks = &p->replay->blocks;
    size_t at = 0;
    for (const cm_block *block; (block = cm_blocks_next(blocks, &at)) != NULL;) {
        if (block->direct || block->device != number)
            continue;
        if (!cm_grow((void **)&p->block, &p->block_capacity, p->blocks + 1, sizeof *p->block))
            return false;
        p->block[p->blocks++] = block;
    }
    cm_sort(p->block, p->blocks, sizeof *p->block, by_block_address);
    return true;
}

/* --- one span ------------------------------------------------------------------------------ */

/* Bytes of whole granules that a stretch without blocks would return. */
static int64_t granules(int64_t from, int64_t to)
{
    int64_t first = (from + CM_GRANULE - 1) / CM_GRANULE, last = to / CM_GRANULE;
    return last > first ? (last - first) * CM_GRANULE : 0;
}

static bool add_holding(layout *p, const cm_block *block, uint32_t number, size_t at, bool first)
{
    if (!cm_grow((void **)&p->holding, &p->holding_capacity, p->holdings + 1, sizeof *p->holding))
        return false;
    p->holding[p->holdings++] =
        (holding){.stack = p->replay->origin[cm_replay_origin(p->replay, block)].stack,
                  .span = number,
                  .piece = at,
                  .bytes = first ? block->size : 0,
                  .count = first};
    return true;
}

/* A block in the pieces of a range, from *at on: of [from, to) it is the first. */
static bool hold(layout *p, const range *r, uint32_t number, const cm_block *block, int64_t from,
                 int64_t to, size_t *at)
{
    int64_t begin = (int64_t)(block->address - r->address), end = begin + block->size;
    bool first = true;
    while (*at + 1 < r->first + r->count && p->piece[*at + 1].address <= block->address)
        ++*at;
    for (size_t i = *at; i < r->first + r->count; i++) {
        piece *now = &p->piece[i];
        int64_t low = (int64_t)(now->address - r->address), high = low + now->size;
        if (low >= end && !first)
            break;
        if (!add_holding(p, block, number, i, first))
            return false;
        first = false;
        low = low > from ? low : from;
        high = high < to ? high : to;
        now->allocated += high > low ? high - low : 0;
    }
    return true;
}

/* Blocks from *next on; returns false when memory is out. */
static bool describe_range(layout *p, uint32_t number, range *r, size_t *next,
                           cm_fragmentation *out)
{
    int64_t cursor = 0, free_granules = 0;
    size_t at = r->first;
    while (*next < p->blocks && p->block[*next]->address < r->address)
        (*next)++;
    for (;; (*next)++) {
        const cm_block *block = *next < p->blocks ? p->block[*next] : NULL;
        if (block != NULL && block->address - r->address >= (uint64_t)r->size)
            block = NULL;
        int64_t begin = block != NULL ? (int64_t)(block->address - r->address) : r->size;
        if (begin > cursor) {
            if (begin - cursor > r->largest_free)
                r->largest_free = begin - cursor;
            if (begin - cursor < out->asked)
                out->too_small += begin - cursor;
            free_granules += granules(cursor, begin);
        }
        if (block == NULL)
            break;
        int64_t end = begin + block->size < r->size ? begin + block->size : r->size;
        int64_t from = begin > cursor ? begin : cursor; /* of overlapping blocks, the new bytes */
        if (end > cursor) {
            r->allocated += end - from;
            cursor = end;
        }
        out->requested += block->size - cm_block_slack(block);
        if (!hold(p, r, number, block, from, end, &at))
            return false;
    }
    if (!p->span[number].mapped && r->allocated > 0)
        out->expandable_returns += free_granules;
    return true;
}

static bool describe_span(layout *p, uint32_t number, size_t *next, cm_fragmentation *out)
{
    span *s = &p->span[number];
    for (size_t i = 0; i < s->count; i++) {
        range *r = &p->range[s->first + i];
        if (!describe_range(p, number, r, next, out))
            return false;
        s->allocated += r->allocated;
        if (r->largest_free > s->largest_free)
            s->largest_free = r->largest_free;
        for (size_t j = 0; j < r->count; j++) {
            const piece *now = &p->piece[r->first + j];
            int64_t returns = now->allocated == 0 ? now->size : 0;
            out->empty_cache_returns += returns;
            out->expandable_returns += returns;
        }
    }
    out->reserved += s->size;
    out->allocated += s->allocated;
    if (s->largest_free > out->largest_free_block)
        out->largest_free_block = s->largest_free;
    return true;
}

/* --- pins ---------------------------------------------------------------------------------- */

static int by_span_and_stack(const void *left, const void *right)
{
    const holding *a = left, *b = right;
    if (a->span != b->span)
        return a->span < b->span ? -1 : 1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_span_stack_and_piece(const void *left, const void *right)
{
    const holding *a = left, *b = right;
    int order = by_span_and_stack(left, right);
    return order != 0 ? order : a->piece < b->piece ? -1 : a->piece > b->piece;
}

static int by_stack(const void *left, const void *right)
{
    const holding *a = left, *b = right;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_bytes(const void *left, const void *right)
{
    const cm_pin *a = left, *b = right;
    if (a->pinned != b->pinned)
        return a->pinned < b->pinned ? 1 : -1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_own_bytes(const void *left, const void *right)
{
    const cm_pin *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static int by_free(const void *left, const void *right)
{
    const span *a = *(span *const *)left, *b = *(span *const *)right;
    if (a->size - a->allocated != b->size - b->allocated)
        return a->size - a->allocated < b->size - b->allocated ? 1 : -1;
    return a->address < b->address ? -1 : a->address > b->address;
}

static bool is_partly_used(const span *s)
{
    return s->allocated > 0 && s->allocated < s->size;
}

/* One holding for each stack of a span, which keeps the partly used pieces that it lies in. */
static void join_holdings(layout *p)
{
    size_t count = 0, counted = SIZE_MAX; /* the last stack's last piece */
    cm_sort(p->holding, p->holdings, sizeof *p->holding, by_span_stack_and_piece);
    for (size_t i = 0; i < p->holdings; i++) {
        holding one = p->holding[i];
        const piece *in = &p->piece[one.piece];
        holding *last = count > 0 ? &p->holding[count - 1] : NULL;
        if (last == NULL || by_span_and_stack(last, &one) != 0) {
            last = &p->holding[count++];
            *last = (holding){.stack = one.stack, .span = one.span};
            counted = SIZE_MAX;
        }
        last->bytes += one.bytes;
        last->count += one.count;
        if (one.piece != counted && in->allocated < in->size)
            last->pinned += in->size;
        counted = one.piece;
    }
    p->holdings = count;
}

static size_t first_holding(const layout *p, uint32_t number)
{
    size_t low = 0, high = p->holdings;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->holding[middle].span < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The pins of one span, largest first. */
static bool pins_of(const layout *p, uint32_t number, cm_fragmentation *out,
                    cm_fragment_segment *segment, size_t *capacity)
{
    cm_pin *pin = NULL;
    size_t count = 0, pin_capacity = 0;
    for (size_t i = first_holding(p, number); i < p->holdings && p->holding[i].span == number;
         i++) {
        if (!cm_grow((void **)&pin, &pin_capacity, count + 1, sizeof *pin)) {
            free(pin);
            return false;
        }
        pin[count] = (cm_pin){.stack = p->holding[i].stack,
                              .bytes = p->holding[i].bytes,
                              .count = p->holding[i].count,
                              .pinned = p->holding[i].pinned};
        count++;
    }
    cm_sort(pin, count, sizeof *pin, by_own_bytes);
    if (count > CM_FRAGMENT_SEGMENT_PINS)
        count = CM_FRAGMENT_SEGMENT_PINS;
    segment->first_pin = out->segment_pin_count;
    segment->pin_count = count;
    bool fine = cm_grow((void **)&out->segment_pin, capacity, out->segment_pin_count + count,
                        sizeof *out->segment_pin);
    for (size_t i = 0; fine && i < count; i++)
        out->segment_pin[out->segment_pin_count++] = pin[i];
    free(pin);
    return fine;
}

/* The ranges of an expandable segment, and of which addresses they are. */
static bool ranges_of(const layout *p, const span *s, cm_fragmentation *out,
                      cm_fragment_segment *segment, size_t *capacity)
{
    const cm_driver_map *map = p->replay->driver;
    const range *last = &p->range[s->first + s->count - 1];
    segment->expandable = s->mapped;
    segment->first_range = out->range_count;
    segment->range_total = s->count;
    segment->unmapped =
        (int64_t)(last->address + (uint64_t)last->size - s->address) - segment->size;
    if (!s->mapped)
        return true;
    const cm_driver_allocation *a =
        s->reservation != 0 ? &map->allocation[s->reservation - 1] : NULL;
    if (a != NULL && !a->implied && !a->at_least)
        segment->addresses = a->size;
    segment->range_count = s->count < CM_FRAGMENT_RANGES ? s->count : CM_FRAGMENT_RANGES;
    if (!cm_grow((void **)&out->range, capacity, out->range_count + segment->range_count,
                 sizeof *out->range))
        return false;
    for (size_t i = 0; i < segment->range_count; i++) {
        const range *r = &p->range[s->first + i];
        out->range[out->range_count++] =
            (cm_fragment_range){r->address, r->size, r->allocated, r->largest_free};
    }
    return true;
}

static bool list_segments(layout *p, cm_fragmentation *out)
{
    size_t count = 0, pin_capacity = 0, range_capacity = 0;
    span **order = malloc((p->spans + 1) * sizeof *order);
    if (order == NULL)
        return false;
    for (size_t i = 0; i < p->spans; i++)
        if (is_partly_used(&p->span[i]))
            order[count++] = &p->span[i];
    cm_sort(order, count, sizeof *order, by_free);
    if (count > CM_FRAGMENT_SEGMENTS)
        count = CM_FRAGMENT_SEGMENTS;
    out->segment_total = p->spans;
    out->segment = calloc(count + 1, sizeof *out->segment);
    bool fine = out->segment != NULL;
    for (size_t i = 0; fine && i < count; i++) {
        cm_fragment_segment *s = &out->segment[out->segment_count++];
        *s = (cm_fragment_segment){.address = order[i]->address,
                                   .size = order[i]->size,
                                   .allocated = order[i]->allocated,
                                   .largest_free = order[i]->largest_free,
                                   .addresses = -1};
        fine = ranges_of(p, order[i], out, s, &range_capacity) &&
               pins_of(p, (uint32_t)(order[i] - p->span), out, s, &pin_capacity);
    }
    free(order);
    return fine;
}

static bool list_pins(layout *p, cm_fragmentation *out)
{
    size_t capacity = 0;
    cm_sort(p->holding, p->holdings, sizeof *p->holding, by_stack);
    for (size_t i = 0; i < p->holdings; i++) {
        const holding *h = &p->holding[i];
        if (!is_partly_used(&p->span[h->span]))
            continue;
        cm_pin *last = out->pin_count > 0 ? &out->pin[out->pin_count - 1] : NULL;
        if (last == NULL || last->stack != h->stack) {
            if (!cm_grow((void **)&out->pin, &capacity, out->pin_count + 1, sizeof *out->pin))
                return false;
            last = &out->pin[out->pin_count++];
            *last = (cm_pin){.stack = h->stack};
        }
        last->bytes += h->bytes;
        last->count += h->count;
        last->pinned += h->pinned;
        last->segments++;
    }
    cm_sort(out->pin, out->pin_count, sizeof *out->pin, by_bytes);
    if (out->pin_count > CM_FRAGMENT_PINS)
        out->pin_count = CM_FRAGMENT_PINS;
    return true;
}

/* --- a moment ------------------------------------------------------------------------------ */

static const cm_driver_state *driver_state(const cm_replay *r, int index)
{
    return r->driver != NULL ? &r->driver->device[cm_driver_map_place((int8_t)index)] : NULL;
}

/* By a measurement, corrected by what this process freed or allocated in between: PyTorch empties
 * its cache before it fails, without a measurement. One that is not quiet may or may not include
 * concurrent changes. */
static void set_free(cm_fragmentation *one, const cm_driver_moment *measured)
{
    if (measured->used < 0 || measured->total < measured->used)
        return;
    int64_t left = measured->total - measured->used + measured->driver - one->driver;
    one->free_on_device = left < 0 ? 0 : left > measured->total ? measured->total : left;
    int64_t fresh = one->free_on_device + one->empty_cache_returns;
    one->largest_request = fresh > one->largest_free_block ? fresh : one->largest_free_block;
}

void cm_fragmentation_finish(const cm_replay *r, cm_fragmentation *one)
{
    const cm_driver_state *d = driver_state(r, one->device);

    if (d != NULL && one->driver >= 0 && one->free_on_device < 0)
        set_free(one, d->first_quiet.used >= 0 ? &d->first_quiet : &d->last);
}

void cm_fragmentation_clear(cm_fragmentation *one)
{
    free(one->segment);
    free(one->range);
    free(one->pin);
    free(one->segment_pin);
}

bool cm_fragmentation_take(const cm_replay *r, uint16_t number, cm_fragment_what what,
                           uint64_t time_ns, int64_t asked, cm_fragmentation *out)
{
    layout p = {.replay = r};
    cm_fragmentation now = {.device = r->device[number].index,
                            .what = what,
                            .time_ns = time_ns,
                            .asked = asked,
                            .too_small = asked < 0 ? -1 : 0,
                            .driver = -1,
                            .free_on_device = -1,
                            .largest_request = -1};
    const cm_driver_state *driver = driver_state(r, now.device);
    size_t next = 0;
    bool fine = collect(&p, number);
    for (uint32_t i = 0; fine && i < p.spans; i++)
        fine = describe_span(&p, i, &next, &now);
    if (driver != NULL) {
        now.driver = r->driver->totals.device[cm_driver_map_place((int8_t)now.device)].bytes;
        set_free(&now, &driver->last_quiet);
    }
    if (fine && p.spans > 0) {
        join_holdings(&p);
        fine = list_segments(&p, &now) && list_pins(&p, &now);
    }
    clear(&p);
    if (!fine)
        cm_fragmentation_clear(&now);
    else
        *out = now;
    return fine;
}

static bool take(fragments *f, uint16_t number, cm_fragment_what what, uint64_t time_ns,
                 int64_t asked)
{
    cm_fragmentation now;
    if (!cm_fragmentation_take(f->run->replay, number, what, time_ns, asked, &now))
        return false;
    if (now.segment_total == 0)
        return true;
    if (!cm_grow((void **)&f->found, &f->capacity, f->count + 1, sizeof *f->found)) {
        cm_fragmentation_clear(&now);
        return false;
    }
    f->found[f->count++] = now;
    return true;
}

static void *create(const cm_run *run)
{
    fragments *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->run = run;
    for (uint16_t i = 0; i < run->replay->device_count; i++) {
        const cm_device *d = &run->replay->device[i];
        uint16_t place = cm_driver_map_place(d->index);
        const struct cm_plan_reserved *most = &run->plan->reserved[place];
        /* Never more in the window than at its start. */
        if (d->type != CM_DEVICE_CUDA || d->reserved < 0 ||
            (most->known && most->most > d->reserved))
            continue;
        f->peak_seen[place] = true;
        if (!take(f, i, CM_FRAGMENT_PEAK, run->begin_ns, -1)) {
            cm_part_fragmentation.destroy(f);
            return NULL;
        }
    }
    return f;
}

static bool event(void *part, const cm_record *record)
{
    fragments *f = part;
    const cm_event *e = &record->event;
    const cm_replay *r = f->run->replay;
    if (e->device_type != CM_DEVICE_CUDA)
        return true;
    uint16_t place = cm_driver_map_place(e->device_index);
    int number = cm_replay_find_device(r, e->device_type, e->device_index);
    bool oom = e->kind == CM_EV_OOM, *seen = oom ? f->oom_seen : f->peak_seen;
    /* The replay has applied this record. */
    if (number < 0 || seen[place] ||
        (!oom && f->run->plan->reserved[place].position + 1 != r->position))
        return true;
    seen[place] = true;
    return take(f, (uint16_t)number, oom ? CM_FRAGMENT_OOM : CM_FRAGMENT_PEAK, record->time_ns,
                oom ? e->size : -1);
}

static int by_device(const void *left, const void *right)
{
    const cm_fragmentation *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return a->what < b->what ? -1 : a->what > b->what;
}

static bool finish(void *part, cm_analysis *out)
{
    fragments *f = part;
    const cm_replay *r = f->run->replay;
    for (uint16_t i = 0; i < r->device_count; i++)
        if (r->device[i].type == CM_DEVICE_CUDA &&
            !take(f, i, CM_FRAGMENT_END, f->run->plan->end_ns, -1))
            return false;
    for (size_t i = 0; i < f->count; i++)
        cm_fragmentation_finish(r, &f->found[i]);
    cm_sort(f->found, f->count, sizeof *f->found, by_device);
    out->fragmentation = f->found;
    out->fragmentation_count = f->count;
    f->found = NULL;
    f->count = 0;
    return true;
}

static void destroy(void *part)
{
    fragments *f = part;
    for (size_t i = 0; i < f->count; i++)
        cm_fragmentation_clear(&f->found[i]);
    free(f->found);
    free(f);
}

const cm_part_kind cm_part_fragmentation = {.name = "fragmentation",
                                            .create = create,
                                            .event = event,
                                            .events = CM_PART_EVENT(CM_EV_RESERVED) |
                                                      CM_PART_EVENT(CM_EV_OOM),
                                            .finish = finish,
                                            .destroy = destroy};
