/* Memory pools: cudaMallocAsync.
 *
 * A pool keeps what is freed up to its release threshold and gives the rest back when the host next
 * waits for the device, as CUDA does. The driver joins and splits free memory of a pool freely (it
 * maps pages again), so the model counts bytes, not holes: a request first takes what the pool
 * keeps, from any of its free blocks, and only the rest from the device. */
#include "objects_graph.h"
#include "../core/report.h"
#include "cupti_hooks.h"
#include "table.h"

#include <pthread.h>
#include <stdlib.h>

/* One pool allocation: in use, or freed and cached. */
struct held {
    cm_sim_pool *pool;
    void *address;
    size_t bytes, charged;
    /* Among the kept ones: all of the pool, and those of the same size. */
    struct held *next, *previous, *next_alike;
};

struct __attribute__((aligned(128))) cm_sim_pool {
    cm_sim_slot slot;
    int device;
    bool shared; /* a device's default pool: never destroyed */
    bool dying;  /* destroyed, with blocks in the program's hands */
    bool begun;  /* CUPTI is notified of a default pool when it is first used */
    size_t maximum, threshold;
    struct held *kept;
    cm_sim_dictionary kept_by_size; /* bytes to the first such block */
    size_t reserved; /* of the device: whole pages, so more than the blocks' shares of them */
    size_t reserved_high, used, used_high, blocks;
    int reuse; /* bit i: the reuse policy of attribute i + 1 */
};

static cm_sim_table pools = CM_SIM_TABLE(cm_sim_pool);
/* Around everything below; taken before the memory's own lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cm_sim_dictionary blocks; /* address to struct held, of the program's */
static cm_sim_pool *defaults[CM_SIM_DEVICES];
static atomic_bool anything_kept;

void cm_sim_pools_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_pools_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Notifies CUPTI, in the call that this thread is in. Not under the lock: clients' functions are
 * called. CUpti_ActivityMemoryPoolOperationType. */
enum { CREATED = 1, DESTROYED = 2, TRIMMED = 3 };

static void notify(int operation, const cm_sim_pool *pool, int device, size_t keep)
{
    if (cm_sim_cupti_wanted())
        cm_sim_record_pool(operation, pool, device, keep);
}

/* Under the lock. */
static void log_block(cm_sim_log_op op, const struct held *held)
{
    size_t used;
    if (!cm_sim_log_wanted())
        return;
    cm_sim_used(held->pool->device, &used, NULL);
    cm_sim_log((cm_sim_log_record){
        .address = (uintptr_t)held->address,
        .bytes = held->bytes,
        .used = used,
        .extra = (uintptr_t)held->pool,
        .charged = held->charged,
        .device = (int16_t)held->pool->device,
        .op = (uint8_t)op,
        .kind = CM_SIM_POOL,
    });
}

static cm_sim_pool *make(int device, size_t maximum)
{
    cm_sim_pool *pool = cm_sim_table_take(&pools);
    if (pool) {
        pool->device = device;
        pool->maximum = maximum ? maximum : SIZE_MAX;
        pool->reuse = 7;
    }
    return pool;
}

/* Under the lock. */
static cm_sim_pool *default_of(int device)
{
    if (!defaults[device] && (defaults[device] = make(device, 0)))
        defaults[device]->shared = true;
    return defaults[device];
}

static bool is_device(int device)
{
    return device >= 0 && device < cm_sim_config_get()->devices;
}

cm_sim_pool *cm_sim_pool_default(int device)
{
    if (!is_device(device))
        return NULL;
    pthread_mutex_lock(&lock);
    cm_sim_pool *pool = default_of(device);
    pthread_mutex_unlock(&lock);
    return pool;
}

static bool live(const cm_sim_pool *pool)
{
    return cm_sim_table_has(&pools, pool) && !pool->dying;
}

int cm_sim_pool_new(int device, size_t maximum, cm_sim_pool **pool)
{
    if (!pool || !is_device(device))
        return CM_CUDA_INVALID_VALUE;
    *pool = make(device, maximum);
    if (!*pool)
        return CM_CUDA_OUT_OF_MEMORY;
    (*pool)->begun = true;
    notify(CREATED, *pool, device, 0);
    return CM_CUDA_OK;
}

int cm_sim_pool_device(const cm_sim_pool *pool)
{
    return live(pool) ? pool->device : -1;
}

cm_sim_pool *cm_sim_pool_of(const void *address)
{
    pthread_mutex_lock(&lock);
    struct held *held = cm_sim_dictionary_get(&blocks, address);
    cm_sim_pool *pool = held ? held->pool : NULL;
    pthread_mutex_unlock(&lock);
    return pool;
}

