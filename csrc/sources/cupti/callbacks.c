/* CUPTI's callbacks become events.
 *
 * A driver call raises two callbacks on its thread, at its beginning and end. A runtime call around
 * it raises two more, all with one correlation id. Events come from the driver's callbacks. Some
 * runtime calls reach the driver without raising any: those are recorded when they return.
 *
 * Each thread keeps the calls that it is in on a small stack. So the end of a call knows what was
 * recorded at its beginning, and driver calls nested in another are not recorded again. One of the
 * two callbacks may be missing, because callbacks were switched meanwhile: entries are found by
 * correlation id and row, and those above the found one are dropped. */
#include <stdatomic.h>
#include <string.h>

#include "../../base/own_frame.h"
#include "../../capture/ring_layout.h"
#include "../driver_events.h"
#include "../emit.h"
#include "../inflight.h"
#include "../libraries.h"
#include "callbacks.h"
#include "calls.h"

enum { OPEN = 4, DEVICES_KNOWN = 64, CONTEXTS = 64, NO_ROW = 0xff };

__thread bool cm_cupti_own_thread __attribute__((tls_model("initial-exec")));

/* A call that this thread is in. */
typedef struct open_call {
    const cm_call *call;
    uint32_t correlation;
    uint32_t session;       /* of enable */
    uint32_t finished;      /* cm_driver_tls.finished at its beginning */
    uint32_t resets;        /* calls.resets at its beginning */
    uint32_t generation;    /* of the thread's state when its free was recorded; 0: it was not */
    uint32_t events;        /* cm_driver_tls.events at that moment */
    bool counted;           /* as in flight: it is the outermost */
    bool ends;              /* it destroys a context */
    uint64_t time, context; /* at the beginning of a runtime call that frees */
} open_call;

static __thread struct {
    open_call at[OPEN];
    uint32_t depth;
    uint32_t resets; /* contexts that the driver destroyed; wraps */
} calls __attribute__((tls_model("initial-exec")));

/* A context that was seen. Several callbacks may report the same one. */
typedef struct context {
    _Atomic uint64_t handle; /* 0: a free entry */
    _Atomic int device;      /* + 1; 0: not known */
    atomic_bool alive, primary;
} context;

static struct {
    int (*_Atomic device_of)(void *context, uint32_t *device);
    atomic_bool records, launches;
    struct {
        _Alignas(64) _Atomic uint64_t events;
    } counts[CM_RING_COUNT];                 /* by the thread's slot; never reset */
    _Atomic uint64_t counted;                /* their sum when callbacks were enabled */
    _Atomic uint64_t devices[DEVICES_KNOWN]; /* a context's unique id << 8 | device + 1 */
    context contexts[CONTEXTS];
    _Atomic uint64_t ends; /* session << 32 | calls in flight that destroy contexts */
} state;

/* Rows by domain and id; filled in before the first callback. */
static uint8_t rows[2][CM_CALL_IDS];

/* --- devices and contexts ------------------------------------------------------------------------
 */

static int8_t small_index(int device)
{
    return device >= 0 && device <= INT8_MAX ? (int8_t)device : CM_DEVICE_UNKNOWN;
}

static int8_t ask_device(void *handle)
{
    int (*device_of)(void *, uint32_t *) =
        atomic_load_explicit(&state.device_of, memory_order_acquire);
    uint32_t device = 0;

    if (handle == NULL || device_of == NULL || device_of(handle, &device) != 0)
        return CM_DEVICE_UNKNOWN;
    return small_index((int)device);
}

static bool is_known(const cm_callback *d, int8_t *device)
{
    uint64_t entry =
        atomic_load_explicit(&state.devices[d->context_uid % DEVICES_KNOWN], memory_order_relaxed);

    *device = (int8_t)((entry & 0xff) - 1);
    return entry != 0 && entry >> 8 == d->context_uid;
}

