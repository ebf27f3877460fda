/* Subscribers and their callbacks.
 *
 * A subscriber is a slot of a fixed table and never freed, so that a thread which is about to call
 * it may read it at any time. The thread counts itself in before it checks that the slot is still
 * taken; cuptiUnsubscribe ends the slot and then waits for those inside: after it returned, neither
 * the function nor its data are used again.
 *
 * From 13.2 on several can be there, if the first of them allows it and all use the second
 * interface; as long as one of them is there, what the first interface does is refused. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cupti.h"

/* Taken in turn, so that an old handle is not a new one where there is one subscriber at a time. */
enum { SLOTS = CM_CUPTI_SUBSCRIBERS, NAME = 64, SEVERAL_SINCE = 1302 };
enum { ONE_ONLY = 0, SEVERAL = 1, NOT_SAID = 2 };

struct cm_cupti_subscriber {
    atomic_bool active;
    atomic_uint inside; /* threads that are calling it, or about to look whether they may */
    cm_cupti_callback callback;
    void *userdata;
    char name[NAME];
    uint64_t number; /* the how manieth that subscribed */
    bool second;     /* by the second interface */
    _Atomic uint8_t enabled[CM_CUPTI_DOMAINS][CM_CUPTI_IDS];
};

atomic_bool cm_sim_cupti_on;

static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;
static cm_cupti_subscriber slots[SLOTS];
static atomic_uint taken; /* bit i: slots[i] is active; a hint of where to look */
static unsigned next_slot;
static uint64_t subscriptions;
static atomic_uint several = NOT_SAID;
/* The subscriber that this thread is in a callback of. */
static _Thread_local cm_cupti_subscriber *calling __attribute__((tls_model("initial-exec")));
/* What subscribers keep from a call's enter to its exit. A thread is in at most one of the runtime
 * and one of the driver inside it: calls in a callback are not reported. */
static _Thread_local uint64_t kept[CM_CUPTI_RUNTIME_API + 1][SLOTS]
    __attribute__((tls_model("initial-exec")));

void cm_sim_cupti_lock(void)
{
    pthread_mutex_lock(&switching);
}

void cm_sim_cupti_unlock(void)
{
    pthread_mutex_unlock(&switching);
}

/* --- Calling them ----------------------------------------------------------------------------- */

static void fire(int domain, uint32_t id, const void *data, cm_cupti_callback_data *call)
{
    for (unsigned left = atomic_load_explicit(&taken, memory_order_relaxed); left;
         left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctz(left);
        cm_cupti_subscriber *one = &slots[slot];
        _Atomic uint8_t *wanted = &one->enabled[domain][id];
        if (!atomic_load_explicit(wanted, memory_order_relaxed))
            continue;
        atomic_fetch_add(&one->inside, 1);
        if (atomic_load(&one->active) && atomic_load_explicit(wanted, memory_order_relaxed)) {
            if (call)
                call->correlationData = &kept[domain][slot];
            calling = one;
            one->callback(one->userdata, domain, id, data);
            calling = NULL;
        }
        atomic_fetch_sub(&one->inside, 1);
    }
}

bool cm_sim_cupti_listens(int domain, uint32_t id)
{
    if (calling || id >= CM_CUPTI_IDS)
        return false;
    for (unsigned left = atomic_load_explicit(&taken, memory_order_relaxed); left; left &= left - 1)
        if (atomic_load_explicit(&slots[__builtin_ctz(left)].enabled[domain][id],
                                 memory_order_relaxed))
            return true;
    return false;
}

void cm_sim_cupti_enters(int domain)
{
    if (!calling)
        memset(kept[domain], 0, sizeof kept[domain]);
}

/* A call that a callback makes is not reported: that would never end. */

void cm_sim_cupti_fire(int domain, uint32_t id, cm_cupti_callback_data *data)
{
    if (!calling && id < CM_CUPTI_IDS)
        fire(domain, id, data, data);
}

void cm_sim_cupti_fire_other(int domain, uint32_t id, const void *data)
{
    if (!calling && id < CM_CUPTI_IDS)
        fire(domain, id, data, NULL);
}

/* --- Coming and going ------------------------------------------------------------------------- */

/* The first subscriber. */
static cm_cupti_subscriber *first_one(void)
{
    cm_cupti_subscriber *first = NULL;

    for (unsigned i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].active) && (!first || slots[i].number < first->number))
            first = &slots[i];
    return first;
}

