/* CUPTI's activity buffers: requested and completed by CUPTI, read by the CUPTI thread.
 *
 * CUPTI requests a buffer on a thread of the program, inside its CUDA call, and completes it on any
 * thread. Both only move numbers between lists without a lock. The memory is reserved once and
 * never freed: CUPTI may complete a buffer long after records were disabled, and its first
 * interface cannot unregister functions.
 *
 * In that interface the functions are the process's. If another client registers its own, it may
 * get our buffers and we its. Foreign buffers are left alone and counted; ours are lost. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../capture/ring_producer.h"
#include "../cuda.h"
#include "../libraries.h"
#include "activity.h"
#include "activity_clock.h"
#include "activity_records.h"

enum {
    BUFFERS = 128,
    BUFFER_BYTES = 256 << 10, /* 32 MiB in all */
    MEMORY_BYTES = 64 << 10,  /* used of it without kernels: CUPTI clears a buffer first, on the
                                 program's thread */
    SPARE = 2,                /* beyond the demand between two drains */
    NULL_SINCE = 27,          /* CUPTI_API_VERSION from which a request may be declined: 12.9 */
    SCRATCH_BYTES = 8 << 10,
    END_WAIT_MS = 100,
};
enum { POOL_LIMIT = 2, PRE_ALLOCATE = 6 }; /* CUpti_ActivityAttribute */
enum { FORCED = 1 };                       /* cuptiActivityFlushAll */
enum { cuMemAlloc_v2 = 243 };              /* CUpti_driver_api_trace_cbid */

/* --- lists of buffers --------------------------------------------------------------------------
 * A list's head is the number of its first buffer + 1. Its high half counts changes, so that a
 * compare-and-swap cannot mistake a returned buffer for the same list. */

typedef struct slot {
    atomic_uint next;
    atomic_bool out; /* CUPTI has it */
    atomic_size_t valid;
} slot;

static slot slots[BUFFERS];
static atomic_ullong warm; /* free, and backed by memory */
static atomic_ullong cold; /* free, backed by memory on the first write */
static atomic_ullong done; /* filled */
static atomic_int warm_count;
static atomic_int out_count; /* requested, and not yet in the list of filled ones */
static atomic_uint taken;    /* since the last drain */
static _Atomic(uint8_t *) memory;
static uint8_t *scratch;

static void push(atomic_ullong *list, unsigned number)
{
    unsigned long long head = atomic_load(list), next;

    do {
        atomic_store(&slots[number].next, (unsigned)head);
        next = ((head >> 32) + 1) << 32 | (number + 1);
    } while (!atomic_compare_exchange_weak(list, &head, next));
}

static int pop(atomic_ullong *list)
{
    unsigned long long head = atomic_load(list), next;

    do {
        if ((unsigned)head == 0)
            return -1;
        next = ((head >> 32) + 1) << 32 | atomic_load(&slots[(unsigned)head - 1].next);
    } while (!atomic_compare_exchange_weak(list, &head, next));
    return (int)((unsigned)head - 1);
}

static uint8_t *memory_of(int number)
{
    return atomic_load(&memory) + (size_t)number * BUFFER_BYTES;
}

/* --- what CUPTI calls --------------------------------------------------------------------------
 */

static atomic_bool active, may_decline;
static atomic_size_t buffer_bytes;
static atomic_ullong foreign, scratched;

static void request_hook(uint8_t **buffer, size_t *size, size_t *most_records)
{
    int number = atomic_load(&active) ? pop(&warm) : -1;

    *most_records = 0;
    if (number >= 0)
        atomic_fetch_sub(&warm_count, 1);
    else if (atomic_load(&active))
        number = pop(&cold);
    if (number >= 0) {
        atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
        atomic_fetch_add(&out_count, 1);
        atomic_store(&slots[number].out, true);
        *buffer = memory_of(number);
        *size = atomic_load(&buffer_bytes);
        return;
    }
    /* All buffers are full, or records have ended. Releases that crash without a buffer get the
     * scratch buffer, which is never read. It takes one record at a time, so these are counted. */
    bool declines = atomic_load(&may_decline);
    *buffer = declines ? NULL : scratch;
    *size = declines ? 0 : SCRATCH_BYTES;
    *most_records = declines ? 0 : 1;
}