static int8_t context_device(const cm_callback *d)
{
    _Atomic uint64_t *known = &state.devices[d->context_uid % DEVICES_KNOWN];
    int8_t there;

    if (d->context == NULL)
        return CM_DEVICE_UNKNOWN;
    if (is_known(d, &there))
        return there;
    int8_t device = ask_device(d->context);
    if (device >= 0)
        atomic_store_explicit(known, (uint64_t)d->context_uid << 8 | (uint64_t)(device + 1),
                              memory_order_relaxed);
    return device;
}

static void locate(cm_driver_piece *piece, const cm_call *c, const cm_callback *d)
{
    int device =
        c->place == CM_PLACE_CONTEXT ? context_device(d) : cm_call_device(c, d->parameters);

    /* If the call itself names the place, anything but a device is the host. */
    piece->device_type =
        device < 0 && c->place != CM_PLACE_CONTEXT ? CM_DEVICE_CPU : CM_DEVICE_CUDA;
    piece->device_index = small_index(device);
}

/* The context's entry, a new one where it is not known; NULL: no room. */
static context *context_entry(uint64_t handle)
{
    for (unsigned i = 0; i < CONTEXTS; i++) {
        uint64_t held = atomic_load_explicit(&state.contexts[i].handle, memory_order_acquire);
        if (held == handle ||
            (held == 0 &&
             atomic_compare_exchange_strong(&state.contexts[i].handle, &held, handle)) ||
            held == handle)
            return &state.contexts[i];
    }
    return NULL;
}

/* Whether to record this: the first of several callbacks about one context does. */
static bool context_made(uint64_t handle, int device, bool primary)
{
    context *c = context_entry(handle);

    if (c == NULL)
        return true;
    if (device >= 0)
        atomic_store(&c->device, device + 1);
    if (primary)
        atomic_store(&c->primary, true);
    return !atomic_exchange(&c->alive, true);
}

/* Whether to record this: also the end of a context that was never seen. */
static bool context_ended(uint64_t handle, int8_t *device)
{
    *device = CM_DEVICE_UNKNOWN;
    /* A new context may get the same unique id, if ids are device numbers. */
    for (unsigned i = 0; i < DEVICES_KNOWN; i++)
        atomic_store_explicit(&state.devices[i], 0, memory_order_relaxed);
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (atomic_load(&state.contexts[i].handle) == handle) {
            *device = (int8_t)(atomic_load(&state.contexts[i].device) - 1);
            return atomic_exchange(&state.contexts[i].alive, false);
        }
    context_entry(handle);
    return true;
}

static uint64_t primary_context_of(int device)
{
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (atomic_load(&state.contexts[i].primary) &&
            atomic_load(&state.contexts[i].device) == device + 1)
            return atomic_load(&state.contexts[i].handle);
    return 0;
}

/* Calls that began in an earlier session are not counted. */
static void count_ends(uint32_t session, int by)
{
    uint64_t before = atomic_load(&state.ends), after;

    do {
        uint32_t count = before >> 32 == session ? (uint32_t)before : 0;
        if (by < 0 && count == 0)
            return;
        after = (uint64_t)session << 32 | (count + (uint32_t)by);
    } while (!atomic_compare_exchange_weak(&state.ends, &before, after));
}

bool cm_cupti_context_ends(void)
{
    uint64_t ends = atomic_load(&state.ends);

    return ends >> 32 == cm_inflight_session() && (uint32_t)ends != 0;
}

void *cm_cupti_context_on(int device)
{
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (atomic_load(&state.contexts[i].alive) &&
            atomic_load(&state.contexts[i].device) == device + 1)
            return (void *)(uintptr_t)atomic_load(&state.contexts[i].handle);
    return NULL;
}

/* --- calls that a thread is in -------------------------------------------------------------------
 */

static CM_OWN_FRAME void drop_some(uint32_t depth)
{
    while (calls.depth > depth) {
        const open_call *o = &calls.at[--calls.depth];
        if (o->counted)
            cm_inflight_end_hook(o->session);
        if (o->ends)
            count_ends(o->session, -1);
    }
}

static inline void drop_above(uint32_t depth)
{
    if (calls.depth > depth)
        drop_some(depth);
}

