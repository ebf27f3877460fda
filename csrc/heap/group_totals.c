#include "group_totals.h"

#include <stdlib.h>

#include "../base/event.h"
#include "../base/hash.h"
#include "../base/grow.h"

bool cm_accounts_takes(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_ASYNC ||
           kind == CM_DRIVER_PHYSICAL || kind == CM_DRIVER_ARRAY;
}

bool cm_accounts_is_host(uint8_t kind)
{
    return kind == CM_DRIVER_HOST || kind == CM_DRIVER_REGISTERED;
}

void cm_accounts_clear(cm_accounts *a)
{
    free(a->account);
    free(a->slot);
    *a = (cm_accounts){0};
}

bool cm_accounts_copy(cm_accounts *copy, const cm_accounts *a)
{
    *copy = *a;
    copy->capacity = a->count;
    copy->slot = NULL;
    if (cm_copy((void **)&copy->account, a->account, a->count, sizeof *a->account) &&
        cm_copy((void **)&copy->slot, a->slot, a->slots, sizeof *a->slot))
        return true;
    cm_accounts_clear(copy);
    return false;
}

static size_t hash(const cm_account_key *key)
{
    return cm_hash(cm_hash((uint64_t)key->library << 32 | key->stack) +
                   ((uint64_t)key->device << 16 | (uint64_t)key->kind << 2 |
                    (uint64_t)key->torch << 1 | key->backward));
}

cm_account_key cm_accounts_key(const cm_accounts *a, uint32_t account)
{
    const cm_account *found = &a->account[account];
    return (cm_account_key){found->line.library, found->line.stack, found->device,
                            found->line.kind,    found->line.torch, found->line.backward};
}

static bool same(const cm_account *a, const cm_account_key *key)
{
    return a->line.library == key->library && a->line.stack == key->stack &&
           a->line.kind == key->kind && a->line.torch == key->torch &&
           a->line.backward == key->backward && a->device == key->device;
}

static bool more_slots(cm_accounts *a)
{
    size_t slots = a->slots ? a->slots * 2 : 64;
    uint32_t *table = calloc(slots, sizeof *table);
    if (table == NULL)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        cm_account_key key = cm_accounts_key(a, (uint32_t)i);
        size_t at = hash(&key) & (slots - 1);
        while (table[at] != 0)
            at = (at + 1) & (slots - 1);
        table[at] = (uint32_t)i + 1;
    }
    free(a->slot);
    a->slot = table;
    a->slots = slots;
    return true;
}

uint32_t cm_accounts_find(cm_accounts *a, const cm_account_key *key)
{
    if (a->count * 2 >= a->slots && !more_slots(a))
        return CM_ACCOUNT_NONE;
    size_t at = hash(key) & (a->slots - 1);
    for (; a->slot[at] != 0; at = (at + 1) & (a->slots - 1))
        if (same(&a->account[a->slot[at] - 1], key))
            return a->slot[at] - 1;
    if (a->count + 1 >= CM_ACCOUNT_NONE ||
        !cm_grow((void **)&a->account, &a->capacity, a->count + 1, sizeof *a->account))
        return CM_ACCOUNT_NONE;
    a->account[a->count] = (cm_account){.line = {.library = key->library,
                                                 .stack = key->stack,
                                                 .kind = key->kind,
                                                 .torch = key->torch,
                                                 .backward = key->backward},
                                        .device = key->device};
    a->slot[at] = (uint32_t)++a->count;
    return (uint32_t)a->count - 1;
}

/* Before an account changes. */
static void save(const cm_accounts *a, cm_account *of)
{
    const struct cm_account_device *device = &a->device[of->device];
    for (size_t p = 0; p < CM_PICTURES; p++)
        if (of->saved[p].number != device->picture[p]) {
            of->saved[p].number = device->picture[p];
            of->saved[p].bytes = of->line.bytes;
            of->saved[p].count = of->line.count;
        }
}

bool cm_accounts_add(cm_accounts *a, uint32_t account, int64_t size, int sign)
{
    cm_account *of = &a->account[account];
    struct cm_account_device *device = &a->device[of->device];
    bool takes = of->device == CM_ACCOUNT_HOST || cm_accounts_takes(of->line.kind);
    int64_t bytes = of->line.bytes + sign * size;
    int64_t all = device->bytes + (takes ? sign * size : 0);
    device->seen = true;
    if (bytes >= CM_ACCOUNT_MOST || all >= CM_ACCOUNT_MOST)
        return false;
    save(a, of);
    of->line.bytes = bytes;
    of->line.count += (uint64_t)(int64_t)sign;
    device->bytes = all;
    if (all > device->peak)
        device->peak = all;
    return true;
}

void cm_accounts_move(cm_accounts *a, uint32_t from, uint32_t to, int64_t size, uint64_t birth,
                      uint64_t death)
{
    cm_account *old = &a->account[from], *now = &a->account[to];
    if (from == to)
        return;
    save(a, old);
    save(a, now);
    for (size_t p = 0; p < CM_PICTURES; p++) {
        uint64_t number = a->device[old->device].picture[p];
        if (number <= birth || (death != 0 && number > death))
            continue;
        old->saved[p].bytes -= size;
        old->saved[p].count--;
        now->saved[p].bytes += size;
        now->saved[p].count++;
    }
    if (death != 0)
        return;
    old->line.bytes -= size;
    old->line.count--;
    now->line.bytes += size;
    now->line.count++;
}

uint64_t cm_accounts_latest(const cm_accounts *a, uint32_t account)
{
    uint64_t latest = 0;
    for (size_t p = 0; account != CM_ACCOUNT_NONE && p < CM_PICTURES; p++)
        if (a->device[a->account[account].device].picture[p] > latest)
            latest = a->device[a->account[account].device].picture[p];
    return latest;
}

void cm_accounts_take_picture(cm_accounts *a, uint16_t device, cm_picture picture)
{
    a->device[device].picture[picture] = ++a->clock;
}

/* Of one account, at a picture or now. */
static cm_driver_line line_at(const cm_accounts *a, const cm_account *of, cm_picture picture)
{
    cm_driver_line line = of->line;
    if (picture < CM_PICTURES &&
        of->saved[picture].number == a->device[of->device].picture[picture]) {
        line.bytes = of->saved[picture].bytes;
        line.count = of->saved[picture].count;
    }
    return line;
}

int64_t cm_accounts_torch(const cm_accounts *a, uint16_t device, cm_picture picture)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < a->count; i++) {
        const cm_account *of = &a->account[i];
        if (of->device == device && of->line.torch && cm_accounts_takes(of->line.kind))
            bytes += line_at(a, of, picture).bytes;
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

bool cm_accounts_lines(const cm_accounts *a, uint16_t device, cm_picture picture,
                       cm_driver_line **lines, size_t *count)
{
    size_t capacity = 0;
    *lines = NULL;
    *count = 0;
    for (size_t i = 0; i < a->count; i++) {
        const cm_account *of = &a->account[i];
        if (of->device != device ||
            (picture < CM_PICTURES && (of->line.torch || !cm_accounts_takes(of->line.kind))))
            continue;
        cm_driver_line line = line_at(a, of, picture);
        if (line.count == 0)
            continue;
        if (!cm_grow((void **)lines, &capacity, *count + 1, sizeof **lines))
            return false;
        (*lines)[(*count)++] = line;
    }
    if (*count > 1)
        qsort(*lines, *count, sizeof **lines, by_bytes);
    return true;
}
