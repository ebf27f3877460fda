#include "group_totals.h"

#include <stdlib.h>

#include "../base/event.h"
#include "../base/hash.h"
#include "../base/grow.h"
#include "../base/table.h"

bool cm_totals_takes(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_ASYNC ||
           kind == CM_DRIVER_PHYSICAL || kind == CM_DRIVER_ARRAY;
}

bool cm_totals_is_host(uint8_t kind)
{
    return kind == CM_DRIVER_HOST || kind == CM_DRIVER_REGISTERED;
}

void cm_totals_clear(cm_totals *a)
{
    free(a->total);
    free(a->slot);
    *a = (cm_totals){0};
}

bool cm_totals_copy(cm_totals *copy, const cm_totals *a)
{
    *copy = *a;
    copy->capacity = a->count;
    copy->slot = NULL;
    if (cm_copy((void **)&copy->total, a->total, a->count, sizeof *a->total) &&
        cm_copy((void **)&copy->slot, a->slot, a->slots, sizeof *a->slot))
        return true;
    cm_totals_clear(copy);
    return false;
}

static uint64_t hash(const cm_total_key *key)
{
    return cm_hash(cm_hash((uint64_t)key->library << 32 | key->stack) +
                   ((uint64_t)key->device << 16 | (uint64_t)key->kind << 2 |
                    (uint64_t)key->torch << 1 | key->backward));
}

cm_total_key cm_totals_key(const cm_totals *a, uint32_t total)
{
    const cm_total *found = &a->total[total];
    return (cm_total_key){found->line.library, found->line.stack, found->device,
                          found->line.kind,    found->line.torch, found->line.backward};
}

static uint64_t hash_total(const void *totals, const void *entry)
{
    cm_total_key key = cm_totals_key(totals, cm_table_index(entry));
    return hash(&key);
}

static bool has_key(const void *totals, const void *entry, const void *wanted)
{
    const cm_total *a = &((const cm_totals *)totals)->total[cm_table_index(entry)];
    const cm_total_key *key = wanted;
    return a->line.library == key->library && a->line.stack == key->stack &&
           a->line.kind == key->kind && a->line.torch == key->torch &&
           a->line.backward == key->backward && a->device == key->device;
}

static const cm_table_kind by_key = {sizeof(uint32_t),   64,         2,
                                     cm_table_is_number, hash_total, has_key};

uint32_t cm_totals_find(cm_totals *a, const cm_total_key *key)
{
    if (!cm_table_make_room(&by_key, a, (void **)&a->slot, &a->slots, a->count))
        return CM_TOTALS_NONE;
    size_t at = cm_table_find(&by_key, a, a->slot, a->slots, hash(key), key);
    if (a->slot[at] != 0)
        return a->slot[at] - 1;
    if (a->count + 1 >= CM_TOTALS_NONE ||
        !cm_grow((void **)&a->total, &a->capacity, a->count + 1, sizeof *a->total))
        return CM_TOTALS_NONE;
    a->total[a->count] = (cm_total){.line = {.library = key->library,
                                             .stack = key->stack,
                                             .kind = key->kind,
                                             .torch = key->torch,
                                             .backward = key->backward},
                                    .device = key->device};
    a->slot[at] = (uint32_t)++a->count;
    return (uint32_t)a->count - 1;
}

/* Before a total changes. */
static void save(const cm_totals *a, cm_total *of)
{
    const struct cm_totals_device *device = &a->device[of->device];
    const cm_amount now = {of->line.bytes, of->line.count};
    for (size_t p = 0; p < CM_SNAPSHOTS; p++)
        cm_snapshot_save(&of->saved[p], device->snapshot[p], now);
}

