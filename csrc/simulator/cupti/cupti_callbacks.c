/* Subscribers and their callbacks.
 *
 * A subscriber is a slot of a fixed table whose memory is never given back, so that a thread which
 * is about to call it may look at it at any time. It counts itself in before it looks whether the
 * slot is still taken; cuptiUnsubscribe ends the slot and then waits for those inside: after it
 * returned, neither the function nor its data are used again. */
#include <pthread.h>
#include <string.h>

#include "cupti.h"

/* One at a time before the multi-subscriber interface. More slots than that, taken in turn, so that
 * an old handle is not a new one. */
enum { SLOTS = 16, NAME = 64 };

struct cm_cupti_subscriber {
    atomic_bool active;
    atomic_uint inside; /* threads that are calling it, or about to look whether they may */
    cm_cupti_callback callback;
    void *userdata;
    char name[NAME];
    _Atomic uint8_t enabled[CM_CUPTI_DOMAINS][CM_CUPTI_IDS];
};

atomic_bool cm_sim_cupti_on;

static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;
static cm_cupti_subscriber slots[SLOTS];
static atomic_uint taken; /* bit i: slots[i] is active; a hint of where to look */
static unsigned next_slot;
static _Thread_local cm_cupti_subscriber *calling; /* whose callback this thread is in */

void cm_sim_cupti_lock(void)
{
    pthread_mutex_lock(&switching);
}

void cm_sim_cupti_unlock(void)
{
    pthread_mutex_unlock(&switching);
}

/* --- Calling them ------------------------------------------------------------------------------
 */

void cm_sim_cupti_fire(int domain, uint32_t id, const void *data)
{
    /* What a callback calls itself is not told: it would never end. */
    if (calling || id >= CM_CUPTI_IDS)
        return;
    for (unsigned left = atomic_load_explicit(&taken, memory_order_relaxed); left;
         left &= left - 1) {
        cm_cupti_subscriber *one = &slots[__builtin_ctz(left)];
        _Atomic uint8_t *wanted = &one->enabled[domain][id];
        if (!atomic_load_explicit(wanted, memory_order_relaxed))
            continue;
        atomic_fetch_add(&one->inside, 1);
        if (atomic_load(&one->active) && atomic_load_explicit(wanted, memory_order_relaxed)) {
            calling = one;
            one->callback(one->userdata, domain, id, data);
            calling = NULL;
        }
        atomic_fetch_sub(&one->inside, 1);
    }
}

/* --- Coming and going --------------------------------------------------------------------------
 */

static cm_cupti_subscriber *active_one(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].active))
            return &slots[i];
    return NULL;
}

static cm_cupti_subscriber *find(const void *handle)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (handle == &slots[i])
            return atomic_load(&slots[i].active) ? &slots[i] : NULL;
    return NULL;
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

static int subscribe(void **handle, cm_cupti_callback callback, void *userdata, const char *name,
                     cm_cupti_subscriber **holder)
{
    int result = CM_CUPTI_OK;

    cm_sim_cupti_touch();
    cm_sim_cupti_lock();
    *holder = active_one();
    cm_cupti_subscriber *one = *holder ? NULL : free_slot();
    if (*holder) {
        result = CM_CUPTI_MULTIPLE_SUBSCRIBERS;
    } else if (!one) {
        result = CM_CUPTI_OUT_OF_MEMORY;
    } else {
        one->callback = callback;
        one->userdata = userdata;
        strncpy(one->name, name, NAME - 1);
        one->name[NAME - 1] = 0;
        atomic_store(&one->active, true);
        atomic_fetch_or(&taken, 1u << (one - slots));
        *handle = one;
    }
    cm_sim_cupti_unlock();
    return result;
}

