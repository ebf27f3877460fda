/* Accounts: who has how much of which device.
 *
 * The model of what an allocation takes of a device, as far as cudaMemGetInfo lets one see a real
 * driver do it: requests of 1 MiB and more take whole units of 2 MiB; smaller ones are carved, at
 * multiples of 512 bytes, out of slabs of 2 MiB, and a slab goes back when it is empty. Slabs are
 * per device and kind. So an account moves by multiples of 2 MiB, and a small block's `charged` is
 * its share of a slab. cudaMallocAsync's pool and managed memory are charged like cudaMalloc, at
 * once. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fork.h"
#include "known.h"
#include "memory.h"

enum {
    SMALL = 1 << 20, /* below it, out of a slab */
    UNIT = 512,
    UNITS = (int)(CM_SIM_CHUNK / UNIT),
    WORDS = UNITS / 64,
    KINDS = CM_SIM_ARRAY + 1,
    OWNERS = 64
};

typedef struct large {
    cm_sim_region region;
    cm_sim_block block;
    uint8_t owner;
} large;

typedef struct slab {
    cm_sim_region region;
    cm_sim_kind kind;
    int blocks;
    int room; /* no more free units than this lie together */
    struct slab *next, *previous;
    uint64_t taken[WORDS], first[WORDS]; /* a bit per unit: used; the first of a block */
    uint32_t bytes[UNITS];               /* of the block that begins there, as asked for */
    uint8_t owner[UNITS];
} slab;

typedef struct account {
    bool context;
    uint64_t used, peak, library;
    slab *slabs[KINDS];
} account;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static account accounts[CM_SIM_DEVICES];
static uint64_t live_blocks;

/* What libraries hold for themselves, by name; 0 stands for the program. */
static struct {
    const char *name;
    uint64_t bytes;
} owners[OWNERS];

static _Thread_local int current_device __attribute__((tls_model("initial-exec")));

int cm_sim_current_device(void)
{
    return current_device;
}

void cm_sim_set_current_device(int device)
{
    current_device = device;
}

/* --- Locks, for fork.c ------------------------------------------------------------------------ */

void cm_sim_memory_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_memory_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool cm_sim_memory_in_use(void)
{
    for (int i = 0; i < CM_SIM_DEVICES; i++)
        if (accounts[i].context)
            return true;
    return live_blocks > 0 || cm_sim_virtual_in_use();
}

/* --- Accounts --------------------------------------------------------------------------------- */

static cm_sim_report_device *counters(int device)
{
    return &cm_sim_report_get()->device[device];
}