/* --- under the lock --------------------------------------------------------------------------- */

static void keep(cm_sim_pool *pool, struct held *held)
{
    const void *size = (const void *)held->bytes;
    held->previous = NULL;
    held->next = pool->kept;
    if (held->next)
        held->next->previous = held;
    pool->kept = held;
    held->next_alike = cm_sim_dictionary_get(&pool->kept_by_size, size);
    /* Without memory for it, it is kept, and found as part of a larger request only. */
    if (!cm_sim_dictionary_put(&pool->kept_by_size, size, held))
        held->next_alike = NULL;
    atomic_store(&anything_kept, true);
}

static void forget(cm_sim_pool *pool, struct held *held)
{
    const void *size = (const void *)held->bytes;
    *(held->previous ? &held->previous->next : &pool->kept) = held->next;
    if (held->next)
        held->next->previous = held->previous;
    struct held *alike = cm_sim_dictionary_get(&pool->kept_by_size, size);
    if (alike == held && held->next_alike)
        cm_sim_dictionary_put(&pool->kept_by_size, size, held->next_alike); /* has its place */
    else if (alike == held)
        cm_sim_dictionary_remove(&pool->kept_by_size, size);
    while (alike && alike->next_alike != held)
        alike = alike->next_alike;
    if (alike)
        alike->next_alike = held->next_alike;
}

/* Gives a kept block back to the device. */
static void give_back(cm_sim_pool *pool, struct held *held)
{
    forget(pool, held);
    (void)cm_sim_free(held->address, NULL); /* it is the pool's own */
    free(held);
}

static void trim(cm_sim_pool *pool, size_t keep)
{
    while (pool->kept && pool->reserved > keep)
        give_back(pool, pool->kept);
}

static int take_new(cm_sim_pool *pool, size_t bytes, struct held **held)
{
    cm_sim_block block;
    struct held *made = calloc(1, sizeof *made);
    if (!made)
        return CM_CUDA_OUT_OF_MEMORY;
    int result = pool->reserved + bytes > pool->maximum || pool->reserved + bytes < bytes
                     ? CM_CUDA_OUT_OF_MEMORY
                     : cm_sim_alloc_backed(pool->device, CM_SIM_POOL, bytes, NULL, &pool->reserved,
                                           &made->address);
    if (result) {
        free(made);
        return result;
    }
    made->pool = pool;
    made->bytes = bytes;
    made->charged = cm_sim_find(made->address, &block) ? block.charged : bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    *held = made;
    return CM_CUDA_OK;
}

static struct held *take_kept(cm_sim_pool *pool, size_t bytes)
{
    struct held *held = cm_sim_dictionary_get(&pool->kept_by_size, (const void *)bytes);
    if (!held)
        return NULL;
    forget(pool, held);
    /* PyTorch's allocator does not report these: what the host wrote there becomes unknown here. */
    cm_sim_fresh(held->address, held->bytes);
    return held;
}

/* The kept block that covers `wanted` with the least too much; else the largest. */
static struct held *best_kept(const cm_sim_pool *pool, size_t wanted)
{
    struct held *best = pool->kept;
    for (struct held *held = best; held; held = held->next) {
        bool covers = held->charged >= wanted, best_covers = best->charged >= wanted;
        if (covers != best_covers ? covers : covers == (held->charged < best->charged))
            best = held;
    }
    return best;
}

/* Takes `bytes` out of what the pool keeps: whole blocks go back to the device, the request comes
 * from there, and what was too much is kept again, so that what is reserved stays. */
static int take_merged(cm_sim_pool *pool, size_t bytes, struct held **held)
{
    enum { SMALL = 1 << 20, UNIT = 2 << 20 };
    size_t before = pool->reserved, freed = 0;
    while (pool->kept && freed < bytes) {
        struct held *best = best_kept(pool, bytes - freed);
        freed += best->charged;
        give_back(pool, best);
    }
    int result = take_new(pool, bytes, held);
    if (result || pool->reserved >= before)
        return result;
    /* In sizes that are charged as they are: what is reserved must not grow by this. */
    size_t left = before - pool->reserved;
    if (left >= UNIT)
        left -= left % UNIT;
    struct held *rest;
    if ((left < SMALL || left >= UNIT) && !take_new(pool, left, &rest))
        keep(pool, rest);
    return CM_CUDA_OK;
}

/* The device is full: what pools keep is not in use. */
static bool trim_device(int device)
{
    bool any = false;
    for (uint32_t number = 1; number <= pools.used; number++) {
        cm_sim_pool *pool = cm_sim_table_at(&pools, number);
        if (!atomic_load(&pool->slot.live) || pool->device != device || !pool->kept)
            continue;
        trim(pool, 0);
        any = true;
    }
    return any;
}

