#define _GNU_SOURCE /* process_vm_readv */
#include "activity_records.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../base/clock.h"
#include "../../capture/ring_producer.h"
#include "../../frames/walk.h"
#include "../libraries.h"
#include "activity_clock.h"

enum { ALLOCATED = 1, RELEASED = 2 }; /* memoryOperationType */
enum { LOCAL_POOL = 1, POOLS = 16 };  /* memoryPoolType; pools whose size is remembered */
enum { PINNED = 2, DEVICE = 3, ARRAY = 4, MANAGED = 5 }; /* CUpti_ActivityMemoryKind */
enum { LONGEST = 4096 };                                 /* bytes of a record, with room to spare */
enum { NAMES = 1024, NAME_BYTES = 2048 };
enum { PROBE_WORDS = 2 * LONGEST / 8 };

typedef int (*next_fn)(uint8_t *buffer, size_t valid, void **record);

/* A kernel's name is CUPTI's memory and is freed with the kernel's module, so it is read again in
 * each buffer that refers to it. */
typedef struct name {
    uint64_t text;
    uint64_t buffer; /* number of the buffer for which it was read last */
    uint64_t hash;
    uint32_t id;
} name;

typedef struct pool {
    uint64_t address, size;
    uint32_t device;
} pool;

static struct {
    const cm_cupti_link *link;
    cm_cupti_steps steps;
    uint16_t size[CM_CUPTI_RECORD_KINDS]; /* 0: unknown */
    uint64_t buffer;
    name names[NAMES];
    pool pools[POOLS];
    unsigned next_pool;
    bool reads_safely; /* process_vm_readv is allowed */
} state;

static atomic_ullong records, unknown, untimed, uncorrelated;

