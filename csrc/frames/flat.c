#include "flat.h"

#include "../base/pages.h"

/* Multiples of a page; tests lower them. */
#ifndef CM_FLAT_SETS_AT_START
#define CM_FLAT_SETS_AT_START 512
#endif
#ifndef CM_FLAT_SETS_MAX
#define CM_FLAT_SETS_MAX (1 << 15)
#endif
enum {
    SETS_AT_START = CM_FLAT_SETS_AT_START,
    SETS_MAX = CM_FLAT_SETS_MAX,
    SET_BYTES = CM_FLAT_WAYS * sizeof(cm_flat_entry)
};

struct cm_flat_shared cm_flat;

static uint32_t used;      /* entries of the current epoch */
static uint32_t evictions; /* chooses the next victim of a full set */

static uint32_t set_count(void)
{
    return atomic_load_explicit(&cm_flat.set_mask, memory_order_relaxed) + 1;
}

bool cm_flat_map(void)
{
    if (cm_flat.entries != NULL)
        return true;
    /* Reserves the address range only. grow() makes it usable piece by piece, so that readers never
     * need a new address. */
    void *range = cm_pages_map((size_t)SETS_MAX * SET_BYTES, PROT_NONE, MAP_NORESERVE);
    if (range == MAP_FAILED)
        return false;
    if (cm_pages_protect(range, (size_t)SETS_AT_START * SET_BYTES, PROT_READ | PROT_WRITE) != 0) {
        cm_pages_unmap(range, (size_t)SETS_MAX * SET_BYTES);
        return false;
    }
    cm_flat.entries = range;
    cm_flat_clear();
    return true;
}

void cm_flat_clear(void)
{
    /* Returns the pages to the system; they read as zeros again. */
    madvise(cm_flat.entries, (size_t)SETS_MAX * SET_BYTES, MADV_DONTNEED);
    atomic_store_explicit(&cm_flat.set_mask, SETS_AT_START - 1, memory_order_relaxed);
    used = 0;
}

void cm_flat_new_epoch(void)
{
    used = 0;
}

size_t cm_flat_bytes(void)
{
    return (size_t)set_count() * SET_BYTES;
}

static void set_entry(cm_flat_entry *entry, uint64_t hash, uint64_t value)
{
    /* Value first: a reader of the new hash sees the new value, and for the old hash the new value
     * has a wrong tag. */
    atomic_store_explicit(&entry->value, value, memory_order_relaxed);
    atomic_store_explicit(&entry->hash, hash, memory_order_release);
}

static bool is_current(uint64_t hash, uint64_t value, uint64_t epoch)
{
    return hash != 0 && (value ^ cm_flat_tag(hash, epoch)) >> 32 == 0;
}

/* Doubles the sets, in place. Entries of the upper half are copied there; the old copies serve
 * readers with the old mask and are later overwritten as misplaced. */
static void grow(uint32_t sets, uint64_t epoch)
{
    size_t places = (size_t)sets * CM_FLAT_WAYS;

    if (sets == SETS_MAX ||
        cm_pages_protect(cm_flat.entries + places, places * sizeof(cm_flat_entry),
                         PROT_READ | PROT_WRITE) != 0)
        return; /* sets overflow, so evicted walks are looked up again: slower, but correct */
    for (size_t i = 0; i < places; i++) {
        cm_flat_entry *entry = &cm_flat.entries[i];
        uint64_t hash = atomic_load_explicit(&entry->hash, memory_order_relaxed);
        uint64_t value = atomic_load_explicit(&entry->value, memory_order_relaxed);
        if (is_current(hash, value, epoch) &&
            ((uint32_t)hash & (sets * 2 - 1)) == i / CM_FLAT_WAYS + sets)
            set_entry(entry + places, hash, value);
    }
    atomic_store_explicit(&cm_flat.set_mask, sets * 2 - 1, memory_order_release);
}

void cm_flat_remember(uint64_t hash, uint64_t epoch, uint32_t stack)
{
    /* At a load of three eighths, hardly any set needs more than 8 entries. */
    if (used > set_count() * CM_FLAT_WAYS / 8 * 3)
        grow(set_count(), epoch);

    uint32_t mask = set_count() - 1, set = (uint32_t)hash & mask;
    cm_flat_entry *entry = cm_flat.entries + (size_t)set * CM_FLAT_WAYS, *place = NULL;
    for (int i = 0; i < CM_FLAT_WAYS; i++) {
        uint64_t old = atomic_load_explicit(&entry[i].hash, memory_order_relaxed);
        uint64_t value = atomic_load_explicit(&entry[i].value, memory_order_relaxed);
        bool current = is_current(old, value, epoch);
        if (current && old == hash)
            return; /* another thread has added it */
        if (place == NULL && (!current || ((uint32_t)old & mask) != set))
            place = &entry[i];
    }
    if (place == NULL)
        place = &entry[evictions++ % CM_FLAT_WAYS];
    else
        used++;
    set_entry(place, hash, cm_flat_tag(hash, epoch) | stack);
}