CM_SIM_EXPORT int cuptiSubscribe(void **handle, cm_cupti_callback callback, void *userdata)
{
    cm_cupti_subscriber *holder;

    /* As the vendor's: who only wants activities may subscribe without a function. */
    return handle ? subscribe(handle, callback, userdata, "", &holder) : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiSubscribe_v2(void **handle, cm_cupti_callback callback, void *userdata,
                                    cm_cupti_subscriber_params *params)
{
    cm_cupti_subscriber *holder;

    if (!handle || !params || params->structSize < sizeof *params)
        return CM_CUPTI_INVALID_PARAMETER;
    int result = subscribe(handle, callback, userdata,
                           params->subscriberName ? params->subscriberName : "", &holder);
    if (result == CM_CUPTI_MULTIPLE_SUBSCRIBERS && params->oldSubscriberName &&
        params->oldSubscriberSize) {
        strncpy(params->oldSubscriberName, holder->name, params->oldSubscriberSize - 1);
        params->oldSubscriberName[params->oldSubscriberSize - 1] = 0;
    }
    return result;
}

/* Ends a subscription; with the lock held. */
static void end(cm_cupti_subscriber *one)
{
    atomic_store(&one->active, false);
    atomic_fetch_and(&taken, ~(1u << (one - slots)));
    for (unsigned domain = 0; domain < CM_CUPTI_DOMAINS; domain++)
        for (unsigned id = 0; id < CM_CUPTI_IDS; id++)
            atomic_store_explicit(&one->enabled[domain][id], 0, memory_order_relaxed);
}

/* A callback that waits for who is unsubscribing is left alone after a while. Its slot is not used
 * again before it has returned. */
static void wait_outside(cm_cupti_subscriber *one)
{
    if (!cm_sim_cupti_wait(&one->inside, calling == one))
        cm_sim_note(CM_SIM_NOTE_LIMIT, "cuptiUnsubscribe: a callback did not return", 0);
}

CM_SIM_EXPORT int cuptiUnsubscribe(void *handle)
{
    cm_sim_cupti_lock();
    cm_cupti_subscriber *one = find(handle);
    if (one) {
        end(one);
        cm_sim_cupti_recompute();
    }
    cm_sim_cupti_unlock();
    if (!one)
        return CM_CUPTI_INVALID_PARAMETER;
    wait_outside(one);
    return CM_CUPTI_OK;
}

void cm_sim_cupti_unsubscribe_all(void)
{
    cm_sim_cupti_lock();
    for (unsigned i = 0; i < SLOTS; i++)
        end(&slots[i]);
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
    calling = NULL;
}

/* --- What they want to hear --------------------------------------------------------------------
 */

static bool known(int domain)
{
    return domain > 0 && domain < CM_CUPTI_DOMAINS && cm_sim_cupti_generation()->ids[domain];
}

static void enable_domain(cm_cupti_subscriber *one, int domain, bool enable)
{
    unsigned count = cm_sim_cupti_generation()->ids[domain];

    for (unsigned id = 1; id < count; id++)
        atomic_store_explicit(&one->enabled[domain][id], enable, memory_order_relaxed);
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

static int enable_domains(uint32_t enable, void *handle, int first, int last)
{
    cm_sim_cupti_lock();
    cm_cupti_subscriber *one = find(handle);
    for (int domain = first; one && domain <= last; domain++)
        enable_domain(one, domain, enable != 0);
    if (one)
        cm_sim_cupti_recompute();
    cm_sim_cupti_unlock();
    return one ? CM_CUPTI_OK : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiEnableDomain(uint32_t enable, void *handle, int domain)
{
    return known(domain) ? enable_domains(enable, handle, domain, domain)
                         : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiEnableAllDomains(uint32_t enable, void *handle)
{
    return enable_domains(enable, handle, 1, CM_CUPTI_DOMAINS - 1);
}

CM_SIM_EXPORT int cuptiGetCallbackState(uint32_t *enable, void *handle, int domain, uint32_t id)
{
    if (!enable || !known(domain) || id >= cm_sim_cupti_generation()->ids[domain])
        return CM_CUPTI_INVALID_PARAMETER;
    cm_cupti_subscriber *one = find(handle);
    if (!one)
        return CM_CUPTI_INVALID_PARAMETER;
    *enable = atomic_load(&one->enabled[domain][id]);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **name)
{
    if (!name)
        return CM_CUPTI_INVALID_PARAMETER;
    *name = cm_sim_cupti_name(domain, id);
    return *name ? CM_CUPTI_OK : CM_CUPTI_INVALID_PARAMETER;
}

CM_SIM_EXPORT int cuptiSupportedDomains(size_t *count, const int **table)
{
    static const int domains[] = {CM_CUPTI_DRIVER_API,  CM_CUPTI_RUNTIME_API, CM_CUPTI_RESOURCE,
                                  CM_CUPTI_SYNCHRONIZE, CM_CUPTI_NVTX,        CM_CUPTI_STATE};

    if (!count || !table)
        return CM_CUPTI_INVALID_PARAMETER;
    *table = domains;
    *count = CM_CUPTI_DOMAINS - 1 - !known(CM_CUPTI_STATE);
    return CM_CUPTI_OK;
}
