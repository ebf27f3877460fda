/* Accounts: how much of which device is taken, contexts and libraries included. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fork.h"
#include "memory.h"

enum { OWNERS = 64, CONTEXTS = 1024 };

typedef struct account {
    bool primary;
    unsigned others;              /* contexts of the program's own */
    uint64_t used, peak, library; /* used: without managed memory */
    uint64_t managed;
} account;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static account accounts[CM_SIM_DEVICES];
static uint64_t live_blocks;

/* What libraries hold for themselves, by name; 0 stands for the program. */
static struct {
    const char *name;
    uint64_t bytes;
} owners[OWNERS];

/* Of contexts of the program's own, by number: their device + 1; 0: no context has it. */
static uint8_t context_device[CONTEXTS];
static unsigned latest_context;

static _Thread_local int current_device __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned current_context __attribute__((tls_model("initial-exec")));

int cm_sim_current_device(void)
{
    return current_device;
}

void cm_sim_set_current_device(int device)
{
    if (device != current_device)
        current_context = 0;
    current_device = device;
}

unsigned cm_sim_current_context(void)
{
    return current_context;
}

void cm_sim_set_current_context(unsigned number)
{
    current_context = number;
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

/* Pages of managed memory lie in what else leaves free; the others are in host memory. */
static uint64_t paged_in(int device)
{
    uint64_t room = cm_sim_config_get()->device[device].memory - accounts[device].used;
    return accounts[device].managed < room ? accounts[device].managed : room;
}

static uint64_t in_use(int device)
{
    return accounts[device].used + paged_in(device);
}

static bool has_any(const account *of)
{
    return of->primary || of->others > 0;
}

bool cm_sim_memory_in_use(void)
{
    for (int i = 0; i < CM_SIM_DEVICES; i++)
        if (has_any(&accounts[i]))
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

    cm_sim_report_get(); /* the caller uses the device: fork() is watched from now on */
    if (cm_sim_forked())
        return CM_SIM_NOT_INITIALIZED;
    if (devices == 0)
        return CM_SIM_NO_DEVICE;
    return device >= 0 && device < devices ? CM_SIM_OK : CM_SIM_INVALID_DEVICE;
}

void cm_sim_account_log(cm_sim_log_op op, const cm_sim_block *block, int64_t change, uint64_t extra)
{
    static const char *const names[] = {
        [CM_SIM_LOG_CONTEXT] = "context", [CM_SIM_LOG_CONTEXT_END] = "context end",
        [CM_SIM_LOG_ALLOC] = "alloc",     [CM_SIM_LOG_FREE] = "free",
        [CM_SIM_LOG_RESERVE] = "reserve", [CM_SIM_LOG_UNRESERVE] = "unreserve",
        [CM_SIM_LOG_CREATE] = "create",   [CM_SIM_LOG_DESTROY] = "destroy",
        [CM_SIM_LOG_MAP] = "map",         [CM_SIM_LOG_UNMAP] = "unmap",
        [CM_SIM_LOG_REFUSED] = "refused", [CM_SIM_LOG_LIMITED] = "limited"};
    uint64_t used = block->device >= 0 ? in_use(block->device) : 0;

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

static _Thread_local bool refused; /* what the thread last asked a device for */

bool cm_sim_was_refused(void)
{
    bool was = refused;
    refused = false;
    return was;
}

uint64_t cm_sim_account_most(int device, cm_sim_kind kind)
{
    static const uint64_t of_hosts = (uint64_t)1 << 46; /* no host has more */

    return kind == CM_SIM_MANAGED ? of_hosts : cm_sim_config_get()->device[device].memory;
}

static uint64_t *taken(int device, cm_sim_kind kind)
{
    return kind == CM_SIM_MANAGED ? &accounts[device].managed : &accounts[device].used;
}

bool cm_sim_account_take(int device, size_t charge, size_t bytes, cm_sim_kind kind)
{
    uint64_t *from = taken(device, kind), most = cm_sim_account_most(device, kind);
    cm_sim_report_device *report = counters(device);

    refused = charge > most || *from > most - charge;
    if (refused) {
        uint64_t least = atomic_load(&report->refused_least);
        count(&report->refused);
        if (least == 0 || bytes < least)
            set(&report->refused_least, bytes);
        set(&report->refused_used, in_use(device));
        cm_sim_account_log(CM_SIM_LOG_REFUSED,
                           &(cm_sim_block){.bytes = bytes, .device = device, .kind = kind}, 0, 0);
        return false;
    }
    *from += charge;
    return true;
}

void cm_sim_account_give(int device, size_t charge, cm_sim_kind kind)
{
    *taken(device, kind) -= charge;
}

/* Only what was really given counts as the peak: the host may still have refused it. */
static void publish(int device)
{
    account *from = &accounts[device];
    cm_sim_report_device *report = counters(device);

    uint64_t now = in_use(device), beyond = from->managed - paged_in(device);
    if (beyond > 0)
        cm_sim_note(CM_SIM_NOTE_MODELLED, "managed memory in the host", beyond);
    set(&report->used, now);
    set(&report->library, from->library);
    if (now <= from->peak)
        return;
    from->peak = now;
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

/* What the first context of a device takes. Under the lock, as the next. */
static int begin_context(int device)
{
    account *of = &accounts[device];
    size_t bytes = has_any(of) ? 0 : cm_sim_config_get()->device[device].context;

    if (!has_any(of) && !cm_sim_account_take(device, bytes, bytes, 0))
        return CM_SIM_OUT_OF_MEMORY;
    if (!has_any(of)) {
        set(&counters(device)->context, bytes);
        publish(device);
    }
    cm_sim_account_log(CM_SIM_LOG_CONTEXT,
                       &(cm_sim_block){.bytes = bytes, .charged = bytes, .device = device},
                       (int64_t)bytes, 0);
    if (bytes > 0)
        cm_sim_note(CM_SIM_NOTE_MODELLED, "CUDA context", bytes);
    return CM_SIM_OK;
}

static void end_context(int device)
{
    size_t bytes = has_any(&accounts[device]) ? 0 : atomic_load(&counters(device)->context);

    if (bytes > 0) {
        cm_sim_account_give(device, bytes, 0);
        set(&counters(device)->context, 0);
        publish(device);
    }
    cm_sim_account_log(CM_SIM_LOG_CONTEXT_END,
                       &(cm_sim_block){.bytes = bytes, .charged = bytes, .device = device},
                       -(int64_t)bytes, 0);
}

static bool is_context(int device, unsigned number)
{
    return number == 0 ? accounts[device].primary
                       : number < CONTEXTS && context_device[number] == device + 1;
}

uint16_t cm_sim_context_here(int device)
{
    return (uint16_t)(device == current_device ? current_context : 0);
}

int cm_sim_context(int device)
{
    int error = cm_sim_device_check(device);
    bool made = false;

    if (error != CM_SIM_OK)
        return error;
    pthread_mutex_lock(&lock);
    unsigned own = cm_sim_context_here(device);
    if (own > 0) {
        error = is_context(device, own) ? CM_SIM_OK : CM_SIM_CONTEXT_DESTROYED;
    } else if (!accounts[device].primary) {
        error = begin_context(device);
        made = accounts[device].primary = error == CM_SIM_OK;
    }
    pthread_mutex_unlock(&lock);
    if (made)
        cm_sim_context_made(device);
    return error;
}

/* Numbers are given in turn, so that one is reused as late as possible. 0: all are taken. */
static unsigned free_number(void)
{
    for (unsigned tries = 1; tries < CONTEXTS; tries++) {
        unsigned number = (latest_context + tries - 1) % (CONTEXTS - 1) + 1;
        if (context_device[number] == 0)
            return number;
    }
    return 0;
}

int cm_sim_context_new(int device, unsigned *number)
{
    int error = cm_sim_device_check(device);

    *number = 0;
    if (error != CM_SIM_OK)
        return error;
    pthread_mutex_lock(&lock);
    unsigned found = free_number();
    error = found > 0 ? begin_context(device) : CM_SIM_OUT_OF_MEMORY;
    if (error == CM_SIM_OK) {
        context_device[found] = (uint8_t)(device + 1);
        accounts[device].others++;
        *number = latest_context = found;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

bool cm_sim_context_end(int device, unsigned number)
{
    if (cm_sim_device_check(device) != CM_SIM_OK)
        return false;
    pthread_mutex_lock(&lock);
    bool there = is_context(device, number);
    if (there && number < CONTEXTS && context_device[number] == device + 1) {
        context_device[number] = 0;
        accounts[device].others--;
    } else if (there) {
        accounts[device].primary = false;
    }
    if (there) {
        cm_sim_blocks_end(device, number, !has_any(&accounts[device]));
        end_context(device);
    }
    pthread_mutex_unlock(&lock);
    return there;
}

unsigned cm_sim_contexts(int device)
{
    unsigned count = 0;

    if (cm_sim_device_check(device) != CM_SIM_OK)
        return 0;
    pthread_mutex_lock(&lock);
    count = accounts[device].others + accounts[device].primary;
    pthread_mutex_unlock(&lock);
    return count;
}

bool cm_sim_has_context(int device)
{
    bool has = false;

    if (cm_sim_device_check(device) != CM_SIM_OK)
        return false;
    pthread_mutex_lock(&lock);
    has = accounts[device].primary;
    pthread_mutex_unlock(&lock);
    return has;
}

/* Of the machine's memory: all but what is free, so the page cache, too. 0: not known. */
static size_t used_by_host(void)
{
    unsigned long long total, unused;
    FILE *file = fopen("/proc/meminfo", "re");
    bool known =
        file != NULL && fscanf(file, "MemTotal: %llu kB MemFree: %llu", &total, &unused) == 2;

    if (file != NULL)
        fclose(file);
    return known ? (size_t)(total - unused) << 10 : 0;
}

int cm_sim_memory_info(int device, size_t *free_bytes, size_t *total)
{
    int error = cm_sim_context(device);
    size_t now;

    if (error != CM_SIM_OK)
        return error;
    cm_sim_used(device, &now, NULL);
    const cm_sim_profile *profile = &cm_sim_config_get()->device[device];
    size_t left = profile->memory - now, host = profile->integrated ? used_by_host() : 0;
    if (free_bytes != NULL)
        *free_bytes = left > host ? left - host : 0;
    if (total != NULL)
        *total = profile->memory;
    return CM_SIM_OK;
}

void cm_sim_used(int device, size_t *now, size_t *peak)
{
    bool there = device >= 0 && device < CM_SIM_DEVICES;

    pthread_mutex_lock(&lock);
    if (now != NULL)
        *now = there ? in_use(device) : 0;
    if (peak != NULL)
        *peak = there ? accounts[device].peak : 0;
    pthread_mutex_unlock(&lock);
}

/* --- What libraries hold for themselves ------------------------------------------------------- */

uint8_t cm_sim_owner(const char *name)
{
    if (name == NULL)
        return 0;
    for (uint8_t i = 1; i < OWNERS; i++) {
        if (owners[i].name == NULL)
            owners[i].name = name;
        if (strcmp(owners[i].name, name) == 0)
            return i;
    }
    return OWNERS - 1; /* more libraries than slots: the rest are added to the last one's sum */
}

void cm_sim_owner_gets(uint8_t owner, int device, size_t charged)
{
    if (owner == 0)
        return;
    owners[owner].bytes += charged;
    accounts[device].library += charged;
    cm_sim_note(CM_SIM_NOTE_MODELLED, owners[owner].name, owners[owner].bytes);
}

void cm_sim_owner_loses(uint8_t owner, int device, size_t charged)
{
    if (owner == 0)
        return;
    owners[owner].bytes -= charged;
    accounts[device].library -= charged;
}