/* Drops calls of earlier sessions: their ends never came, and their correlation ids may be
 * reused. */
static void drop_old(void)
{
    uint32_t session = cm_inflight_session(), keep = 0;

    while (keep < calls.depth && calls.at[keep].session == session)
        keep++;
    drop_above(keep);
}

static open_call *open_it(const cm_call *c, const cm_callback *d)
{
    uint32_t session = cm_inflight_session();

    if (calls.depth == OPEN)
        return NULL;
    open_call *o = &calls.at[calls.depth++];
    o->call = c;
    o->correlation = d->correlation;
    o->counted = calls.depth == 1; /* nested calls end before it */
    o->session = o->counted ? cm_inflight_begin_hook() : session;
    o->finished = cm_driver_tls.finished;
    o->resets = calls.resets;
    o->generation = 0;
    o->ends = c->kind == CM_DRIVER_CONTEXT && c->does == CM_CALL_TAKES;
    if (o->ends)
        count_ends(o->session, 1);
    return o;
}

/* The call's entry, which is then the topmost, or NULL. */
static open_call *find_open(const cm_call *c, const cm_callback *d)
{
    for (uint32_t i = calls.depth; i > 0; i--)
        if (calls.at[i - 1].call == c && calls.at[i - 1].correlation == d->correlation) {
            drop_above(i);
            return &calls.at[i - 1];
        }
    return NULL;
}

/* Whether the driver makes this call inside another of its calls, which is recorded instead. */
static bool is_inner(const open_call *o, uint32_t correlation)
{
    const open_call *end = o != NULL ? o : &calls.at[calls.depth];

    for (const open_call *outer = calls.at; outer < end; outer++)
        if (outer->call->domain == CM_DOMAIN_DRIVER && outer->correlation == correlation)
            return true;
    return false;
}

/* --- events --------------------------------------------------------------------------------------
 */

#define ENTERED cm_producer *t __attribute__((cleanup(cm_emit_leave_hook)))

static void describe(cm_driver_piece *piece, const cm_call *c, const cm_callback *d)
{
    piece->kind = c->kind;
    locate(piece, c, d);
    piece->has_correlation = c->recorded;
    piece->correlation = d->correlation;
    if (c->stream != CM_CALL_ABSENT)
        piece->stream = cm_call_stream(c, d->parameters);
    if (c->handle != CM_CALL_ABSENT) {
        piece->has_handle = true;
        piece->handle = cm_call_handle(c, d->parameters);
    }
}