static int allocate(cm_sim_pool *pool, size_t bytes, void **address)
{
    int result = CM_CUDA_OK;
    struct held *held = take_kept(pool, bytes);
    if (!held)
        result = pool->kept ? take_merged(pool, bytes, &held) : take_new(pool, bytes, &held);
    if (result == CM_CUDA_OUT_OF_MEMORY && trim_device(pool->device))
        result = take_new(pool, bytes, &held);
    if (result)
        return result;
    if (!cm_sim_dictionary_put(&blocks, held->address, held)) {
        keep(pool, held);
        return CM_CUDA_OUT_OF_MEMORY;
    }
    pool->blocks++;
    pool->used += held->bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *address = held->address;
    log_block(CM_SIM_LOG_POOL_ALLOC, held);
    return CM_CUDA_OK;
}

/* Whether it gave something back. */
static bool trim_or_drop(cm_sim_pool *pool)
{
    size_t before = pool->reserved;
    if (pool->reserved > pool->threshold)
        trim(pool, pool->threshold);
    bool less = pool->reserved < before;
    if (pool->dying && !pool->blocks) {
        cm_sim_dictionary_clear(&pool->kept_by_size);
        cm_sim_table_drop(&pools, pool);
        return false; /* nothing left to report */
    }
    return less;
}

/* false: it is not a pool's. */
static bool release(void *address, cm_sim_block *block)
{
    struct held *held = cm_sim_dictionary_remove(&blocks, address);
    if (!held)
        return false;
    cm_sim_pool *pool = held->pool;
    if (block && !cm_sim_find(address, block))
        *block = (cm_sim_block){(uintptr_t)address, held->bytes, held->charged, pool->device,
                                CM_SIM_POOL};
    pool->blocks--;
    pool->used -= held->bytes;
    log_block(CM_SIM_LOG_POOL_FREE, held);
    keep(pool, held);
    if (pool->dying) {
        trim(pool, 0);
        trim_or_drop(pool);
    }
    return true;
}

/* --- the surface ------------------------------------------------------------------------------ */

static bool deletable(const cm_sim_pool *pool)
{
    return live(pool) && !pool->shared;
}

int cm_sim_pool_delete(cm_sim_pool *pool)
{
    /* First: afterwards there is no pool to report. */
    if (deletable(pool))
        notify(DESTROYED, pool, pool->device, 0);
    pthread_mutex_lock(&lock);
    bool ours = deletable(pool);
    if (ours) {
        pool->dying = true;
        trim(pool, 0);
        trim_or_drop(pool);
    }
    pthread_mutex_unlock(&lock);
    return ours ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
}

