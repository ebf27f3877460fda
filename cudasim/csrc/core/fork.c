/* fork(): the child must neither hang on a lock that another thread held, nor count in its
 * parent's report, nor find a device that a real driver would not let it use.
 *
 * A child of a parent that never used the device starts afresh. */
#include <pthread.h>
#include <stdatomic.h>

#include "fork.h"
#include "report.h"

static atomic_bool forked;

static void before(void)
{
    cm_sim_memory_lock();
    cm_sim_known_lock();
    cm_sim_host_lock();
    cm_sim_report_lock();
}

static void release(void)
{
    cm_sim_report_unlock();
    cm_sim_host_unlock();
    cm_sim_known_unlock();
    cm_sim_memory_unlock();
}

static void in_child(void)
{
    bool used = cm_sim_memory_in_use();

    if (used)
        atomic_store(&forked, true);
    cm_sim_report_child(used);
    release();
}

static bool watched;

static void watch(void)
{
    watched = pthread_atfork(before, release, in_child) == 0;
}

bool cm_sim_fork_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
    return watched;
}

bool cm_sim_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}