static void complete_hook(uint8_t *buffer, size_t valid)
{
    uintptr_t offset = (uintptr_t)buffer - (uintptr_t)atomic_load(&memory);
    size_t number = offset / BUFFER_BYTES;

    if (buffer == NULL)
        return;
    if (buffer == scratch) {
        if (valid > 0)
            atomic_fetch_add(&scratched, 1);
        return;
    }
    /* One of ours that is not out must not get into a second list. */
    if (number >= BUFFERS || offset % BUFFER_BYTES != 0 ||
        !atomic_exchange(&slots[number].out, false)) {
        atomic_fetch_add(&foreign, 1);
        return;
    }
    atomic_store(&slots[number].valid, valid < BUFFER_BYTES ? valid : BUFFER_BYTES);
    push(&done, (unsigned)number);
    atomic_fetch_sub(&out_count, 1);
}

static void complete_v1_hook(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t valid)
{
    (void)context, (void)stream, (void)size;
    complete_hook(buffer, valid);
}

/* The second interface adds a structure, which holds nothing that is needed. */
static void request_v2_hook(uint8_t **buffer, size_t *size, size_t *most_records, void *about)
{
    (void)about;
    request_hook(buffer, size, most_records);
}

static void complete_v2_hook(uint8_t *buffer, size_t size, size_t valid, void *about)
{
    (void)size, (void)about;
    complete_hook(buffer, valid);
}

/* --- the CUPTI thread's side -------------------------------------------------------------------
 */

typedef struct attribute {
    int which;
    size_t small, before;
    bool set;
} attribute;

static struct {
    cm_cupti_link link;
    bool began;
    bool has_call_records; /* records of all driver calls are enabled, for correlation ids */
    uint64_t kinds;
    attribute attributes[2];
    uint64_t foreign_before;
    unsigned demand; /* buffers needed between two drains lately */
} state;
static atomic_ullong dropped;

