#include "table.h"
#include "../core/fork.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void before(void)
{
    cm_sim_symbols_lock();
    cm_sim_pools_lock();
    cm_sim_captures_lock();
    cm_sim_graphs_lock();
    pthread_mutex_lock(&lock);
}

static void after(void)
{
    pthread_mutex_unlock(&lock);
    cm_sim_graphs_unlock();
    cm_sim_captures_unlock();
    cm_sim_pools_unlock();
    cm_sim_symbols_unlock();
}

/* A fork by one thread, while another registers kernels, must not leave the child a lock that stays
 * taken. The memory's handlers come first, so that ours, which run before them, take our locks in
 * the order in which they are taken elsewhere. Everything here begins with a handle, so this is
 * where to begin watching; a fork() that cannot be watched is as unsafe as with any library that
 * has locks. */
static void watch(void)
{
    (void)(cm_sim_fork_watch() && !pthread_atfork(before, after, after));
}

void cm_sim_objects_lock(void)
{
    pthread_once(&watched, watch);
    pthread_mutex_lock(&lock);
}

void cm_sim_objects_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void *cm_sim_table_at(cm_sim_table *table, uint32_t number)
{
    uint32_t index = number - 1;
    int k = 0;
    for (; index >= (uint32_t)CM_SIM_TABLE_FIRST << k; k++)
        index -= (uint32_t)CM_SIM_TABLE_FIRST << k;
    return atomic_load_explicit(&table->chunk[k], memory_order_relaxed) + index * table->bytes;
}

uint32_t cm_sim_table_number(cm_sim_table *table, const void *handle)
{
    uint32_t before = 1;
    for (int k = 0;; k++) {
        uintptr_t offset = (uintptr_t)handle - (uintptr_t)atomic_load(&table->chunk[k]);
        if (offset < ((size_t)CM_SIM_TABLE_FIRST << k) * table->bytes)
            return before + (uint32_t)(offset / table->bytes);
        before += (uint32_t)CM_SIM_TABLE_FIRST << k;
    }
}

/* All zero. Large ones are mapped, so that only what is used takes memory. */
static void *make_chunk(size_t bytes)
{
    enum { LARGE = 128 << 10, LINE = 128 };
    void *chunk;
    if (bytes >= LARGE) {
        chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return chunk == MAP_FAILED ? NULL : chunk;
    }
    return posix_memalign(&chunk, LINE, bytes) ? NULL : memset(chunk, 0, bytes);
}

/* Under the lock: room for one slot more. */
static bool grow(cm_sim_table *table)
{
    uint32_t room = 0;
    for (int k = 0; k < CM_SIM_TABLE_CHUNKS; k++) {
        uint32_t slots = (uint32_t)CM_SIM_TABLE_FIRST << k;
        room += slots;
        if (table->used < room && atomic_load(&table->chunk[k]))
            return true;
        if (table->used >= room)
            continue;
        void *chunk = make_chunk(slots * table->bytes);
        if (!chunk)
            return false;
        atomic_store_explicit(&table->chunk[k], chunk, memory_order_release);
        return true;
    }
    return false;
}

void *cm_sim_table_take(cm_sim_table *table)
{
    cm_sim_slot *taken = NULL;
    cm_sim_objects_lock();
    if (table->free) {
        taken = cm_sim_table_at(table, table->free);
        table->free = taken->next_free;
        memset(taken + 1, 0, table->bytes - sizeof(cm_sim_slot));
    } else if (grow(table)) {
        taken = cm_sim_table_at(table, ++table->used);
    }
    if (taken)
        atomic_store_explicit(&taken->live, 1, memory_order_release);
    cm_sim_objects_unlock();
    return taken;
}

bool cm_sim_table_drop(cm_sim_table *table, void *handle)
{
    cm_sim_objects_lock();
    bool dropped = cm_sim_table_has(table, handle);
    if (dropped) {
        cm_sim_slot *old = handle;
        atomic_store_explicit(&old->live, 0, memory_order_release);
        old->next_free = table->free;
        table->free = cm_sim_table_number(table, handle);
    }
    cm_sim_objects_unlock();
    return dropped;
}

/* --- addresses -------------------------------------------------------------------------------- */

static size_t home(const cm_sim_dictionary *map, const void *key)
{
    return (size_t)(((uintptr_t)key * 0x9e3779b97f4a7c15u) >> 32) & (map->capacity - 1);
}

/* Where the key is, or would be. */
static size_t place(const cm_sim_dictionary *map, const void *key)
{
    size_t at = home(map, key);
    while (map->entries[at].key && map->entries[at].key != key)
        at = (at + 1) & (map->capacity - 1);
    return at;
}

static bool widen(cm_sim_dictionary *map)
{
    cm_sim_dictionary wider = {.capacity = map->capacity ? 2 * map->capacity : 64};
    wider.entries = calloc(wider.capacity, sizeof *wider.entries);
    if (!wider.entries)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].key)
            wider.entries[place(&wider, map->entries[i].key)] = map->entries[i];
    wider.count = map->count;
    free(map->entries);
    *map = wider;
    return true;
}

bool cm_sim_dictionary_put(cm_sim_dictionary *map, const void *key, void *value)
{
    /* A key that is there needs no room, and must not fail for want of it. */
    bool known = cm_sim_dictionary_get(map, key) != NULL;
    if (!known && 2 * (map->count + 1) > map->capacity && !widen(map))
        return false;
    size_t at = place(map, key);
    map->count += !known;
    map->entries[at].key = key;
    map->entries[at].value = value;
    return true;
}

void cm_sim_dictionary_clear(cm_sim_dictionary *map)
{
    free(map->entries);
    *map = (cm_sim_dictionary){0};
}

void *cm_sim_dictionary_get(const cm_sim_dictionary *map, const void *key)
{
    return map->capacity ? map->entries[place(map, key)].value : NULL;
}

void *cm_sim_dictionary_remove(cm_sim_dictionary *map, const void *key)
{
    if (!map->capacity)
        return NULL;
    size_t mask = map->capacity - 1, hole = place(map, key);
    void *value = map->entries[hole].value;
    if (!map->entries[hole].key)
        return NULL;
    map->count--;
    /* What lies behind the hole moves up unless it would pass its home. */
    for (size_t at = (hole + 1) & mask; map->entries[at].key; at = (at + 1) & mask) {
        size_t from = home(map, map->entries[at].key);
        if (((at - from) & mask) >= ((at - hole) & mask)) {
            map->entries[hole] = map->entries[at];
            hole = at;
        }
    }
    map->entries[hole].key = NULL;
    map->entries[hole].value = NULL;
    return value;
}