static void count(atomic_ullong *what)
{
    atomic_store_explicit(what, atomic_load_explicit(what, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* --- how long records are ----------------------------------------------------------------------
 */

static int next_record(uint8_t *buffer, size_t valid, void **record)
{
    const cm_cupti_link *link = state.link;

    if (link->v2 && link->api->ActivityGetNextRecord_v2 != NULL)
        return link->api->ActivityGetNextRecord_v2(link->subscriber, buffer, valid, record);
    return link->api->ActivityGetNextRecord(buffer, valid, record);
}

/* Finds a record's length by stepping over fake records that hold only their kind. For releases
 * before 13.2, which have no function for it; later ones refuse this, and one crashes. */
static size_t probe(uint32_t kind)
{
    static uint64_t words[PROBE_WORDS];
    void *record = NULL;

    for (size_t i = 0; i < PROBE_WORDS; i++)
        words[i] = kind;
    if (next_record((uint8_t *)words, sizeof words, &record) != 0 || record == NULL)
        return 0;
    uint8_t *first = record;
    if (next_record((uint8_t *)words, sizeof words, &record) != 0 || record == NULL)
        return 0;
    ptrdiff_t size = (uint8_t *)record - first;
    return size > 0 && size <= LONGEST ? (size_t)size : 0;
}

static size_t record_size(uint32_t kind)
{
    size_t size = 0;

    if (state.link->api->ActivityGetStructSize == NULL)
        return probe(kind);
    return state.link->api->ActivityGetStructSize((int)kind, 0, &size) == 0 && size <= LONGEST
               ? size
               : 0;
}

/* Plausible lengths in every release from 11.2 on. */
static const struct {
    uint8_t kind;
    uint16_t least, most;
} expected[] = {
    {CM_CUPTI_MEMORY2_RECORD, 112, 512},     {CM_CUPTI_POOL_RECORD, 64, 512},
    {CM_CUPTI_CONCURRENT_RECORD, 144, 1024}, {CM_CUPTI_KERNEL_RECORD, 144, 1024},
    {CM_CUPTI_MEMCPY_RECORD, 64, 512},       {CM_CUPTI_MEMCPY2_RECORD, 64, 512},
    {CM_CUPTI_MEMSET_RECORD, 64, 512},       {CM_CUPTI_DRIVER_RECORD, 40, 40},
    {CM_CUPTI_RUNTIME_RECORD, 40, 40},
};

static bool plausible(void)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint16_t size = state.size[expected[i].kind];
        if (size < expected[i].least || size > expected[i].most)
            return false;
    }
    for (unsigned kind = 0; kind < CM_CUPTI_RECORD_KINDS; kind++)
        if (state.size[kind] % 8 != 0)
            return false;
    return true;
}

cm_cupti_steps cm_cupti_records_begin(const cm_cupti_link *link)
{
    const cm_cupti_api *api = link->api;
    bool has_sizes = api->ActivityGetStructSize != NULL;
    /* Releases with GetStructSize may crash in GetNextRecord without a subscription. */
    bool steps = (api->ActivityGetNextRecord != NULL ||
                  (link->v2 && api->ActivityGetNextRecord_v2 != NULL)) &&
                 (link->subscriber != NULL || !has_sizes);

    memset(&state, 0, sizeof state);
    state.link = link;
    state.reads_safely = true;
    atomic_store(&records, 0);
    atomic_store(&unknown, 0);
    atomic_store(&untimed, 0);
    atomic_store(&uncorrelated, 0);
    if (has_sizes || steps)
        for (uint32_t kind = 1; kind < CM_CUPTI_RECORD_KINDS; kind++)
            state.size[kind] = (uint16_t)record_size(kind);
    if (plausible())
        return state.steps = CM_CUPTI_BY_SIZE;
    memset(state.size, 0, sizeof state.size);
    return state.steps = steps ? CM_CUPTI_BY_LIBRARY : CM_CUPTI_NO_STEPS;
}

/* --- events ------------------------------------------------------------------------------------
 */

static bool put(cm_producer *t, cm_event event)
{
    cm_event *e = cm_reserve_hook(t);

    if (e == NULL)
        return false; /* counted as lost */
    *e = event;
    cm_commit_hook(t);
    return true;
}

static void put_more(cm_producer *t, cm_event about, cm_driver_more what, uint64_t value)
{
    about.kind = CM_EV_DRIVER_MORE;
    about.size = what;
    about.address = value;
    about.stack = 0;
    about.flags = 0;
    put(t, about);
}

static cm_event event_of(cm_event_kind kind, uint64_t ticks, uint32_t device)
{
    return (cm_event){
        .time = ticks,
        .kind = (uint8_t)kind,
        .device_type = CM_DEVICE_CUDA,
        .device_index = device <= INT8_MAX ? (int8_t)device : CM_DEVICE_UNKNOWN,
    };
}

/* Copies a record as far as both its length and the structure reach; the rest is 0. */
#define PREFIX(type, name, record, size)                                                           \
    type name = {0};                                                                               \
    memcpy(&name, record, (size) < sizeof name ? (size) : sizeof name)

static uint8_t driver_kind(const cm_cupti_memory2 *m)
{
    switch (m->memory_kind) {
    case PINNED:
        return CM_DRIVER_HOST;
    case DEVICE:
        return m->is_async || m->pool_type != 0 ? CM_DRIVER_ASYNC : CM_DRIVER_DEVICE;
    case ARRAY:
        return CM_DRIVER_ARRAY;
    case MANAGED:
        return CM_DRIVER_MANAGED;
    default:
        return 0;
    }
}

/* Whether the size differs from the last record: every allocation from a pool repeats it. */
static bool pool_changed(uint64_t address, uint64_t size, uint32_t device)
{
    for (unsigned i = 0; i < POOLS; i++) {
        pool *known = &state.pools[i];
        if (known->address != address || known->device != device)
            continue;
        bool changed = known->size != size;
        known->size = size;
        return changed;
    }
    state.pools[state.next_pool++ % POOLS] = (pool){address, size, device};
    return true;
}

static void put_pool(cm_producer *t, cm_event e, cm_pool_operation operation, uint64_t address,
                     uint64_t size, const uint64_t *utilized)
{
    e.kind = CM_EV_POOL;
    e.address = address;
    e.size = (int64_t)size;
    e.stack = 0;
    e.flags = (uint8_t)operation;
    if (put(t, e) && utilized != NULL)
        put_more(t, e, CM_DRIVER_MORE_UTILIZED, *utilized);
}

static bool read_memory(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_memory2, m, record, size);
    bool release = m.operation == RELEASED;

    if (!release && m.operation != ALLOCATED)
        return false;
    cm_event e = event_of(CM_EV_DRIVER_RECORD, cm_cupti_clock_span(m.time, 0).ticks, m.device);
    e.address = m.address;
    e.size = (int64_t)m.bytes;
    e.stack = m.pc != 0 ? cm_library_of_hook((uintptr_t)m.pc) : 0;
    e.flags = (uint8_t)(driver_kind(&m) | (release ? CM_EVF_RELEASE : 0));
    if (m.correlation == 0)
        count(&uncorrelated);
    if (put(t, e) && m.correlation != 0)
        put_more(t, e, CM_DRIVER_MORE_CORRELATION, m.correlation);
    /* In a record of a free, pool_utilized is the value before it. */
    bool has_utilized =
        !release && size >= offsetof(cm_cupti_memory2, pool_utilized) + sizeof(uint64_t);
    if (m.pool_type == LOCAL_POOL && m.pool != 0 && pool_changed(m.pool, m.pool_size, m.device))
        put_pool(t, e, CM_POOL_SEEN, m.pool, m.pool_size, has_utilized ? &m.pool_utilized : NULL);
    return true;
}

