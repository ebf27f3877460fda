/* The CUPTI thread: the one thread that calls CUPTI. It runs from CUDA's arrival in the process
 * until stop, and pauses for forks.
 *
 * The mutex guards `w`. It is released around calls of CUPTI, CUDA and the loader, unless no CUPTI
 * thread is running. No hook of an allocation takes it. The subscription belongs to the CUPTI
 * thread or, while there is none, to the holder of the mutex. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../base/clock.h"
#include "../../capture/bus_error.h"
#include "../../capture/session.h"
#include "../cuda_slots.h"
#include "../device_totals.h"
#include "../libraries.h"
#include "../sources.h"
#include "activity.h"
#include "callbacks.h"
#include "cupti.h"

enum {
    PERIOD_MS = 200,
    EARLY_MS = 20,
    LATE_MS = 100,
    ROUND_SHARE = 20, /* rounds take at most one part in so many of the time */
    /* How often the thread checks whether the driver was initialized. Creating a context, which
     * comes before the first allocation, takes longer than the short interval. */
    POLL_SHORT_MS = 5,
    POLL_LONG_MS = 50,
    POLL_SHORT_FOR_MS = 2000,
    PAUSE_MS = 2000,
    FLUSH_MS = 2000,
    STOP_MS = 3000,
    EXIT_MS = 1000,
    CLAIM_MS = 20000
};
enum { USES_RECORDS = 1, USES_SUBSCRIPTION = 2 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* any of the below; on the monotonic clock */
    bool wanted;            /* between start and stop */
    bool alive, joinable;   /* the CUPTI thread */
    bool leave;             /* it is to end, and may be started again */
    bool polled;            /* it has checked whether the driver is ready */
    bool starting;          /* cm_cupti_start waits: nothing is recorded yet */
    bool paused;
    bool v1_only;
    bool samples; /* sample the devices: what was allocated before is in the trace */
    pthread_t thread;
    pid_t tid;
    uint64_t turns;       /* of the thread's loop */
    uint64_t stuck;       /* the turn for which a fork's wait timed out; 0: none */
    uint64_t refused;     /* the turn for which a claim's wait timed out; 0: none */
    uint64_t asked, done; /* rounds requested by cm_cupti_flush, and completed */
    bool last;            /* one of those requested is the last of the session */
    cm_cupti_claim claim; /* 0: none */
    char claimer[64];
    cm_cupti_options options;
    cm_cupti_api api;
    cm_cupti_link link;       /* subscriber NULL: nothing is subscribed */
    bool loaded, records;     /* api is filled in; activity has begun */
    cm_cupti_state state;     /* its counts are those of past subscriptions */
    unsigned long long loads; /* cm_cupti_loads() at the last search for the driver */
} w;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic pid_t owner; /* the process that this state belongs to */
static atomic_bool waiting; /* for the driver to arrive; no CUPTI thread yet */
static atomic_uint in_use;  /* what another client may claim: USES_* */
static _Atomic(void (*)(void)) on_change;

/* --- fork, lock, wait --------------------------------------------------------------------------
 */