static bool reserve(void)
{
    if (atomic_load(&memory) != NULL)
        return true;
    size_t bytes = (size_t)BUFFERS * BUFFER_BYTES;
    uint8_t *made = mmap(NULL, bytes + SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return false;
    scratch = made + bytes;
    for (unsigned i = BUFFERS; i-- > 0;)
        push(&cold, i);
    atomic_store(&memory, made);
    return true;
}

static void warm_up(unsigned wanted)
{
    const long page = 4096;

    while (atomic_load(&warm_count) < (int)wanted) {
        int number = pop(&cold);
        if (number < 0)
            return;
        uint8_t *at = memory_of(number);
        for (size_t i = 0; i < atomic_load(&buffer_bytes); i += (size_t)page)
            *(volatile uint8_t *)(at + i) = 0;
        push(&warm, (unsigned)number);
        atomic_fetch_add(&warm_count, 1);
    }
}

static void cool_down(unsigned wanted)
{
    while (atomic_load(&warm_count) > (int)wanted) {
        int number = pop(&warm);
        if (number < 0)
            return;
        atomic_fetch_sub(&warm_count, 1);
        madvise(memory_of(number), BUFFER_BYTES, MADV_DONTNEED);
        push(&cold, (unsigned)number);
    }
}

static void give_back(int number)
{
    push(&warm, (unsigned)number);
    atomic_fetch_add(&warm_count, 1);
}

/* Oldest first. */
static void read_filled(bool parse)
{
    uint8_t order[BUFFERS];
    unsigned count = 0;

    for (int number; count < BUFFERS && (number = pop(&done)) >= 0;)
        order[count++] = (uint8_t)number;
    while (count-- > 0) {
        if (parse)
            cm_cupti_records_parse(memory_of(order[count]),
                                   atomic_load(&slots[order[count]].valid));
        give_back(order[count]);
    }
}

/* --- beginning ---------------------------------------------------------------------------------
 */

static int enable(int kind)
{
    const cm_cupti_link *link = &state.link;

    if (link->v2)
        return link->api->ActivityEnable_v2(link->subscriber, kind, NULL);
    return link->api->ActivityEnable(kind);
}

static void disable(int kind)
{
    const cm_cupti_link *link = &state.link;

    if (link->v2)
        link->api->ActivityDisable_v2(link->subscriber, kind, NULL);
    else
        link->api->ActivityDisable(kind);
}

static int get_attribute(int which, size_t *value)
{
    const cm_cupti_link *link = &state.link;
    size_t size = sizeof *value;

    if (link->v2)
        return link->api->ActivityGetAttribute_v2 == NULL
                   ? -1
                   : link->api->ActivityGetAttribute_v2(link->subscriber, which, &size, value);
    return link->api->ActivityGetAttribute == NULL
               ? -1
               : link->api->ActivityGetAttribute(which, &size, value);
}

static int set_attribute(int which, size_t value)
{
    const cm_cupti_link *link = &state.link;
    size_t size = sizeof value;

    if (link->v2)
        return link->api->ActivitySetAttribute_v2 == NULL
                   ? -1
                   : link->api->ActivitySetAttribute_v2(link->subscriber, which, &size, &value);
    return link->api->ActivitySetAttribute == NULL
               ? -1
               : link->api->ActivitySetAttribute(which, &size, &value);
}

/* CUPTI takes device memory for kernel times: by default three buffers of 3.2 MB for each context,
 * up to 250. If an attribute cannot be set, that only costs memory. */
static void use_little_device_memory(bool kernels)
{
    state.attributes[0] = (attribute){.which = PRE_ALLOCATE, .small = 1};
    state.attributes[1] = (attribute){.which = POOL_LIMIT, .small = kernels ? 32 : 2};
    for (unsigned i = 0; i < 2; i++) {
        attribute *a = &state.attributes[i];
        a->set = get_attribute(a->which, &a->before) == 0 && a->before > a->small &&
                 set_attribute(a->which, a->small) == 0;
    }
}

static void restore_attributes(void)
{
    for (unsigned i = 2; i-- > 0;)
        if (state.attributes[i].set)
            set_attribute(state.attributes[i].which, state.attributes[i].before);
}

static const char *result_text(int result)
{
    const char *text = NULL;

    if (state.link.api->GetResultString == NULL ||
        state.link.api->GetResultString(result, &text) != 0 || text == NULL)
        return "no reason given";
    return text;
}

static void add_refusal(char *why, size_t size, const char *kind, int result)
{
    size_t used = strlen(why);

    if (used < size)
        snprintf(why + used, size - used, "%s%s (%d: %s)", used > 0 ? ", " : "CUPTI gives no ",
                 kind, result, result_text(result));
}

static bool enable_kinds(bool kernels, char *why, size_t why_size)
{
    static const struct {
        int kind;
        const char *name;
        bool kernels;
    } wanted[] = {
        {CM_CUPTI_MEMORY2_RECORD, "MEMORY2 records", false},
        {CM_CUPTI_POOL_RECORD, "MEMORY_POOL records", false},
        {CM_CUPTI_CONCURRENT_RECORD, "CONCURRENT_KERNEL records", true},
        {CM_CUPTI_MEMCPY_RECORD, "MEMCPY records", true},
        {CM_CUPTI_MEMCPY2_RECORD, "MEMCPY2 records", true},
        {CM_CUPTI_MEMSET_RECORD, "MEMSET records", true},
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (wanted[i].kernels && !kernels)
            continue;
        int result = enable(wanted[i].kind);
        if (result == 0)
            state.kinds |= UINT64_C(1) << wanted[i].kind;
        else
            add_refusal(why, why_size, wanted[i].name, result);
    }
    return state.kinds != 0;
}

/* By CUPTI's documentation, records have correlation ids only while records of calls are enabled.
 * Those of one rare call cost nothing. If ids are missing all the same, enable_call_records()
 * enables all. */
static void record_one_call(bool on)
{
    const cm_cupti_link *link = &state.link;

    if (link->v2 && link->api->ActivityEnableDriverApi_v2 != NULL)
        link->api->ActivityEnableDriverApi_v2(link->subscriber, cuMemAlloc_v2, on);
    else if (!link->v2 && link->api->ActivityEnableDriverApi != NULL)
        link->api->ActivityEnableDriverApi(cuMemAlloc_v2, on);
}

static bool has_functions(const cm_cupti_link *link)
{
    const cm_cupti_api *api = link->api;

    if (api->ActivityFlushAll == NULL)
        return false;
    return link->v2 ? api->ActivityRegisterCallbacks_v2 != NULL && api->ActivityEnable_v2 != NULL &&
                          api->ActivityDisable_v2 != NULL && link->subscriber != NULL
                    : api->ActivityRegisterCallbacks != NULL && api->ActivityEnable != NULL &&
                          api->ActivityDisable != NULL;
}

static bool refuse(char *why, size_t why_size, const char *text, int result)
{
    if (result != 0)
        snprintf(why, why_size, "%s (%d: %s)", text, result, result_text(result));
    else
        snprintf(why, why_size, "%s", text);
    return false;
}

bool cm_cupti_activity_begin(const cm_cupti_link *link, bool kernels, char *why, size_t why_size)
{
    int result;

    if (why_size > 0)
        why[0] = '\0';
    memset(&state, 0, sizeof state);
    state.link = *link;
    if (!has_functions(link))
        return refuse(why, why_size, "this CUPTI has no activity interface", 0);
    if (!reserve())
        return refuse(why, why_size, "no address space for CUPTI's records", 0);
    if (cm_cupti_records_begin(&state.link) == CM_CUPTI_NO_STEPS)
        return refuse(why, why_size, "this CUPTI does not tell how long its records are", 0);
    read_filled(false); /* buffers completed after the last end */
    state.foreign_before = atomic_load(&foreign);
    atomic_store(&dropped, 0);
    atomic_store(&scratched, 0);
    atomic_store(&taken, 0);
    atomic_store(&may_decline, link->api->version >= NULL_SINCE);
    atomic_store(&buffer_bytes, kernels ? BUFFER_BYTES : MEMORY_BYTES);
    warm_up(SPARE);
    cm_cupti_clock_begin(&state.link);
    use_little_device_memory(kernels);
    atomic_store(&active, true);
    result = link->v2 ? link->api->ActivityRegisterCallbacks_v2(
                            link->subscriber, (void *)request_v2_hook, (void *)complete_v2_hook)
                      : link->api->ActivityRegisterCallbacks(request_hook, complete_v1_hook);
    if (result != 0)
        refuse(why, why_size, "CUPTI takes no buffers", result);
    else if (enable_kinds(kernels, why, why_size)) {
        record_one_call(true);
        cm_cuda_watch_deferred(kernels);
        return state.began = true;
    }
    atomic_store(&active, false);
    restore_attributes();
    return false;
}

/* --- draining ----------------------------------------------------------------------------------
 */

static void count_dropped(void)
{
    const cm_cupti_link *link = &state.link;
    size_t count = 0;
    int result = -1;

    if (link->v2 && link->api->ActivityGetNumDroppedRecords_v2 != NULL)
        result = link->api->ActivityGetNumDroppedRecords_v2(link->subscriber, NULL, 0, &count);
    else if (!link->v2 && link->api->ActivityGetNumDroppedRecords != NULL)
        result = link->api->ActivityGetNumDroppedRecords(NULL, 0, &count);
    if (result == 0)
        atomic_fetch_add(&dropped, count);
}

/* If correlation ids are missing, enables records of all driver calls; these are not read. */
static void enable_call_records(void)
{
    if (state.has_call_records || cm_cupti_records_get_counts().uncorrelated == 0)
        return;
    state.has_call_records = true;
    if (enable(CM_CUPTI_DRIVER_RECORD) == 0)
        state.kinds |= UINT64_C(1) << CM_CUPTI_DRIVER_RECORD;
}

static void adapt(void)
{
    unsigned now = atomic_exchange(&taken, 0);

    /* The demand follows a rise at once and a fall slowly. */
    state.demand = now > state.demand ? now : state.demand - (state.demand - now + 7) / 8;
    warm_up(state.demand + SPARE);
    cool_down(2 * state.demand + SPARE);
}

static void collect(bool forced)
{
    const struct timespec ms = {.tv_nsec = 1000000};

    state.link.api->ActivityFlushAll(forced ? FORCED : 0);
    cm_libraries_refresh(); /* records may name libraries loaded since */
    cm_cupti_clock_sample();
    /* CUPTI's own thread may complete buffers a moment after the flush has returned. The count is
     * read before the list, so that a buffer that arrives in between is still parsed. */
    for (unsigned waited = 0; forced && waited < END_WAIT_MS && atomic_load(&out_count) > 0;
         waited++) {
        read_filled(true);
        nanosleep(&ms, NULL);
    }
    read_filled(true);
    count_dropped();
}

void cm_cupti_activity_drain(bool forced)
{
    if (!state.began)
        return;
    collect(forced);
    enable_call_records();
    adapt();
}

void cm_cupti_activity_end(const cm_cupti_link *link)
{
    (void)link; /* the same as in begin */
    if (!state.began)
        return;
    state.began = false;
    cm_cuda_watch_deferred(false);
    for (int kind = 0; kind < CM_CUPTI_RECORD_KINDS; kind++)
        if (state.kinds >> kind & 1)
            disable(kind);
    record_one_call(false);
    collect(true);
    atomic_store(&active, false);
    restore_attributes();
    cool_down(0);
}

bool cm_cupti_activity_has_kernels(void)
{
    return state.began && (state.kinds >> CM_CUPTI_CONCURRENT_RECORD & 1) != 0;
}

void cm_cupti_activity_get_counts(cm_cupti_activity_counts *counts)
{
    cm_cupti_records_counts read = cm_cupti_records_get_counts();

    *counts = (cm_cupti_activity_counts){
        .records = read.records,
        .dropped = atomic_load(&dropped) + atomic_load(&scratched) + read.untimed,
        .foreign_buffers = atomic_load(&foreign) - state.foreign_before,
        .unknown_records = read.unknown,
        .time_base_changed = cm_cupti_clock_changed(),
    };
}