unsigned cm_sim_cupti_subscribers(void)
{
    return (unsigned)__builtin_popcount(atomic_load(&taken));
}

bool cm_sim_cupti_several(void)
{
    return atomic_load_explicit(&several, memory_order_relaxed) == SEVERAL;
}

unsigned cm_sim_cupti_several_state(void)
{
    return atomic_load(&several);
}

static cm_cupti_subscriber *find(const void *handle)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (handle == &slots[i])
            return atomic_load(&slots[i].active) ? &slots[i] : NULL;
    return NULL;
}

unsigned cm_sim_cupti_client_of(const void *handle)
{
    const cm_cupti_subscriber *one = find(handle);

    return one ? 1 + (unsigned)(one - slots) : 0;
}

bool cm_sim_cupti_second(const void *handle)
{
    const cm_cupti_subscriber *one = find(handle);

    return one && one->second;
}

static cm_cupti_subscriber *free_slot(void)
{
    for (unsigned tried = 0; tried < SLOTS; tried++) {
        cm_cupti_subscriber *one = &slots[next_slot++ % SLOTS];
        if (!atomic_load(&one->active) && !atomic_load(&one->inside))
            return one;
    }
    return NULL;
}

static bool any_callback(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].active))
            for (unsigned domain = 1; domain < CM_CUPTI_DOMAINS; domain++)
                for (unsigned id = 0; id < CM_CUPTI_IDS; id++)
                    if (atomic_load_explicit(&slots[i].enabled[domain][id], memory_order_relaxed))
                        return true;
    return false;
}

void cm_sim_cupti_recompute(void)
{
    atomic_store(&cm_sim_cupti_on, any_callback() || cm_sim_cupti_any_kind_on());
}

/* The arguments of subscribing. */
typedef struct asked {
    cm_cupti_callback callback;
    void *userdata;
    const char *name;
    bool second;  /* by the second interface */
    bool several; /* others may be there, too */
    char *holder; /* receives the name of the first subscriber; NULL: not needed */
    size_t room;  /* as many bytes of it */
} asked;

static void name_holder(const asked *by, const char *name)
{
    if (by->holder && by->room)
        snprintf(by->holder, by->room, "%s", name);
}

/* With the lock held. */
static int admit(void **handle, const asked *by)
{
    cm_cupti_subscriber *holder = first_one();

    if (holder)
        name_holder(by, holder->name);
    if (holder && !(by->several && cm_sim_cupti_several()))
        return CM_CUPTI_MULTIPLE_SUBSCRIBERS;
    if (by->several &&
        (cm_sim_cupti_hostile()->olddriver || cm_sim_cupti_client_on(CM_CUPTI_FIRST)))
        return CM_CUPTI_MULTIPLE_SUBSCRIBERS;
    cm_cupti_subscriber *one = free_slot();
    if (!one)
        return CM_CUPTI_OUT_OF_MEMORY;
    one->callback = by->callback;
    one->userdata = by->userdata;
    one->number = ++subscriptions;
    one->second = by->second;
    snprintf(one->name, sizeof one->name, "%s", by->name);
    atomic_store(&several, by->several ? SEVERAL : ONE_ONLY);
    atomic_store(&one->active, true);
    atomic_fetch_or(&taken, 1u << (one - slots));
    *handle = one;
    return CM_CUPTI_OK;
}

static int subscribe(void **handle, const asked *by)
{
    const cm_cupti_hostile *hostile = cm_sim_cupti_hostile();

    CM_CUPTI_NEEDS_DRIVER;
    cm_sim_cupti_subscribe_slowly();
    if (hostile->refuse)
        return hostile->refuse;
    if (hostile->taken) {
        name_holder(by, hostile->taken);
        return CM_CUPTI_MULTIPLE_SUBSCRIBERS;
    }
    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    int result = admit(handle, by);
    cm_sim_cupti_unlock();
    return result;
}

