/* Tables of handles; their memory is never given back.
 *
 * A program may pass a handle that it destroyed, or any number. An object lies in a slot of a table
 * that only grows, so a handle is judged by where it points and by a word that is always readable;
 * it is never followed into memory that became something else. */
#ifndef CM_SIM_TABLE_H
#define CM_SIM_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First member of every object. */
typedef struct cm_sim_slot {
    atomic_uint live;
    uint32_t next_free; /* number of the next free slot, 0: none */
} cm_sim_slot;

enum { CM_SIM_TABLE_CHUNKS = 20, CM_SIM_TABLE_FIRST = 64 };

/* Chunk k holds FIRST << k slots. */
typedef struct cm_sim_table {
    size_t bytes; /* of a slot; a power of two */
    _Atomic(char *) chunk[CM_SIM_TABLE_CHUNKS];
    uint32_t used;
    uint32_t free;
} cm_sim_table;

#define CM_SIM_TABLE(type)                                                                         \
    {                                                                                              \
        .bytes = sizeof(type) + CM_SIM_TABLE_IS_POWER(sizeof(type))                                \
    }
/* 0, or no constant expression. */
#define CM_SIM_TABLE_IS_POWER(bytes) (0 * sizeof(char[((bytes) & ((bytes)-1)) == 0 ? 1 : -1]))

/* A live slot, all zero behind its first member; NULL: no memory. */
void *cm_sim_table_take(cm_sim_table *table);
/* false: it was no live handle of this table. */
bool cm_sim_table_drop(cm_sim_table *table, void *handle);

/* Slots are numbered from 1, for links of four bytes; `at` takes a number that was given. */
uint32_t cm_sim_table_number(cm_sim_table *table, const void *handle);
void *cm_sim_table_at(cm_sim_table *table, uint32_t number);

static inline bool cm_sim_table_has(cm_sim_table *table, const void *handle)
{
    for (int k = 0; k < CM_SIM_TABLE_CHUNKS; k++) {
        const char *chunk = atomic_load_explicit(&table->chunk[k], memory_order_acquire);
        if (!chunk)
            return false;
        uintptr_t offset = (uintptr_t)handle - (uintptr_t)chunk;
        if (offset < ((size_t)CM_SIM_TABLE_FIRST << k) * table->bytes)
            return !(offset & (table->bytes - 1)) &&
                   atomic_load_explicit(&((cm_sim_slot *)(uintptr_t)handle)->live,
                                        memory_order_acquire) != 0;
    }
    return false;
}

/* The one lock under all tables and names of kernels: a leaf, held for a few instructions and
 * around fork(), so that a child finds it free. */
void cm_sim_objects_lock(void);
void cm_sim_objects_unlock(void);

/* Taken around fork() as well, in this order, and before all locks of the memory beneath. */
void cm_sim_symbols_lock(void); /* runtime_symbol.c */
void cm_sim_symbols_unlock(void);
void cm_sim_pools_lock(void); /* objects_pool.c */
void cm_sim_pools_unlock(void);
void cm_sim_captures_lock(void); /* objects_capture.c */
void cm_sim_captures_unlock(void);
void cm_sim_graphs_lock(void); /* objects_graph_memory.c */
void cm_sim_graphs_unlock(void);

/* Addresses to what is known of them; the caller holds a lock. Keys and values are not NULL. */
typedef struct cm_sim_dictionary {
    struct cm_sim_dictionary_entry {
        const void *key;
        void *value;
    } * entries;
    size_t capacity, count;
} cm_sim_dictionary;

bool cm_sim_dictionary_put(cm_sim_dictionary *map, const void *key,
                           void *value); /* false: no memory */
void *cm_sim_dictionary_get(const cm_sim_dictionary *map, const void *key);
void *cm_sim_dictionary_remove(cm_sim_dictionary *map, const void *key);

void cm_sim_dictionary_clear(cm_sim_dictionary *map);

#endif