int cm_sim_pool_get(cm_sim_pool *pool, int attribute, void *value)
{
    int result = CM_CUDA_OK;
    if (!value)
        return CM_CUDA_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!live(pool)) {
        pthread_mutex_unlock(&lock);
        return CM_CUDA_INVALID_VALUE;
    }
    switch (attribute) {
    case CM_CUDA_POOL_FOLLOW_EVENTS:
    case CM_CUDA_POOL_OPPORTUNISTIC:
    case CM_CUDA_POOL_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse >> (attribute - 1) & 1;
        break;
    case CM_CUDA_POOL_RELEASE_THRESHOLD:
        *(uint64_t *)value = pool->threshold;
        break;
    case CM_CUDA_POOL_RESERVED_CURRENT:
        *(uint64_t *)value = pool->reserved;
        break;
    case CM_CUDA_POOL_RESERVED_HIGH:
        *(uint64_t *)value = pool->reserved_high;
        break;
    case CM_CUDA_POOL_USED_CURRENT:
        *(uint64_t *)value = pool->used;
        break;
    case CM_CUDA_POOL_USED_HIGH:
        *(uint64_t *)value = pool->used_high;
        break;
    default:
        result = CM_CUDA_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cm_sim_pool_set(cm_sim_pool *pool, int attribute, const void *value)
{
    int result = CM_CUDA_OK;
    if (!value)
        return CM_CUDA_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!live(pool)) {
        pthread_mutex_unlock(&lock);
        return CM_CUDA_INVALID_VALUE;
    }
    switch (attribute) {
    case CM_CUDA_POOL_FOLLOW_EVENTS:
    case CM_CUDA_POOL_OPPORTUNISTIC:
    case CM_CUDA_POOL_INTERNAL_DEPENDENCIES: {
        /* When memory may be used again is not a question here: what was freed is free. */
        int bit = 1 << (attribute - 1);
        pool->reuse = *(const int *)value ? pool->reuse | bit : pool->reuse & ~bit;
        break;
    }
    case CM_CUDA_POOL_RELEASE_THRESHOLD:
        pool->threshold = *(const uint64_t *)value;
        break;
    case CM_CUDA_POOL_RESERVED_HIGH: /* only to 0, which means: to what is now */
        if (*(const uint64_t *)value)
            result = CM_CUDA_INVALID_VALUE;
        else
            pool->reserved_high = pool->reserved;
        break;
    case CM_CUDA_POOL_USED_HIGH:
        if (*(const uint64_t *)value)
            result = CM_CUDA_INVALID_VALUE;
        else
            pool->used_high = pool->used;
        break;
    default:
        result = CM_CUDA_INVALID_VALUE;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cm_sim_pool_trim(cm_sim_pool *pool, size_t keep)
{
    pthread_mutex_lock(&lock);
    bool ours = live(pool);
    if (ours)
        trim(pool, keep);
    int device = ours ? pool->device : -1;
    pthread_mutex_unlock(&lock);
    if (ours)
        notify(TRIMMED, pool, device, keep);
    return ours ? CM_CUDA_OK : CM_CUDA_INVALID_VALUE;
}

void cm_sim_pools_settle(int device)
{
    if (!atomic_load_explicit(&anything_kept, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    for (uint32_t number = 1; number <= pools.used; number++) {
        cm_sim_pool *pool = cm_sim_table_at(&pools, number);
        if (!atomic_load(&pool->slot.live) || pool->device != device || !trim_or_drop(pool))
            continue;
        size_t keep = pool->threshold;
        pthread_mutex_unlock(&lock);
        notify(TRIMMED, pool, device, keep);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
}

/* The memory goes with the device's last context, and only then what is reserved: this forgets the
 * blocks, the program's and what was kept. Pools stay. */
void cm_sim_pools_end(int device)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < blocks.capacity;) {
        struct held *held = blocks.entries[i].value;
        if (!held || held->pool->device != device) {
            i++;
            continue;
        }
        cm_sim_dictionary_remove(&blocks, held->address); /* another may take its place here */
        held->pool->blocks--;
        held->pool->used -= held->bytes;
        log_block(CM_SIM_LOG_POOL_FREE, held);
        free(held);
    }
    for (uint32_t number = 1; number <= pools.used; number++) {
        cm_sim_pool *pool = cm_sim_table_at(&pools, number);
        if (!atomic_load(&pool->slot.live) || pool->device != device)
            continue;
        for (struct held *held = pool->kept, *next; held; held = next) {
            next = held->next;
            free(held);
        }
        pool->kept = NULL;
        cm_sim_dictionary_clear(&pool->kept_by_size);
        trim_or_drop(pool);
    }
    pthread_mutex_unlock(&lock);
}

int cm_sim_pool_alloc(cm_sim_pool *pool, cm_sim_stream *handle, size_t bytes, void **address)
{
    bool capturing;
    int result = CM_CUDA_OK;
    if (!address)
        return CM_CUDA_INVALID_VALUE;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (!bytes) {
        *address = NULL;
        return CM_CUDA_OK;
    }
    if (capturing)
        return cm_sim_capture_alloc(stream, bytes, address);
    int device = cm_sim_stream_device(stream);
    result = cm_sim_context(device);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    if (!pool)
        pool = default_of(device);
    result = !pool        ? CM_CUDA_OUT_OF_MEMORY
             : live(pool) ? allocate(pool, bytes, address)
                          : CM_CUDA_INVALID_VALUE;
    bool first = !result && !pool->begun;
    if (first)
        pool->begun = true;
    pthread_mutex_unlock(&lock);
    if (first)
        notify(CREATED, pool, device, 0);
    return result;
}

int cm_sim_free_any(void *address, cm_sim_block *block)
{
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    bool pooled = release(address, block);
    pthread_mutex_unlock(&lock);
    if (pooled)
        return CM_CUDA_OK;
    /* What a pool keeps was freed before; what a graph took goes back to it. */
    cm_sim_block found;
    if (!cm_sim_find(address, &found) || found.kind != CM_SIM_POOL)
        return cm_sim_free(address, block);
    if (!cm_sim_graph_memory_free(address))
        return CM_CUDA_INVALID_VALUE;
    if (block)
        *block = found;
    return CM_CUDA_OK;
}

int cm_sim_pool_free(cm_sim_stream *handle, void *address)
{
    bool capturing;
    int result = CM_CUDA_OK;
    cm_sim_stream *stream = cm_sim_stream_work(handle, &capturing, &result);
    if (!stream)
        return result;
    if (!address)
        return CM_CUDA_OK;
    return capturing ? cm_sim_capture_free(stream, address) : cm_sim_free_any(address, NULL);
}