static bool read_pool(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_pool, p, record, size);
    bool has_utilized = size >= offsetof(cm_cupti_pool, utilized) + sizeof p.utilized;

    if (p.operation < CM_POOL_CREATED || p.operation > CM_POOL_TRIMMED)
        return false;
    if (p.pool_type == LOCAL_POOL)
        pool_changed(p.address, p.size, p.device);
    put_pool(t, event_of(CM_EV_POOL, cm_cupti_clock_span(p.time, 0).ticks, p.device),
             (cm_pool_operation)p.operation, p.address, p.pool_type == LOCAL_POOL ? p.size : 0,
             has_utilized ? &p.utilized : NULL);
    return true;
}

/* --- names -------------------------------------------------------------------------------------
 */

static size_t copy_page(char *to, uint64_t from, size_t most)
{
    struct iovec here = {to, most}, there = {(void *)(uintptr_t)from, most};
    unsigned char resident;

    if (state.reads_safely) {
        ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        if (n >= 0 || (errno != EPERM && errno != ENOSYS))
            return n > 0 ? (size_t)n : 0;
        state.reads_safely = false; /* forbidden by a container */
    }
    uint64_t page = from & ~(uint64_t)(sysconf(_SC_PAGESIZE) - 1);
    if (mincore((void *)(uintptr_t)page, 1, &resident) != 0)
        return 0;
    memcpy(to, (const void *)(uintptr_t)from, most);
    return most;
}

/* Copies a name without following its pointer directly: a misread record must not crash the
 * program.
 */
static bool copy_text(char text[NAME_BYTES], uint64_t from)
{
    size_t have = 0, page = (size_t)sysconf(_SC_PAGESIZE);

    if (from < page)
        return false;
    while (have < NAME_BYTES - 1) {
        size_t most = page - (size_t)((from + have) % page);
        if (most > NAME_BYTES - 1 - have)
            most = NAME_BYTES - 1 - have;
        size_t n = copy_page(text + have, from + have, most);
        if (memchr(text + have, '\0', n) != NULL)
            return true;
        have += n;
        if (n < most)
            return false;
    }
    text[have] = '\0'; /* cut a longer name */
    return true;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static uint32_t name_id(uint64_t at)
{
    static char text[NAME_BYTES];
    name *n = &state.names[(at ^ at >> 12) / 8 % NAMES];

    if (at == 0)
        return 0;
    if (n->text == at && n->buffer == state.buffer)
        return n->id;
    if (!copy_text(text, at))
        return 0;
    uint64_t hash = hash_of(text);
    if (n->text != at || n->hash != hash || n->id == 0)
        *n = (name){.text = at, .hash = hash, .id = cm_name_intern_text_hook(text)};
    n->buffer = state.buffer;
    return n->id;
}

static const char *copy_name(uint8_t copy)
{
    static const char *const names[] = {
        "copy", /* CUpti_ActivityMemcpyKind */
        "copy host to device",
        "copy device to host",
        "copy host to array",
        "copy array to host",
        "copy array to array",
        "copy array to device",
        "copy device to array",
        "copy device to device",
        "copy host to host",
        "copy device to other device",
    };
    return names[copy < sizeof names / sizeof *names ? copy : 0];
}

/* --- work --------------------------------------------------------------------------------------
 */

static void put_work(cm_producer *t, cm_work_kind kind, uint64_t start, uint64_t end,
                     uint32_t device, uint32_t correlation, uint32_t name)
{
    if (start == 0) {
        count(&untimed);
        return;
    }
    /* Work without an end still runs: this was a forced flush. */
    cm_cupti_span span = cm_cupti_clock_span(start, end);
    cm_event e = event_of(CM_EV_WORK, span.ticks, device);
    e.address = correlation;
    e.size = (int64_t)span.ns;
    e.stack = name;
    e.flags = (uint8_t)kind;
    if (correlation == 0)
        count(&uncorrelated);
    put(t, e);
}

static bool read_kernel(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_kernel, k, record, size);
    put_work(t, CM_WORK_KERNEL, k.start, k.end, k.device, k.correlation, name_id(k.name));
    return true;
}