static void set(cm_sim_count *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void count(cm_sim_count *one)
{
    set(one, atomic_load_explicit(one, memory_order_relaxed) + 1);
}

int cm_sim_device_check(int device)
{
    int devices = cm_sim_config_get()->devices;

    cm_sim_report_get(); /* whoever asks uses the device: now fork() is watched */
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (devices == 0)
        return CM_SIM_NO_DEVICE;
    return device >= 0 && device < devices ? CM_SIM_OK : CM_SIM_INVALID_DEVICE;
}

void cm_sim_account_log(cm_sim_log_op op, const cm_sim_block *block, int64_t change, uint64_t extra)
{
    static const char *const names[] = {"?",         "context", "alloc",      "free",     "reserve",
                                        "unreserve", "create",  "destroy",    "map",      "unmap",
                                        "refused",   "limited", "host alloc", "host free"};
    uint64_t used = block->device >= 0 ? accounts[block->device].used : 0;

    cm_sim_trace("%s device %d address %#lx bytes %zu used %llu", names[op], block->device,
                 (unsigned long)block->address, block->bytes, (unsigned long long)used);
    if (!cm_sim_log_wanted())
        return;
    cm_sim_log((cm_sim_log_record){
        .address = block->address,
        .bytes = block->bytes,
        .change = change,
        .used = used,
        .extra = extra,
        .charged = block->charged,
        .device = (int16_t)block->device,
        .op = (uint8_t)op,
        .kind = (uint8_t)block->kind,
    });
}

bool cm_sim_account_take(int device, size_t charge, size_t bytes, cm_sim_kind kind)
{
    account *to = &accounts[device];
    cm_sim_report_device *report = counters(device);
    uint64_t total = cm_sim_config_get()->device[device].memory;

    if (charge > total || to->used > total - charge) {
        uint64_t least = atomic_load(&report->refused_least);
        count(&report->refused);
        if (least == 0 || bytes < least)
            set(&report->refused_least, bytes);
        set(&report->refused_used, to->used);
        cm_sim_account_log(CM_SIM_LOG_REFUSED,
                           &(cm_sim_block){.bytes = bytes, .device = device, .kind = kind}, 0, 0);
        return false;
    }
    to->used += charge;
    return true;
}

void cm_sim_account_give(int device, size_t charge)
{
    accounts[device].used -= charge;
}

/* Only what was really given counts as the peak: the host may still have refused it. */
static void publish(int device)
{
    account *from = &accounts[device];
    cm_sim_report_device *report = counters(device);

    set(&report->used, from->used);
    set(&report->library, from->library);
    if (from->used <= from->peak)
        return;
    from->peak = from->used;
    set(&report->peak_library, from->library);
    set(&report->peak, from->peak);
}

void cm_sim_account_given(cm_sim_log_op op, const cm_sim_block *block, int64_t change)
{
    live_blocks++;
    count(&counters(block->device)->allocs);
    publish(block->device);
    cm_sim_account_log(op, block, change, 0);
}

void cm_sim_account_returned(cm_sim_log_op op, const cm_sim_block *block, int64_t change)
{
    live_blocks--;
    count(&counters(block->device)->frees);
    publish(block->device);
    cm_sim_account_log(op, block, change, 0);
}

int cm_sim_account_limited(int device, const char *what, size_t bytes, cm_sim_kind kind)
{
    if (device >= 0)
        count(&counters(device)->limited);
    cm_sim_note(CM_SIM_NOTE_LIMIT, what, bytes);
    cm_sim_account_log(CM_SIM_LOG_LIMITED,
                       &(cm_sim_block){.bytes = bytes, .device = device, .kind = kind}, 0, 0);
    return CM_SIM_OUT_OF_MEMORY;
}

int cm_sim_context_locked(int device)
{
    size_t bytes = cm_sim_config_get()->device[device].context;

    if (accounts[device].context)
        return CM_SIM_OK;
    if (!cm_sim_account_take(device, bytes, bytes, 0))
        return CM_SIM_OUT_OF_MEMORY;
    accounts[device].context = true;
    set(&counters(device)->context, bytes);
    publish(device);
    cm_sim_account_log(CM_SIM_LOG_CONTEXT,
                       &(cm_sim_block){.bytes = bytes, .charged = bytes, .device = device},
                       (int64_t)bytes, 0);
    cm_sim_note(CM_SIM_NOTE_MODELLED, "CUDA context", bytes);
    return CM_SIM_OK;
}

int cm_sim_context(int device)
{
    int error = cm_sim_device_check(device);

    if (error != CM_SIM_OK)
        return error;
    pthread_mutex_lock(&lock);
    error = cm_sim_context_locked(device);
    pthread_mutex_unlock(&lock);
    return error;
}

bool cm_sim_has_context(int device)
{
    bool has = false;

    if (cm_sim_device_check(device) != CM_SIM_OK)
        return false;
    pthread_mutex_lock(&lock);
    has = accounts[device].context;
    pthread_mutex_unlock(&lock);
    return has;
}

int cm_sim_memory_info(int device, size_t *free_bytes, size_t *total)
{
    int error = cm_sim_context(device);
    size_t now;

    if (error != CM_SIM_OK)
        return error;
    cm_sim_used(device, &now, NULL);
    if (free_bytes != NULL)
        *free_bytes = cm_sim_config_get()->device[device].memory - now;
    if (total != NULL)
        *total = cm_sim_config_get()->device[device].memory;
    return CM_SIM_OK;
}

void cm_sim_used(int device, size_t *now, size_t *peak)
{
    bool there = device >= 0 && device < CM_SIM_DEVICES;

    pthread_mutex_lock(&lock);
    if (now != NULL)
        *now = there ? accounts[device].used : 0;
    if (peak != NULL)
        *peak = there ? accounts[device].peak : 0;
    pthread_mutex_unlock(&lock);
}

/* --- What libraries hold for themselves ------------------------------------------------------- */

static uint8_t owner_number(const char *name)
{
    if (name == NULL)
        return 0;
    for (uint8_t i = 1; i < OWNERS; i++) {
        if (owners[i].name == NULL)
            owners[i].name = name;
        if (strcmp(owners[i].name, name) == 0)
            return i;
    }
    return OWNERS - 1; /* more libraries than there are: the last one's sum is theirs too */
}

static void owner_gets(uint8_t owner, int device, size_t charged)
{
    if (owner == 0)
        return;
    owners[owner].bytes += charged;
    accounts[device].library += charged;
    cm_sim_note(CM_SIM_NOTE_MODELLED, owners[owner].name, owners[owner].bytes);
}

static void owner_loses(uint8_t owner, int device, size_t charged)
{
    if (owner == 0)
        return;
    owners[owner].bytes -= charged;
    accounts[device].library -= charged;
}

/* --- Large blocks ----------------------------------------------------------------------------- */

static int take_large(cm_sim_block *block, uint8_t owner)
{
    size_t charge;
    large *made;

    /* Before rounding: nothing can overflow then. */
    if (block->bytes > cm_sim_config_get()->device[block->device].memory)
        charge = SIZE_MAX;
    else
        charge = cm_sim_round(block->bytes, CM_SIM_CHUNK);
    if (!cm_sim_account_take(block->device, charge, block->bytes, block->kind))
        return CM_SIM_OUT_OF_MEMORY;
    made = calloc(1, sizeof *made);
    if (made != NULL)
        block->address = (uintptr_t)cm_sim_space_take(charge, CM_SIM_CHUNK, true, made);
    if (made == NULL || block->address == 0) {
        free(made);
        cm_sim_account_give(block->device, charge);
        return cm_sim_account_limited(block->device, "address space", block->bytes, block->kind);
    }
    block->charged = charge;
    made->region = (cm_sim_region){CM_SIM_REGION_BLOCK, block->device, block->address, charge};
    made->block = *block;
    made->owner = owner;
    owner_gets(owner, block->device, charge);
    cm_sim_account_given(CM_SIM_LOG_ALLOC, block, (int64_t)charge);
    return CM_SIM_OK;
}

static void give_large(large *gone)
{
    cm_sim_block block = gone->block;

    cm_sim_known_drop(gone->region.start, gone->region.bytes);
    cm_sim_space_give((void *)gone->region.start, gone->region.bytes);
    cm_sim_account_give(block.device, block.charged);
    owner_loses(gone->owner, block.device, block.charged);
    free(gone);
    cm_sim_account_returned(CM_SIM_LOG_FREE, &block, -(int64_t)block.charged);
}

/* --- Slabs ------------------------------------------------------------------------------------ */

static bool bit(const uint64_t *bits, int at)
{
    return bits[at / 64] >> (at % 64) & 1;
}

static void set_bits(uint64_t *bits, int at, int length, bool value)
{
    for (int end = at + length; at < end; at++)
        if (value)
            bits[at / 64] |= (uint64_t)1 << (at % 64);
        else
            bits[at / 64] &= ~((uint64_t)1 << (at % 64));
}

static int units_of(uint32_t bytes)
{
    return (int)(((uint64_t)bytes + UNIT - 1) / UNIT);
}

/* Where so many free units lie together, first fit; -1: nowhere. */
static int find_room(const slab *in, int units)
{
    int run = 0;

    for (int at = 0; at < UNITS; at++) {
        if (at % 64 == 0 && in->taken[at / 64] == UINT64_MAX) {
            run = 0;
            at += 63;
            continue;
        }
        run = bit(in->taken, at) ? 0 : run + 1;
        if (run == units)
            return at - units + 1;
    }
    return -1;
}

/* Appended after `last`: the oldest slabs are filled first, so that the newest become empty. */
static slab *make_slab(const cm_sim_block *block, slab *last, int *error)
{
    void *start = NULL;
    slab *made;

    *error = CM_SIM_OUT_OF_MEMORY;
    if (!cm_sim_account_take(block->device, CM_SIM_CHUNK, block->bytes, block->kind))
        return NULL;
    made = calloc(1, sizeof *made);
    if (made != NULL)
        start = cm_sim_space_take(CM_SIM_CHUNK, CM_SIM_CHUNK, true, made);
    if (start == NULL) {
        free(made);
        cm_sim_account_give(block->device, CM_SIM_CHUNK);
        *error = cm_sim_account_limited(block->device, "address space", block->bytes, block->kind);
        return NULL;
    }
    made->region =
        (cm_sim_region){CM_SIM_REGION_SLAB, block->device, (uintptr_t)start, CM_SIM_CHUNK};
    made->kind = block->kind;
    made->room = UNITS;
    made->previous = last;
    if (last != NULL)
        last->next = made;
    else
        accounts[block->device].slabs[block->kind] = made;
    return made;
}

static int take_small(cm_sim_block *block, uint8_t owner)
{
    int units = units_of((uint32_t)block->bytes), at = -1, error;
    int64_t change = 0;
    slab *in, *last = NULL;

    for (in = accounts[block->device].slabs[block->kind]; in != NULL; last = in, in = in->next) {
        if (in->room < units)
            continue;
        at = find_room(in, units);
        if (at >= 0)
            break;
        in->room = units - 1;
    }
    if (in == NULL) {
        in = make_slab(block, last, &error);
        if (in == NULL)
            return error;
        at = 0;
        change = (int64_t)CM_SIM_CHUNK;
    }
    set_bits(in->taken, at, units, true);
    set_bits(in->first, at, 1, true);
    in->bytes[at] = (uint32_t)block->bytes;
    in->owner[at] = owner;
    in->blocks++;
    block->address = in->region.start + (uintptr_t)at * UNIT;
    block->charged = (size_t)units * UNIT;
    owner_gets(owner, block->device, block->charged);
    cm_sim_account_given(CM_SIM_LOG_ALLOC, block, change);
    return CM_SIM_OK;
}

/* The unit at which the block begins that this one belongs to; -1: it is free. */
static int first_unit(const slab *in, int at)
{
    if (!bit(in->taken, at))
        return -1;
    while (!bit(in->first, at))
        at--;
    return at;
}

static cm_sim_block small_block(const slab *in, int at)
{
    return (cm_sim_block){
        .address = in->region.start + (uintptr_t)at * UNIT,
        .bytes = in->bytes[at],
        .charged = (size_t)units_of(in->bytes[at]) * UNIT,
        .device = in->region.device,
        .kind = in->kind,
    };
}

static void give_small(slab *in, int at)
{
    int units = units_of(in->bytes[at]);
    cm_sim_block block = small_block(in, at);

    set_bits(in->taken, at, units, false);
    set_bits(in->first, at, 1, false);
    in->room = UNITS;
    in->blocks--;
    owner_loses(in->owner[at], block.device, block.charged);
    if (in->blocks > 0) {
        cm_sim_known_forget(block.address, block.charged);
        cm_sim_account_returned(CM_SIM_LOG_FREE, &block, 0);
        return;
    }
    if (in->previous != NULL)
        in->previous->next = in->next;
    else
        accounts[block.device].slabs[in->kind] = in->next;
    if (in->next != NULL)
        in->next->previous = in->previous;
    cm_sim_known_drop(in->region.start, CM_SIM_CHUNK);
    cm_sim_space_give((void *)in->region.start, CM_SIM_CHUNK);
    cm_sim_account_give(block.device, CM_SIM_CHUNK);
    free(in);
    cm_sim_account_returned(CM_SIM_LOG_FREE, &block, -(int64_t)CM_SIM_CHUNK);
}

/* --- All of them ------------------------------------------------------------------------------ */

static cm_sim_region *region_at(uintptr_t address)
{
    cm_sim_chunk *chunk = cm_sim_chunk_of(address);

    return chunk != NULL ? atomic_load(&chunk->owner) : NULL;
}

int cm_sim_alloc(int device, cm_sim_kind kind, size_t bytes, const char *owner, void **address)
{
    cm_sim_block block = {.bytes = bytes, .device = device, .kind = kind};
    int error = cm_sim_context(device);

    *address = NULL;
    if (error != CM_SIM_OK)
        return error;
    if (kind < CM_SIM_DEVICE || kind > CM_SIM_ARRAY || kind == CM_SIM_MAPPED)
        return CM_SIM_INVALID_VALUE;
    if (bytes == 0)
        return CM_SIM_OK; /* as cudaMalloc(0): no memory, no error */
    pthread_mutex_lock(&lock);
    uint8_t number = owner_number(owner);
    error = bytes < SMALL ? take_small(&block, number) : take_large(&block, number);
    pthread_mutex_unlock(&lock);
    *address = (void *)block.address;
    return error;
}

int cm_sim_free(void *address, cm_sim_block *block)
{
    cm_sim_block gone;
    int error = CM_SIM_INVALID_VALUE;

    if (block != NULL)
        memset(block, 0, sizeof *block);
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (address == NULL)
        return CM_SIM_OK;
    pthread_mutex_lock(&lock);
    cm_sim_region *region = region_at((uintptr_t)address);
    if (region != NULL && region->kind == CM_SIM_REGION_BLOCK &&
        region->start == (uintptr_t)address) {
        gone = ((large *)region)->block;
        give_large((large *)region);
        error = CM_SIM_OK;
    } else if (region != NULL && region->kind == CM_SIM_REGION_SLAB) {
        slab *in = (slab *)region;
        size_t offset = (uintptr_t)address - region->start;
        int at = (int)(offset / UNIT);
        if (offset % UNIT == 0 && bit(in->first, at)) {
            gone = small_block(in, at);
            give_small(in, at);
            error = CM_SIM_OK;
        }
    }
    pthread_mutex_unlock(&lock);
    if (error == CM_SIM_OK && block != NULL)
        *block = gone;
    return error;
}

/* Under the lock. */
static bool find(uintptr_t address, cm_sim_block *block)
{
    cm_sim_region *region = region_at(address);

    if (region == NULL)
        return false;
    if (region->kind == CM_SIM_REGION_RESERVED)
        return cm_sim_mapping_find(region, address, block);
    if (region->kind == CM_SIM_REGION_BLOCK) {
        *block = ((large *)region)->block;
        return true;
    }
    slab *in = (slab *)region;
    int at = first_unit(in, (int)((address - region->start) / UNIT));
    if (at < 0)
        return false;
    *block = small_block(in, at);
    return true;
}

bool cm_sim_find(const void *address, cm_sim_block *block)
{
    cm_sim_block found;

    if (!cm_sim_is_device(address))
        return false;
    pthread_mutex_lock(&lock);
    bool there = find((uintptr_t)address, &found);
    pthread_mutex_unlock(&lock);
    if (there && block != NULL)
        *block = found;
    return there;
}

bool cm_sim_reach(const void *address, size_t bytes, bool write, int *device)
{
    uintptr_t at = (uintptr_t)address;
    cm_sim_block found;

    pthread_mutex_lock(&lock);
    bool there = find(at, &found);
    if (there && found.kind == CM_SIM_MAPPED)
        there = cm_sim_mapping_reach(region_at(at), at, bytes, write);
    else if (there)
        there = bytes <= found.address + found.charged - at;
    pthread_mutex_unlock(&lock);
    if (there)
        *device = found.device;
    return there;
}