/* Only one thread has a slot at a time, so its counter needs no locked instruction. */
static void count_hook(const cm_producer *t)
{
    _Atomic uint64_t *mine = &state.counts[t->slot].events;

    atomic_store_explicit(mine, atomic_load_explicit(mine, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static uint64_t all_counted(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < CM_RING_COUNT; i++)
        sum += atomic_load_explicit(&state.counts[i].events, memory_order_relaxed);
    return sum;
}

static void record_new_hook(const cm_call *c, const cm_callback *d)
{
    cm_driver_piece piece = {.address = cm_call_given(c, d->parameters)};
    bool record_follows = c->recorded && atomic_load_explicit(&state.records, memory_order_relaxed);

    if (piece.address == 0 || !cm_is_recording())
        return; /* context_made must not run: it would take the context for recorded */
    describe(&piece, c, d);
    piece.size = cm_call_bytes(c, d->parameters);
    if (c->kind == CM_DRIVER_CONTEXT) {
        if (!context_made(piece.address, piece.device_index, c->primary))
            return;
        if (c->primary) /* a context that this call made was recorded inside of it */
            piece.flags |= CM_EVF_ALREADY;
    }
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return;
    if (cm_driver_tls.site != 0) /* the record would name the hook's library */
        piece.library = cm_library_of_site_hook(cm_driver_tls.site - 1);
    else if (c->kind == CM_DRIVER_POOL || !record_follows) /* pools' records name no caller */
        piece.library = cm_library_of_caller_hook();
    cm_driver_new_hook(t, &piece);
    count_hook(t);
}

/* Records a context that existed before, or that the runtime made without a callback. */
static void see_context_hook(const cm_callback *d)
{
    cm_driver_piece piece = {.kind = CM_DRIVER_CONTEXT,
                             .flags = CM_EVF_ALREADY,
                             .address = (uint64_t)(uintptr_t)d->context,
                             .device_type = CM_DEVICE_CUDA};

    if (d->context == NULL || is_known(d, &piece.device_index) || !cm_is_recording())
        return;
    piece.device_index = context_device(d);
    if (!context_made(piece.address, piece.device_index, false))
        return;
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return;
    cm_driver_new_hook(t, &piece);
    count_hook(t);
}

/* Returns the generation of the thread's state, 0 if nothing was recorded. */
static uint32_t record_free_hook(const cm_call *c, const cm_callback *d, uint64_t time,
                                 uint64_t address)
{
    cm_driver_piece piece = {.address = address, .time = time};

    if (address == 0)
        return 0;
    if (c->kind == CM_DRIVER_CONTEXT) {
        piece.kind = CM_DRIVER_CONTEXT;
        piece.device_type = CM_DEVICE_CUDA;
        if (!context_ended(address, &piece.device_index))
            return 0;
    } else {
        describe(&piece, c, d);
    }
    if (c->sized == CM_SIZED_64)
        piece.size = cm_call_bytes(c, d->parameters);
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return 0;
    cm_driver_free_hook(t, &piece);
    count_hook(t);
    return cm_producer_generation(t);
}

/* Takes back the free that was recorded at the beginning of this call. */
static void record_failed_hook(const open_call *o, const cm_callback *d, uint64_t address)
{
    ENTERED = cm_enter_hook();

    if (o->call->kind == CM_DRIVER_CONTEXT)
        context_made(address, CM_DEVICE_UNKNOWN, false);
    /* A free in an earlier capture cannot be taken back. */
    if (t == NULL || cm_producer_generation(t) != o->generation)
        return;
    if (cm_driver_tls.events == o->events)
        cm_driver_failed_hook(t, *d->result);
    else /* FAILED refers to the thread's last event, and the free no longer is */
        cm_emit_put_hook(t, (cm_event){.kind = CM_EV_LOST, .size = 1, .device_index = -1});
}

/* A reset does not name the context that it destroys. */
static uint64_t freed_address(const cm_call *c, const cm_callback *d)
{
    if (c->address != CM_CALL_ABSENT || c->generic)
        return cm_call_taken(c, d->parameters);
    if (c->place == CM_PLACE_DEVICE) {
        uint64_t known = primary_context_of(cm_call_device(c, d->parameters));
        if (known != 0)
            return known;
    }
    return (uint64_t)(uintptr_t)d->context;
}

static void record_work_hook(const cm_call *c, const cm_callback *d)
{
    ENTERED = cm_enter_hook();

    if (t == NULL)
        return;
    cm_emit_put_stack_hook(t, (cm_event){.address = cm_call_stream(c, d->parameters),
                                         .size = d->correlation,
                                         .kind = CM_EV_LAUNCH,
                                         .flags = c->kind,
                                         .device_type = CM_DEVICE_CUDA,
                                         .device_index = context_device(d)});
    count_hook(t);
}

/* --- the callback --------------------------------------------------------------------------------
 */

static void driver_enter_hook(const cm_call *c, const cm_callback *d)
{
    bool inner = is_inner(NULL, d->correlation) || cm_driver_tls.in_slot != 0;
    open_call *o = open_it(c, d);

    if (!inner && cm_call_does_now(c, d->parameters) == CM_CALL_TAKES) {
        uint32_t generation = record_free_hook(c, d, 0, freed_address(c, d));
        if (o != NULL) {
            o->generation = generation;
            o->events = cm_driver_tls.events;
        }
    }
}

static void driver_exit_hook(const cm_call *c, const cm_callback *d)
{
    open_call *o = find_open(c, d);
    bool inner = is_inner(o, d->correlation) || cm_driver_tls.in_slot != 0;

    if (c->kind != CM_DRIVER_CONTEXT)
        see_context_hook(d);
    if (!inner && *d->result == 0 && cm_call_does_now(c, d->parameters) == CM_CALL_GIVES)
        record_new_hook(c, d);
    if (o != NULL && *d->result != 0 && o->generation != 0)
        record_failed_hook(o, d, freed_address(c, d));
    if (c->kind != CM_DRIVER_CONTEXT)
        cm_driver_tls.finished++;
    else if (c->does == CM_CALL_TAKES)
        calls.resets++;
    if (o != NULL)
        drop_above((uint32_t)(o - calls.at));
}

/* Whether no callback of the driver has recorded what this runtime call did. */
static bool is_unrecorded(const open_call *o)
{
    return cm_driver_tls.in_slot == 0 &&
           (o->call->kind == CM_DRIVER_CONTEXT ? o->resets == calls.resets
                                               : o->finished == cm_driver_tls.finished);
}

static void runtime_enter_hook(const cm_call *c, const cm_callback *d)
{
    open_call *o = open_it(c, d);

    if (o != NULL && c->does == CM_CALL_TAKES) {
        o->time = cm_clock_now();
        o->context = (uint64_t)(uintptr_t)d->context;
    }
}

static void runtime_exit_hook(const cm_call *c, const cm_callback *d)
{
    open_call *o = find_open(c, d);

    if (o == NULL)
        return; /* what the driver did inside is not known */
    if (c->kind != CM_DRIVER_CONTEXT)
        see_context_hook(d);
    if (*d->result == 0 && is_unrecorded(o)) {
        if (c->does == CM_CALL_GIVES)
            record_new_hook(c, d);
        else if (c->does == CM_CALL_TAKES)
            /* With the time of its beginning: another thread may have got the address since. */
            record_free_hook(c, d, o->time,
                             c->address == CM_CALL_ABSENT ? o->context : freed_address(c, d));
    }
    drop_above((uint32_t)(o - calls.at));
}

static void resource_hook(uint32_t id, const cm_resource *resource)
{
    uint64_t handle = (uint64_t)(uintptr_t)resource->context;
    cm_driver_piece piece = {.kind = CM_DRIVER_CONTEXT,
                             .address = handle,
                             .device_type = CM_DEVICE_CUDA,
                             .device_index = CM_DEVICE_UNKNOWN};

    if (handle == 0)
        return;
    if (id == CM_RESOURCE_CONTEXT_CREATED && !cm_is_recording())
        return; /* it is recorded when it is first used */
    if (id == CM_RESOURCE_CONTEXT_CREATED)
        piece.device_index = ask_device(resource->context);
    if (id == CM_RESOURCE_CONTEXT_CREATED ? !context_made(handle, piece.device_index, false)
                                          : !context_ended(handle, &piece.device_index))
        return;
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return;
    if (id == CM_RESOURCE_CONTEXT_CREATED)
        cm_driver_new_hook(t, &piece);
    else
        cm_driver_free_hook(t, &piece);
    count_hook(t);
}

static bool reads_parameters(const cm_call *c)
{
    return c->address != CM_CALL_ABSENT || c->generic || c->sized != CM_SIZED_NOT ||
           c->place != CM_PLACE_CONTEXT || c->stream != CM_CALL_ABSENT ||
           c->handle != CM_CALL_ABSENT || c->configured;
}

/* Counts an event as lost: the end of a call came without parameters or result. */
static void lose_hook(const open_call *o)
{
    ENTERED = cm_enter_hook();

    if (o != NULL)
        drop_above((uint32_t)(o - calls.at));
    if (t != NULL)
        cm_emit_put_hook(t, (cm_event){.kind = CM_EV_LOST, .size = 1, .device_index = -1});
}

void cm_cupti_callback_hook(void *userdata, int domain, uint32_t id, const void *data)
{
    const cm_callback *d = data;

    if (cm_cupti_own_thread || d == NULL)
        return;
    if (domain == CM_DOMAIN_RESOURCE) {
        if (id == CM_RESOURCE_CONTEXT_CREATED || id == CM_RESOURCE_CONTEXT_DESTROYED)
            resource_hook(id, data);
        return;
    }
    if ((domain != CM_DOMAIN_DRIVER && domain != CM_DOMAIN_RUNTIME) || id >= CM_CALL_IDS)
        return;
    uint8_t row = rows[domain - CM_DOMAIN_DRIVER][id];
    if (row == NO_ROW)
        return;
    const cm_call *c = &cm_calls[row];
    if (calls.depth != 0)
        drop_old();
    bool enters = d->site == CM_SITE_ENTER;
    if (enters && !cm_is_recording())
        return; /* ends are still handled, to close opened calls */
    if ((d->result == NULL && !enters) || (d->parameters == NULL && reads_parameters(c))) {
        if (!enters)
            lose_hook(find_open(c, d));
        return;
    }
    if (c->does == CM_CALL_WORKS) {
        if (!enters && *d->result == 0)
            record_work_hook(c, d);
        return;
    }
    if (domain == CM_DOMAIN_DRIVER) {
        if (enters)
            driver_enter_hook(c, d);
        else
            driver_exit_hook(c, d);
    } else {
        if (enters)
            runtime_enter_hook(c, d);
        else
            runtime_exit_hook(c, d);
    }
}

/* --- on and off ----------------------------------------------------------------------------------
 */

static void index_rows(void)
{
    static bool done; /* filled once: callbacks of the last session may still be running */

    if (done)
        return;
    done = true;
    memset(rows, NO_ROW, sizeof rows);
    for (size_t i = 0; i < cm_call_count; i++)
        rows[cm_calls[i].domain - CM_DOMAIN_DRIVER][cm_calls[i].id] = (uint8_t)i;
}

static int set_all(const cm_cupti_link *link, uint32_t on, bool launches)
{
    int (*set)(uint32_t, void *, int, uint32_t) = link->api->EnableCallback;
    int done = 0;
    bool memory = false;

    for (size_t i = 0; i < cm_call_count; i++) {
        const cm_call *c = &cm_calls[i];
        if ((!launches && c->does == CM_CALL_WORKS) ||
            set(on, link->subscriber, c->domain, c->id) != 0)
            continue;
        done++;
        memory = memory || (c->domain == CM_DOMAIN_DRIVER && c->does == CM_CALL_GIVES &&
                            c->kind != CM_DRIVER_CONTEXT);
    }
    done += set(on, link->subscriber, CM_DOMAIN_RESOURCE, CM_RESOURCE_CONTEXT_CREATED) == 0;
    done += set(on, link->subscriber, CM_DOMAIN_RESOURCE, CM_RESOURCE_CONTEXT_DESTROYED) == 0;
    return memory ? done : 0;
}

int cm_cupti_driver_enable(const cm_cupti_link *link, bool launches)
{
    if (link->subscriber == NULL || link->api->EnableCallback == NULL)
        return 0;
    cm_libraries_refresh(); /* also prepares the unwinder */
    index_rows();
    for (unsigned i = 0; i < DEVICES_KNOWN; i++)
        atomic_store(&state.devices[i], 0);
    for (unsigned i = 0; i < CONTEXTS; i++) {
        atomic_store(&state.contexts[i].alive, false);
        atomic_store(&state.contexts[i].primary, false);
        atomic_store(&state.contexts[i].device, 0);
        atomic_store(&state.contexts[i].handle, 0);
    }
    cm_inflight_new_session();
    atomic_store(&state.counted, all_counted());
    atomic_store(&state.launches, launches);
    atomic_store(&state.device_of, link->api->GetDeviceId);
    return set_all(link, 1, launches);
}

void cm_cupti_driver_disable(const cm_cupti_link *link)
{
    if (link->subscriber != NULL && link->api->EnableCallback != NULL)
        set_all(link, 0, atomic_load(&state.launches));
}

uint64_t cm_cupti_driver_count(void)
{
    return all_counted() - atomic_load(&state.counted);
}

void cm_cupti_driver_expect_records(bool expected)
{
    atomic_store(&state.records, expected);
}