static bool read_memcpy(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_memcpy, c, record, size);
    put_work(t, CM_WORK_COPY, c.start, c.end, c.device, c.correlation,
             cm_name_intern_hook(copy_name(c.copy)));
    return true;
}

static bool read_memcpy2(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_memcpy2, c, record, size);
    put_work(t, CM_WORK_COPY, c.start, c.end, c.device, c.correlation,
             cm_name_intern_hook(copy_name(c.copy)));
    return true;
}

static bool read_memset(cm_producer *t, const uint8_t *record, size_t size)
{
    PREFIX(cm_cupti_memset, s, record, size);
    put_work(t, CM_WORK_SET, s.start, s.end, s.device, s.correlation, cm_name_intern_hook("set"));
    return true;
}

/* --- walking -----------------------------------------------------------------------------------
 */

static void read_record(cm_producer *t, uint32_t kind, const uint8_t *record, size_t size)
{
    bool known = false;

    switch (kind) {
    case CM_CUPTI_MEMORY2_RECORD:
        known = read_memory(t, record, size);
        break;
    case CM_CUPTI_POOL_RECORD:
        known = read_pool(t, record, size);
        break;
    case CM_CUPTI_KERNEL_RECORD:
    case CM_CUPTI_CONCURRENT_RECORD:
        known = read_kernel(t, record, size);
        break;
    case CM_CUPTI_MEMCPY_RECORD:
        known = read_memcpy(t, record, size);
        break;
    case CM_CUPTI_MEMCPY2_RECORD:
        known = read_memcpy2(t, record, size);
        break;
    case CM_CUPTI_MEMSET_RECORD:
        known = read_memset(t, record, size);
        break;
    case CM_CUPTI_DRIVER_RECORD:
    case CM_CUPTI_RUNTIME_RECORD:
        return; /* enabled only for correlation ids (activity.c) */
    default:
        break;
    }
    count(known ? &records : &unknown);
}

static bool walk_by_library(uint8_t *buffer, size_t valid, void **at)
{
    uint8_t *last = *at;

    return next_record(buffer, valid, at) == 0 && (uint8_t *)*at >= buffer &&
           (last == NULL || (uint8_t *)*at > last) &&
           (size_t)((uint8_t *)*at - buffer) + sizeof(uint32_t) <= valid;
}

/* A record's length is where the next one begins. */
static void parse_by_library(cm_producer *t, uint8_t *buffer, size_t valid)
{
    void *at = NULL;
    bool more = walk_by_library(buffer, valid, &at);

    while (more) {
        uint8_t *record = at;
        uint32_t kind;
        memcpy(&kind, record, sizeof kind);
        more = walk_by_library(buffer, valid, &at);
        size_t left = valid - (size_t)(record - buffer);
        size_t size = more ? (size_t)((uint8_t *)at - record) : left;
        read_record(t, kind, record, size < LONGEST ? size : LONGEST);
    }
}

static void parse_by_size(cm_producer *t, uint8_t *buffer, size_t valid)
{
    for (size_t at = 0; valid - at >= sizeof(uint32_t);) {
        uint32_t kind;
        memcpy(&kind, buffer + at, sizeof kind);
        size_t size = kind < CM_CUPTI_RECORD_KINDS ? state.size[kind] : 0;
        if (size == 0 || size > valid - at) {
            /* The rest of the buffer is lost, for the next record cannot be found. */
            count(&unknown);
            return;
        }
        read_record(t, kind, buffer + at, size);
        at += size;
    }
}

void cm_cupti_records_parse(uint8_t *buffer, size_t valid)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    state.buffer++;
    if (state.steps == CM_CUPTI_BY_SIZE)
        parse_by_size(t, buffer, valid);
    else if (state.steps == CM_CUPTI_BY_LIBRARY)
        parse_by_library(t, buffer, valid);
    cm_leave_hook(t);
}

cm_cupti_records_counts cm_cupti_records_get_counts(void)
{
    return (cm_cupti_records_counts){
        .records = atomic_load(&records),
        .unknown = atomic_load(&unknown),
        .untimed = atomic_load(&untimed),
        .uncorrelated = atomic_load(&uncorrelated),
    };
}