CM_SIM_EXPORT int cuptiSubscribe(void **handle, cm_cupti_callback callback, void *userdata)
{
    /* As the vendor's: a client of activities alone may subscribe without a function. */
    return handle
               ? subscribe(handle, &(asked){.callback = callback, .userdata = userdata, .name = ""})
               : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiSubscribe_v2(void **handle, cm_cupti_callback callback, void *userdata,
                                    cm_cupti_subscriber_params *params)
{
    asked by = {.callback = callback, .userdata = userdata, .name = "", .second = true};
    char name[NAME];

    if (!handle)
        return CM_CUPTI_INVALID_PARAMETER;
    if (params) {
        if (params->structSize < offsetof(cm_cupti_subscriber_params, allowMultipleSubscribers))
            return CM_CUPTI_INVALID_PARAMETER;
        if (params->subscriberName) {
            snprintf(name, sizeof name, "CUPTI for %s", params->subscriberName);
            by.name = name;
        }
        by.holder = params->oldSubscriberName;
        by.room = params->oldSubscriberSize;
        by.several =
            cm_sim_cupti_generation()->number >= SEVERAL_SINCE &&
            params->structSize > offsetof(cm_cupti_subscriber_params, allowMultipleSubscribers) &&
            params->allowMultipleSubscribers;
    }
    return subscribe(handle, &by);
}

/* Ends a subscription; with the lock held. */
static void end(cm_cupti_subscriber *one)
{
    atomic_store(&one->active, false);
    if (atomic_fetch_and(&taken, ~(1u << (one - slots))) == 1u << (one - slots))
        atomic_store(&several, NOT_SAID);
    for (unsigned domain = 0; domain < CM_CUPTI_DOMAINS; domain++)
        for (unsigned id = 0; id < CM_CUPTI_IDS; id++)
            atomic_store_explicit(&one->enabled[domain][id], 0, memory_order_relaxed);
}

/* A callback that waits for the unsubscribing thread is left running after two seconds. Its slot is
 * not used again before it has returned. */
static void wait_outside(cm_cupti_subscriber *one)
{
    if (!cm_sim_cupti_wait(&one->inside, calling == one))
        cm_sim_note(CM_SIM_NOTE_LIMIT, "cuptiUnsubscribe: a callback did not return", 0);
}

CM_SIM_EXPORT int cuptiUnsubscribe(void *handle)
{
    cm_sim_cupti_lock();
    unsigned client = cm_sim_cupti_client_of(handle);
    if (client) {
        cm_sim_cupti_activity_reset_client(client);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (!client)
        return CM_CUPTI_INVALID_PARAMETER;
    /* What the second interface collected for it, which it reads by its handle; records of the
     * first one are dropped. */
    cm_sim_cupti_client_gone(client);
    cm_sim_cupti_lock();
    cm_cupti_subscriber *one = find(handle);
    if (one) {
        end(one);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (!one)
        return CM_CUPTI_INVALID_PARAMETER; /* another thread was quicker */
    wait_outside(one);
    return CM_CUPTI_OK;
}

void cm_sim_cupti_unsubscribe_all(void)
{
    cm_sim_cupti_lock();
    for (unsigned i = 0; i < SLOTS; i++)
        end(&slots[i]);
    atomic_store(&several, NOT_SAID);
    cm_sim_cupti_recompute();
    cm_sim_cupti_unlock();
    for (unsigned i = 0; i < SLOTS; i++)
        wait_outside(&slots[i]);
}

void cm_sim_cupti_callbacks_forked(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    switching = fresh;
    for (unsigned i = 0; i < SLOTS; i++) {
        end(&slots[i]);
        atomic_store(&slots[i].inside, 0);
    }
    atomic_store(&several, NOT_SAID);
    calling = NULL;
}

/* --- What they want to hear ------------------------------------------------------------------- */

static bool known(int domain)
{
    return domain > 0 && domain < CM_CUPTI_DOMAINS && cm_sim_cupti_generation()->ids[domain];
}

CM_SIM_EXPORT int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id)
{
    if (!known(domain) || !id || id >= cm_sim_cupti_generation()->ids[domain])
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_lock();
    cm_cupti_subscriber *one = find(handle);
    if (one) {
        atomic_store_explicit(&one->enabled[domain][id], enable != 0, memory_order_relaxed);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    return one ? CM_CUPTI_OK : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiEnableDomain(uint32_t enable, void *handle, int domain)
{
    if (!known(domain))
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_lock();
    cm_cupti_subscriber *one = find(handle);
    if (one) {
        unsigned count = cm_sim_cupti_generation()->ids[domain];
        for (unsigned id = 1; id < count; id++)
            atomic_store_explicit(&one->enabled[domain][id], enable != 0, memory_order_relaxed);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    return one ? CM_CUPTI_OK : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **name)
{
    if (!name)
        return CM_CUPTI_INVALID_PARAMETER;
    *name = cm_sim_cupti_name(domain, id);
    return *name ? CM_CUPTI_OK : CM_CUPTI_INVALID_PARAMETER;
}