static void reset(void)
{
    pthread_condattr_t monotonic;

    memset(&w, 0, sizeof w);
    pthread_mutex_init(&w.mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_store(&waiting, false);
    atomic_store(&in_use, 0);
    atomic_store(&owner, getpid());
}

/* CUPTI may still call our functions in a child. That is harmless: CUDA cannot be used there, and
 * recording is off (../../capture/ring_producer.h). */
void cm_cupti_forget(void)
{
    if (atomic_load(&owner) == 0)
        return;
    reset();
    cm_cuda_slots_record(false);
}

static void prepare_process(void)
{
    reset();
    pthread_atfork(NULL, NULL, cm_cupti_forget);
}

static void lock(void)
{
    pthread_once(&once, prepare_process);
    /* A child forked by a bare system call: no handler ran. */
    if (atomic_load(&owner) != getpid())
        cm_cupti_forget();
    pthread_mutex_lock(&w.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&w.mutex);
}

static struct timespec in_ms(unsigned milliseconds)
{
    uint64_t then = cm_clock_monotonic_ns() + (uint64_t)milliseconds * 1000000u;

    return (struct timespec){.tv_sec = (time_t)(then / 1000000000u),
                             .tv_nsec = (long)(then % 1000000000u)};
}

/* Waits for a change. false: the deadline has passed. */
static bool wait_until(const struct timespec *deadline)
{
    return pthread_cond_timedwait(&w.changed, &w.mutex, deadline) == 0;
}

static void notify(void)
{
    pthread_cond_broadcast(&w.changed);
}

static void set_mode(cm_cupti_mode mode, const char *reason)
{
    void (*callback)(void) = atomic_load(&on_change);

    w.state.mode = mode;
    if (reason != NULL) /* else the old one stays */
        snprintf(w.state.reason, sizeof w.state.reason, "%s", reason);
    notify();
    if (callback != NULL && mode != CM_CUPTI_STARTING)
        callback();
}

/* --- subscribing and giving up: on the CUPTI thread, if there is one ---------------------------
 */

/* Drops the mutex around slow CUPTI calls, unless no CUPTI thread is running: then it protects the
 * subscription. */
static void release(void)
{
    if (w.alive)
        unlock();
}

static void reacquire(bool alive)
{
    if (alive)
        lock();
}

static void add_record_counts(cm_cupti_state *state)
{
    cm_cupti_activity_counts counts = {0};

    cm_cupti_activity_get_counts(&counts);
    state->records += counts.records;
    state->dropped += counts.dropped;
    state->foreign_buffers += counts.foreign_buffers;
    state->unknown_records += counts.unknown_records;
    state->time_base_changed = state->time_base_changed || counts.time_base_changed;
}

static void end_records(void)
{
    bool alive = w.alive, own = cm_cupti_own_thread;

    if (!w.records)
        return;
    release();
    cm_cupti_driver_expect_records(false);
    cm_cupti_own_thread = true;
    cm_cupti_activity_end(&w.link);
    cm_cupti_own_thread = own;
    reacquire(alive);
    add_record_counts(&w.state);
    w.records = false;
}

static void end_subscription(void)
{
    cm_cupti_link link = w.link;
    bool alive = w.alive, own = cm_cupti_own_thread;

    cm_cupti_own_thread = true; /* this may be a thread of the program */
    if (link.subscriber != NULL) {
        release();
        cm_cupti_driver_disable(&link);
        reacquire(alive);
        end_records();
        release();
        cm_cupti_unsubscribe(&link);
        reacquire(alive);
        w.state.callbacks += cm_cupti_driver_count();
        w.link = link;
    }
    atomic_store(&in_use, 0);
    cm_cupti_own_thread = own;
}

/* Loads CUPTI, subscribes and enables everything, without the mutex. false with a reason: there is
 * no subscription. */
static bool subscribe(cm_cupti_link *link, bool *records, char *why, size_t size)
{
    cm_cupti_driver_expect_records(false);
    if (!w.loaded && !cm_cupti_load(&w.api, why, size))
        return false;
    w.loaded = true;
    if (!cm_cupti_subscribe(link, &w.api, w.v1_only, why, size))
        return false;
    cm_libraries_refresh();
    /* With v1_only, another client uses the process's one set of buffers. */
    *records = w.options.activity && !w.v1_only &&
               cm_cupti_activity_begin(link, w.options.kernels, why, size);
    cm_cupti_driver_expect_records(*records);
    if (cm_cupti_driver_enable(link, w.options.kernels) == 0) {
        if (*records)
            cm_cupti_activity_end(link);
        *records = false;
        cm_cupti_unsubscribe(link);
        snprintf(why, size,
                 "this CUPTI has none of the callbacks that tell of memory (install the "
                 "CUPTI of the driver's CUDA release)");
        return false;
    }
    return true;
}

/* CUPTI's own threads inherit the creating thread's name and outlive it, so begin() gives the
 * thread the program's name while they are created. */
static const char own_name[] = "cuptimem-cupti";

static void name_thread(const char *name)
{
    pthread_setname_np(pthread_self(), name);
}

static void leave_before_cuda(void);

/* Until CUPTI had started, calls that only callbacks see were not recorded. */
static void report_delay(char *why, size_t size, uint64_t ns)
{
    size_t used = strlen(why);

    if (!w.starting && ns >= (uint64_t)LATE_MS * 1000000u && used < size)
        snprintf(why + used, size - used,
                 "%sit took CUPTI %.1f s to start: till then only libraries' calls of CUDA by name "
                 "were seen",
                 used > 0 ? "; " : "", (double)ns / 1e9);
}

static void begin(void)
{
    static atomic_bool
        leaves; /* registered after CUDA's libraries are loaded, so it runs before their handlers */
    char why[sizeof w.state.reason] = "";
    cm_cupti_link link = {0};
    bool records = false, record = !w.starting;
    uint64_t asked = cm_clock_monotonic_ns();

    set_mode(CM_CUPTI_STARTING, NULL);
    atomic_store(&in_use, USES_SUBSCRIPTION | USES_RECORDS);
    unlock();
    if (record)
        cm_cuda_slots_record(true);
    char program[16];
    snprintf(program, sizeof program, "%s", program_invocation_short_name);
    name_thread(program);
    bool done = subscribe(&link, &records, why, sizeof why);
    name_thread(own_name);
    if (!done)
        cm_cuda_slots_record(true);
    if (!atomic_exchange(&leaves, true))
        atexit(leave_before_cuda);
    lock();
    w.link = link;
    w.records = records;
    snprintf(w.state.path, sizeof w.state.path, "%s", w.api.path);
    w.state.version = w.api.version;
    w.state.v2 = link.v2;
    w.state.activity = records;
    w.state.kernels = records && cm_cupti_activity_has_kernels();
    if (!done) {
        atomic_store(&in_use, 0);
        set_mode(CM_CUPTI_SLOTS, why);
        return;
    }
    atomic_store(&in_use, USES_SUBSCRIPTION | (records || link.v2 ? USES_RECORDS : 0));
    cm_cuda_slots_record(false);
    report_delay(why, sizeof why, cm_clock_monotonic_ns() - asked);
    set_mode(CM_CUPTI_CALLBACKS, w.v1_only ? NULL : why);
}

/* Releases only what the other CUPTI client asked for. */
static void give_up(void)
{
    cm_cupti_claim claim = w.claim;
    bool all = claim == CM_CUPTI_CLAIM_ALL || w.link.v2;
    char why[sizeof w.state.reason];

    snprintf(why, sizeof why, "%s asked for CUPTI%s", w.claimer,
             claim == CM_CUPTI_CLAIM_ALL ? " and keeps it" : "'s records");
    if (w.link.subscriber != NULL && all) {
        bool alive = w.alive;

        /* First, so that a few calls are recorded twice rather than not at all. */
        release();
        cm_cuda_slots_record(true);
        reacquire(alive);
        end_subscription();
        /* A client that claims the records only leaves the subscription of the old interface. */
        w.v1_only = claim == CM_CUPTI_CLAIM_RECORDS;
        w.state.v2 = w.state.activity = w.state.kernels = false;
        set_mode(w.v1_only ? CM_CUPTI_STARTING : CM_CUPTI_SLOTS, why);
    } else if (w.link.subscriber != NULL && w.records) {
        end_records();
        w.state.activity = w.state.kernels = false;
        atomic_store(&in_use, USES_SUBSCRIPTION);
        set_mode(CM_CUPTI_CALLBACKS, why);
    }
    if (w.claim == claim) /* else more was claimed meanwhile */
        w.claim = 0;
    notify();
}

/* --- the thread --------------------------------------------------------------------------------
 */

static void run_round(void)
{
    uint64_t asked = w.asked;
    bool last = w.last;

    w.last = false;
    bool records = w.records, samples = w.samples;
    unlock();
    if (records)
        cm_cupti_activity_drain(last);
    if (samples)
        cm_device_totals_sample(last);
    lock();
    w.done = asked;
    notify();
}

static void poll_driver(uint64_t since)
{
    unlock();
    bool ready = cm_cupti_driver_ready();
    lock();
    bool first = !w.polled;
    w.polled = true;
    if (first || ready)
        notify();
    if (ready) {
        if (w.wanted && !w.leave)
            begin();
        return;
    }
    bool recent = cm_clock_monotonic_ns() - since < (uint64_t)POLL_SHORT_FOR_MS * 1000000u;
    struct timespec later = in_ms(recent ? POLL_SHORT_MS : POLL_LONG_MS);
    if (w.wanted && !w.leave)
        wait_until(&later);
}

/* When the next round is due. The first one follows the first allocation closely: used memory that
 * no event explains is the context, and that is most exact while the program has little. */
typedef struct schedule {
    uint64_t due;   /* monotonic, ns */
    bool allocated; /* the driver gave out memory, and a round followed */
} schedule;

static struct timespec next_round(schedule *s)
{
    bool early = !s->allocated && w.options.period_ms > EARLY_MS;

    return in_ms(early ? EARLY_MS : w.options.period_ms);
}

static bool is_due(schedule *s)
{
    bool allocated = cm_cupti_driver_count() != 0;
    bool due =
        w.asked != w.done || (allocated && !s->allocated) || cm_clock_monotonic_ns() >= s->due;

    s->allocated = s->allocated || allocated;
    if (due)
        s->due = cm_clock_monotonic_ns() + (uint64_t)w.options.period_ms * 1000000u;
    return due;
}

/* A round takes locks of CUDA that the program may wait for, so slow rounds are made rarer. */
static void take_turn(schedule *s)
{
    uint64_t before = cm_clock_monotonic_ns();

    run_round();
    uint64_t after = cm_clock_monotonic_ns(), earliest = after + (after - before) * ROUND_SHARE;
    if (s->due < earliest)
        s->due = earliest;
}

static void *run(void *unused)
{
    uint64_t since = cm_clock_monotonic_ns();
    schedule rounds = {.due = since + (uint64_t)w.options.period_ms * 1000000u};

    name_thread(own_name);
    cm_cupti_own_thread = true; /* memory that CUPTI takes for itself is not the program's */
    cm_bus_enter_thread();
    lock();
    w.tid = (pid_t)syscall(SYS_gettid);
    struct timespec next = next_round(&rounds);
    while (w.wanted && !w.leave && w.state.mode != CM_CUPTI_NONE) {
        w.turns++;
        cm_bus_poll_in_thread();
        if (w.claim != 0)
            give_up();
        else if (w.state.mode == CM_CUPTI_WAITING)
            poll_driver(since);
        else if (w.state.mode == CM_CUPTI_STARTING)
            begin();
        else if (w.asked != w.done || !wait_until(&next)) {
            if (is_due(&rounds))
                take_turn(&rounds);
            next = next_round(&rounds);
        }
    }
    /* A claim that came together with a fork or the program's end is still served. */
    while (w.wanted && w.claim != 0)
        give_up();
    if (!w.wanted) {
        end_subscription();
        cm_cuda_slots_record(false);
    }
    w.alive = false;
    w.claim = 0;
    w.done = w.asked;
    notify();
    unlock();
    return NULL;
}

/* Joins a thread that has cleared `alive`. */
static void join(void)
{
    const struct timespec pause = {.tv_nsec = 50000};

    if (!w.joinable)
        return;
    w.joinable = false;
    pthread_join(w.thread, NULL);
    /* The kernel may count a joined thread for a moment longer. */
    for (int tries = 0; tries < 2000; tries++) {
        if (syscall(SYS_tgkill, getpid(), w.tid, 0) < 0 && errno == ESRCH)
            break;
        nanosleep(&pause, NULL);
    }
}

static int spawn(void)
{
    sigset_t all, before;

    join(); /* a thread that ended after the wait for it timed out */

    /* Signals must reach the program's threads, where they interrupt blocking calls. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(&w.thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w.alive = w.joinable = status == 0;
    if (status != 0) {
        char why[sizeof w.state.reason];
        snprintf(why, sizeof why, "no thread for CUPTI can be started: %s", strerror(status));
        set_mode(CM_CUPTI_NONE, why);
    }
    return -status;
}

static bool wait_until_gone(unsigned milliseconds)
{
    struct timespec deadline = in_ms(milliseconds);

    notify();
    while (w.alive)
        if (!wait_until(&deadline) && w.alive)
            return false;
    join();
    return true;
}

/* --- called from elsewhere ---------------------------------------------------------------------
 */

void cm_cupti_set_changed(void (*changed)(void))
{
    atomic_store(&on_change, changed);
}

static void wait_for_answer(const struct timespec *deadline)
{
    while (w.alive &&
           (w.state.mode == CM_CUPTI_STARTING || (w.state.mode == CM_CUPTI_WAITING && !w.polled)))
        if (!wait_until(deadline))
            return;
}

/* Without the mutex: switching slots on searches the libraries. */
static void record_until_subscribed(void)
{
    cm_cuda_slots_record(true);
    lock();
    if (!w.wanted || w.state.mode == CM_CUPTI_CALLBACKS)
        cm_cuda_slots_record(false);
    unlock();
}

int cm_cupti_start(const cm_cupti_options *options, unsigned wait_ms)
{
    int status = 0;

    unsigned long long loads = cm_cupti_loads();
    bool arrived = cm_cupti_driver_loaded(), ready = arrived && cm_sources_may_record();
    lock();
    if (w.wanted || w.alive) {
        unlock();
        return w.wanted ? -EALREADY : -EBUSY;
    }
    join();
    w.options = *options;
    if (w.options.period_ms == 0)
        w.options.period_ms = PERIOD_MS;
    w.wanted = true;
    w.leave = w.paused = w.polled = w.last = w.samples = false;
    w.v1_only = !options->activity;
    w.starting = true;
    w.claim = 0;
    w.asked = w.done = 0;
    w.stuck = w.refused = 0;
    w.state = (cm_cupti_state){.mode = CM_CUPTI_WAITING};
    w.link = (cm_cupti_link){0};
    w.loads = ready || !arrived ? loads : 0; /* 0: the next poll searches again */
    if (ready) {
        status = spawn();
        w.wanted = status == 0; /* a failed start is never stopped */
        struct timespec deadline = in_ms(wait_ms);
        wait_for_answer(&deadline);
    } else {
        atomic_store(&waiting, true);
    }
    w.starting = false;
    bool late = w.wanted && (w.state.mode == CM_CUPTI_WAITING || w.state.mode == CM_CUPTI_STARTING);
    unlock();
    if (late && cm_cupti_runtime_loaded())
        record_until_subscribed();
    return status;
}

void cm_cupti_poll(void)
{
    bool arrived = false, too_early = false;

    if (!atomic_load_explicit(&waiting, memory_order_relaxed))
        return;
    unsigned long long loads = cm_cupti_loads();
    if (pthread_mutex_trylock(&w.mutex) != 0) /* start, stop or a fork goes on: the next poll */
        return;
    /* During a fork no thread is started, so w.loads must stay as it is. */
    bool changed = atomic_load(&waiting) && !w.paused && loads != w.loads;
    too_early = changed && cm_session_waits() && cm_cupti_driver_loaded();
    if (changed && !too_early) {
        w.loads = loads;
        arrived = cm_cupti_runtime_loaded();
        if (cm_cupti_driver_loaded()) {
            atomic_store(&waiting, false);
            spawn();
        }
    }
    unlock();
    if (too_early) {
        if (cm_sources_may_record()) /* not under the mutex, which others wait for */
            cm_cupti_poll();
        return;
    }
    /* The runtime's first call loads the driver and may allocate before CUPTI can be subscribed:
     * slots record meanwhile. */
    if (arrived)
        record_until_subscribed();
}

void cm_cupti_flush(bool last)
{
    struct timespec deadline = in_ms(FLUSH_MS);

    if (last)
        cm_cupti_poll();
    lock();
    w.samples = true;
    if (last && w.alive) { /* CUDA may have come into use since the last poll */
        w.polled = false;
        notify();
        wait_for_answer(&deadline);
    }
    if (w.alive && (w.state.mode == CM_CUPTI_CALLBACKS || w.state.mode == CM_CUPTI_SLOTS)) {
        uint64_t mine = ++w.asked;
        w.last = w.last || last;
        notify();
        while (w.alive && w.done < mine)
            if (!wait_until(&deadline))
                break;
    }
    unlock();
}

void cm_cupti_stop(void)
{
    lock();
    if (w.wanted) {
        w.wanted = false;
        atomic_store(&waiting, false);
        cm_cuda_slots_record(false);
        /* A thread that hangs in CUPTI unsubscribes by itself when the call returns. */
        if (wait_until_gone(STOP_MS))
            end_subscription(); /* without a thread, between fork and resume */
    }
    unlock();
}

void cm_cupti_pause(void)
{
    lock();
    w.paused = true;
    if (w.alive) {
        /* Many forks wait only once for a thread that is stuck. */
        bool stuck = w.stuck != 0 && w.stuck == w.turns;
        w.leave = true;
        w.stuck = wait_until_gone(stuck ? 0 : PAUSE_MS) ? 0 : w.turns;
    }
    unlock();
}

void cm_cupti_resume(void)
{
    lock();
    w.paused = w.leave = false;
    if (w.wanted && !w.alive && !atomic_load(&waiting) && w.state.mode != CM_CUPTI_NONE)
        spawn();
    unlock();
}

void cm_cupti_give_up(cm_cupti_claim claim, const char *who)
{
    struct timespec deadline = in_ms(CLAIM_MS);

    if ((atomic_load(&in_use) & (claim == CM_CUPTI_CLAIM_ALL ? USES_SUBSCRIPTION : USES_RECORDS)) ==
        0)
        return;
    lock();
    if (w.claim < claim)
        w.claim = claim;
    snprintf(w.claimer, sizeof w.claimer, "%s", who);
    notify();
    if (!w.alive)
        give_up();
    /* torch.profiler claims several times in a row: wait only once for a thread that hangs. */
    bool stuck = w.refused != 0 && w.refused == w.turns;
    while (w.claim != 0 && !stuck)
        if (!wait_until(&deadline)) {
            w.refused = w.turns;
            break;
        }
    unlock();
}

void cm_cupti_get_state(cm_cupti_state *state)
{
    lock();
    *state = w.state;
    if (w.link.subscriber != NULL)
        state->callbacks += cm_cupti_driver_count();
    if (w.records)
        add_record_counts(state);
    unlock();
}

/* For exit() without Python's finalization: the thread must not be inside CUDA during its teardown.
 */
static void leave_before_cuda(void)
{
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += EXIT_MS / 1000;
    /* With a timeout: a signal handler may call exit() on a thread that holds the mutex. */
    if (atomic_load(&owner) != getpid() || pthread_mutex_timedlock(&w.mutex, &deadline) != 0)
        return;
    w.leave = true;
    if (w.alive)
        wait_until_gone(EXIT_MS);
    unlock();
}