bool cm_totals_add(cm_totals *a, uint32_t total, int64_t size, int sign)
{
    cm_total *of = &a->total[total];
    struct cm_totals_device *device = &a->device[of->device];
    bool takes = of->device == CM_TOTALS_HOST || cm_totals_takes(of->line.kind);
    int64_t bytes = of->line.bytes + sign * size;
    int64_t all = device->bytes + (takes ? sign * size : 0);
    device->seen = true;
    if (bytes >= CM_TOTALS_MOST || all >= CM_TOTALS_MOST)
        return false;
    save(a, of);
    of->line.bytes = bytes;
    of->line.count += (uint64_t)(int64_t)sign;
    device->bytes = all;
    if (all > device->peak)
        device->peak = all;
    return true;
}

void cm_totals_move(cm_totals *a, uint32_t from, uint32_t to, int64_t size, uint64_t birth,
                    uint64_t death)
{
    cm_total *old = &a->total[from], *now = &a->total[to];
    if (from == to)
        return;
    save(a, old);
    save(a, now);
    for (size_t p = 0; p < CM_SNAPSHOTS; p++) {
        uint64_t number = a->device[old->device].snapshot[p];
        if (number <= birth || (death != 0 && number > death))
            continue;
        old->saved[p].then.bytes -= size;
        old->saved[p].then.count--;
        now->saved[p].then.bytes += size;
        now->saved[p].then.count++;
    }
    if (death != 0)
        return;
    old->line.bytes -= size;
    old->line.count--;
    now->line.bytes += size;
    now->line.count++;
}

uint64_t cm_totals_latest(const cm_totals *a, uint32_t total)
{
    uint64_t latest = 0;
    for (size_t p = 0; total != CM_TOTALS_NONE && p < CM_SNAPSHOTS; p++)
        if (a->device[a->total[total].device].snapshot[p] > latest)
            latest = a->device[a->total[total].device].snapshot[p];
    return latest;
}

void cm_totals_take_snapshot(cm_totals *a, uint16_t device, cm_snapshot_kind snapshot)
{
    a->device[device].snapshot[snapshot] = ++a->clock;
}

/* At a snapshot or now. */
static cm_driver_line line_at(const cm_totals *a, const cm_total *of, cm_snapshot_kind snapshot)
{
    cm_driver_line line = of->line;
    if (snapshot < CM_SNAPSHOTS) {
        cm_amount then =
            cm_snapshot_at(&of->saved[snapshot], a->device[of->device].snapshot[snapshot],
                           (cm_amount){line.bytes, line.count});
        line.bytes = then.bytes;
        line.count = then.count;
    }
    return line;
}

int64_t cm_totals_torch(const cm_totals *a, uint16_t device, cm_snapshot_kind snapshot)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < a->count; i++) {
        const cm_total *of = &a->total[i];
        if (of->device == device && of->line.torch && cm_totals_takes(of->line.kind))
            bytes += line_at(a, of, snapshot).bytes;
    }
    return bytes;
}

static int by_bytes(const void *left, const void *right)
{
    const cm_driver_line *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    if (a->kind != b->kind)
        return a->kind > b->kind ? 1 : -1;
    if (a->library != b->library)
        return a->library > b->library ? 1 : -1;
    if (a->stack != b->stack)
        return a->stack > b->stack ? 1 : -1;
    if (a->torch != b->torch)
        return a->torch ? 1 : -1;
    return a->backward < b->backward ? -1 : a->backward > b->backward;
}

bool cm_totals_lines(const cm_totals *a, uint16_t device, cm_snapshot_kind snapshot,
                     cm_driver_line **lines, size_t *count)
{
    size_t capacity = 0;
    *lines = NULL;
    *count = 0;
    for (size_t i = 0; i < a->count; i++) {
        const cm_total *of = &a->total[i];
        if (of->device != device ||
            (snapshot < CM_SNAPSHOTS && (of->line.torch || !cm_totals_takes(of->line.kind))))
            continue;
        cm_driver_line line = line_at(a, of, snapshot);
        if (line.count == 0)
            continue;
        if (!cm_grow((void **)lines, &capacity, *count + 1, sizeof **lines))
            return false;
        (*lines)[(*count)++] = line;
    }
    cm_sort(*lines, *count, sizeof **lines, by_bytes);
    return true;
}
