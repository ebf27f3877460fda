/* The clients' buffers.
 *
 * A client gives empty buffers when asked (request) and takes full ones back (complete). Each
 * thread fills its own, or all threads one, as PER_THREAD_ACTIVITY_BUFFER says. A full buffer goes
 * to a queue, and a thread of ours hands it back; a flush hands back itself what is in the queue
 * and what is half full. Either function is called with no lock held.
 *
 * A writer belongs to the process and not to its thread: when the thread ends, the next one goes on
 * with its buffer, and a flush finds all of them.
 *
 * Where events lag (config.event_lag), so do records: a buffer with a record whose work is not done
 * is only handed back by a forced flush, which leaves that record without an end. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti.h"

typedef void (*request_function)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);

/* A record whose work was not done when it was written. */
typedef struct unfinished {
    size_t offset;
    cm_cupti_work work;
} unfinished;

typedef struct buffer {
    uint8_t *data; /* NULL: there is none */
    size_t size, used, records, max_records;
    unfinished *unfinished;
    size_t unfinished_count, unfinished_room;
} buffer;

typedef struct writer {
    pthread_mutex_t lock;
    buffer current;
    atomic_bool taken; /* by a thread */
    struct writer *next;
} writer;

typedef struct delivery {
    buffer what;
    uint64_t ticket;
    struct delivery *next;
} delivery;

static _Atomic(request_function) request;
static _Atomic(complete_function) complete;
static atomic_size_t dropped;
static atomic_uint session; /* ended by cuptiFinalize */
static atomic_uint busy;    /* threads that hold a buffer which no writer and no queue has */

static _Atomic(writer *) writers; /* only ever grows */
static writer shared = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local writer *mine;
static _Thread_local bool in_client; /* this thread is in request or complete */
static pthread_key_t at_thread_end;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool have_key;

/* What waits to be handed back, in order, and what is being handed back. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived, finished;
    delivery *first, **last, *under_way;
    uint64_t tickets;
    unsigned period_ms;
    bool running, stop, exiting;
    pthread_t thread;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .arrived = PTHREAD_COND_INITIALIZER,
           .finished = PTHREAD_COND_INITIALIZER,
           .last = &queue.first};

/* --- Handing back ------------------------------------------------------------------------------
 */

/* Whether all records are complete. Forgets what has been done since. */
static bool finished(buffer *b)
{
    size_t left = 0;

    for (size_t i = 0; i < b->unfinished_count; i++)
        if (!cm_sim_cupti_done(&b->unfinished[i].work))
            b->unfinished[left++] = b->unfinished[i];
    b->unfinished_count = left;
    return left == 0;
}

/* A record of work that is not known to be done is complete where there is no memory to say so. */
static void add_unfinished(buffer *b, size_t offset, const cm_cupti_work *work)
{
    if (b->unfinished_count == b->unfinished_room) {
        size_t room = b->unfinished_room ? 2 * b->unfinished_room : 64;
        unfinished *larger = realloc(b->unfinished, room * sizeof *larger);
        if (!larger)
            return;
        b->unfinished = larger;
        b->unfinished_room = room;
    }
    b->unfinished[b->unfinished_count++] = (unfinished){offset, *work};
}

/* In every record of work on the device `end` lies at the same place. */
_Static_assert(offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memcpy, end) &&
                   offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memcpy_peer, end) &&
                   offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memset, end),
               "one place");

static void hand_back(buffer *what)
{
    complete_function function = atomic_load(&complete);
    bool nested = in_client;

    if (!finished(what))
        for (size_t i = 0; i < what->unfinished_count; i++)
            memset(what->data + what->unfinished[i].offset + offsetof(cm_cupti_kernel, end), 0,
                   sizeof(uint64_t));
    free(what->unfinished);
    what->unfinished = NULL;
    if (!function)
        return;
    in_client = true;
    function(NULL, 0, what->data, what->size, what->used);
    in_client = nested;
}

static void enqueue(buffer *what)
{
    delivery *one = malloc(sizeof *one);

    if (!one) {
        hand_back(what);
        return;
    }
    *one = (delivery){.what = *what};
    pthread_mutex_lock(&queue.lock);
    one->ticket = ++queue.tickets;
    *queue.last = one;
    queue.last = &one->next;
    pthread_cond_signal(&queue.arrived);
    pthread_mutex_unlock(&queue.lock);
}

/* Takes the oldest complete delivery (forced: any) that has been waiting since before `until`; with
 * the lock held. */
static delivery *take(uint64_t until, bool forced)
{
    delivery **at = &queue.first;

    while (*at && (*at)->ticket <= until && !forced && !finished(&(*at)->what))
        at = &(*at)->next;
    delivery *one = *at;
    if (!one || one->ticket > until)
        return NULL;
    *at = one->next;
    if (!*at)
        queue.last = at;
    one->next = queue.under_way;
    queue.under_way = one;
    return one;
}

/* Hands it back; the lock is held before and after, not meanwhile. */
static void deliver(delivery *one)
{
    pthread_mutex_unlock(&queue.lock);
    hand_back(&one->what);
    pthread_mutex_lock(&queue.lock);
    for (delivery **at = &queue.under_way; *at; at = &(*at)->next)
        if (*at == one) {
            *at = one->next;
            break;
        }
    free(one);
    pthread_cond_broadcast(&queue.finished);
}

static bool under_way(uint64_t until)
{
    for (const delivery *one = queue.under_way; one; one = one->next)
        if (one->ticket <= until)
            return true;
    return false;
}

/* Returns when everything complete (forced: everything) that waits now has been handed back. */
static void drain(bool forced)
{
    pthread_mutex_lock(&queue.lock);
    uint64_t until = queue.tickets;
    for (delivery *one; (one = take(until, forced)) != NULL;)
        deliver(one);
    while (under_way(until))
        pthread_cond_wait(&queue.finished, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
}

/* --- The thread that hands back ----------------------------------------------------------------
 */

static void wait_for_work(void)
{
    struct timespec until;

    if (!queue.period_ms) {
        pthread_cond_wait(&queue.arrived, &queue.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + queue.period_ms * UINT64_C(1000000);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&queue.arrived, &queue.lock, &until);
}

static void *serve(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (!queue.stop) {
        delivery *one = queue.exiting ? NULL : take(UINT64_MAX, false);
        if (one)
            deliver(one);
        else
            wait_for_work();
    }
    queue.running = false;
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

/* From here on a client's functions may be gone: nothing is handed back on our own account. */
static void at_exit(void)
{
    pthread_mutex_lock(&queue.lock);
    queue.exiting = true;
    pthread_mutex_unlock(&queue.lock);
}

void cm_sim_cupti_buffers_start(void)
{
    static bool registered;
    sigset_t all, before;

    pthread_mutex_lock(&queue.lock);
    if (!queue.running) {
        if (!registered)
            registered = atexit(at_exit) == 0;
        /* Signals are the program's. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        queue.stop = false;
        queue.running = pthread_create(&queue.thread, NULL, serve, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!queue.running)
            cm_sim_note(CM_SIM_NOTE_LIMIT, "a thread for CUPTI's buffers", 0);
    }
    pthread_mutex_unlock(&queue.lock);
}

/* --- Writers -----------------------------------------------------------------------------------
 */

static void leave(void *held)
{
    mine = NULL;
    atomic_store(&((writer *)held)->taken, false);
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, leave) == 0;
}

static writer *take_writer(void)
{
    for (writer *one = atomic_load(&writers); one; one = one->next) {
        bool free_one = false;
        if (atomic_compare_exchange_strong(&one->taken, &free_one, true))
            return one;
    }
    writer *one = calloc(1, sizeof *one);
    if (!one)
        return NULL;
    pthread_mutex_init(&one->lock, NULL);
    atomic_store(&one->taken, true);
    one->next = atomic_load(&writers);
    while (!atomic_compare_exchange_weak(&writers, &one->next, one))
        ;
    return one;
}

static writer *my_writer(void)
{
    if (!cm_sim_cupti_per_thread_buffers())
        return &shared;
    if (mine)
        return mine;
    pthread_once(&key_once, make_key);
    writer *one = have_key ? take_writer() : NULL;
    if (!one)
        return &shared;
    if (pthread_setspecific(at_thread_end, one) != 0) {
        atomic_store(&one->taken, false);
        return &shared;
    }
    return mine = one;
}

/* Whether the buffer takes a record of that many bytes. */
static bool fits(const buffer *b, size_t bytes)
{
    return b->data && b->size - b->used >= bytes &&
           (!b->max_records || b->records < b->max_records);
}

/* An empty buffer that takes such a record, from the client. One that does not goes back. */
static bool ask(size_t bytes, buffer *fresh)
{
    request_function function = atomic_load(&request);

    *fresh = (buffer){0};
    if (!function)
        return false;
    in_client = true;
    function(&fresh->data, &fresh->size, &fresh->max_records);
    in_client = false;
    if (!fresh->data)
        return false;
    if ((uintptr_t)fresh->data % CM_CUPTI_ALIGNMENT == 0 && fits(fresh, bytes))
        return true;
    hand_back(fresh);
    return false;
}

void cm_sim_cupti_emit(const void *record, size_t bytes)
{
    cm_sim_cupti_emit_work(record, bytes, NULL);
}

void cm_sim_cupti_emit_work(const void *record, size_t bytes, const cm_cupti_work *work)
{
    uint32_t kind;
    unsigned since = atomic_load(&session);

    memcpy(&kind, record, sizeof kind);
    size_t size = cm_sim_cupti_record_size(kind);
    writer *w = my_writer();

    pthread_mutex_lock(&w->lock);
    while (!fits(&w->current, size)) {
        buffer full = w->current, fresh;
        w->current = (buffer){0};
        atomic_fetch_add(&busy, 1);
        pthread_mutex_unlock(&w->lock);
        if (full.data)
            enqueue(&full);
        /* What a client calls while we ask it for a buffer cannot have another one. */
        bool given = !in_client && ask(size, &fresh);
        pthread_mutex_lock(&w->lock);
        bool detached = since != atomic_load(&session);
        bool keep = given && !detached && !w->current.data;
        if (keep)
            w->current = fresh;
        if (given && !keep) {
            /* Another thread was quicker, or CUPTI was detached meanwhile. */
            pthread_mutex_unlock(&w->lock);
            hand_back(&fresh);
            pthread_mutex_lock(&w->lock);
        }
        atomic_fetch_sub(&busy, 1);
        if (detached || (!given && !fits(&w->current, size))) {
            pthread_mutex_unlock(&w->lock);
            if (!detached)
                atomic_fetch_add(&dropped, 1);
            return;
        }
    }
    uint8_t *at = w->current.data + w->current.used;
    memcpy(at, record, size < bytes ? size : bytes);
    if (size > bytes)
        memset(at + bytes, 0, size - bytes);
    if (work && !cm_sim_cupti_done(work))
        add_unfinished(&w->current, w->current.used, work);
    w->current.used += size;
    w->current.records++;
    pthread_mutex_unlock(&w->lock);
}

static void detach(writer *w, bool forced)
{
    buffer what = {0};

    pthread_mutex_lock(&w->lock);
    if (w->current.data && (forced || finished(&w->current))) {
        what = w->current;
        w->current = (buffer){0};
    }
    pthread_mutex_unlock(&w->lock);
    if (what.data)
        enqueue(&what);
}

static void detach_all(bool forced)
{
    detach(&shared, forced);
    for (writer *w = atomic_load(&writers); w; w = w->next)
        detach(w, forced);
}

/* --- The client's side -------------------------------------------------------------------------
 */

CM_SIM_EXPORT int cuptiActivityRegisterCallbacks(request_function requested,
                                                 complete_function completed)
{
    if (!requested || !completed)
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_touch();
    atomic_store(&complete, completed);
    atomic_store(&request, requested);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    enum { FORCED = 1 };
    bool forced = flag & FORCED;

    if (!atomic_load(&complete) || in_client)
        return CM_CUPTI_INVALID_OPERATION;
    atomic_fetch_add(&busy, 1);
    detach_all(forced);
    drain(forced);
    atomic_fetch_sub(&busy, 1);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityFlush(void *context, uint32_t stream, uint32_t flag)
{
    (void)context, (void)stream; /* as the vendor's does */
    return cuptiActivityFlushAll(flag);
}

/* Only brings what is full and complete: what became complete since nobody looked. */
CM_SIM_EXPORT int cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    pthread_mutex_lock(&queue.lock);
    queue.period_ms = milliseconds;
    pthread_cond_signal(&queue.arrived);
    pthread_mutex_unlock(&queue.lock);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream; /* one count for all, since CUDA 6 */
    if (!count)
        return CM_CUPTI_INVALID_PARAMETER;
    *count = atomic_exchange(&dropped, 0);
    return CM_CUPTI_OK;
}

/* --- The end -----------------------------------------------------------------------------------
 */

void cm_sim_cupti_buffers_finalize(void)
{
    /* Whoever brings a buffer from now on sees that it is not wanted. */
    atomic_fetch_add(&session, 1);
    atomic_store(&request, NULL);
    detach_all(true);
    if (!in_client) {
        /* Nobody has a buffer in his hands then, or asks for one. */
        if (!cm_sim_cupti_wait(&busy, 0))
            cm_sim_note(CM_SIM_NOTE_LIMIT, "cuptiFinalize: a buffer callback did not return", 0);
        drain(true);
    }
    atomic_store(&complete, NULL);
    atomic_store(&dropped, 0);
    pthread_mutex_lock(&queue.lock);
    bool join = queue.running && !queue.stop && !pthread_equal(queue.thread, pthread_self());
    queue.stop = true;
    queue.period_ms = 0;
    pthread_cond_broadcast(&queue.arrived);
    pthread_mutex_unlock(&queue.lock);
    if (join)
        pthread_join(queue.thread, NULL);
}

/* Nothing of CUPTI survives a fork: the parent's buffers are the parent's, and the thread is gone.
 */
void cm_sim_cupti_buffers_forked(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

    queue.lock = lock;
    queue.arrived = queue.finished = condition;
    queue.first = queue.under_way = NULL;
    queue.last = &queue.first;
    queue.period_ms = 0;
    queue.running = queue.stop = queue.exiting = false;
    shared.lock = lock;
    shared.current = (buffer){0};
    for (writer *w = atomic_load(&writers); w; w = w->next) {
        w->lock = lock;
        w->current = (buffer){0};
        atomic_store(&w->taken, w == mine);
    }
    in_client = false;
    atomic_store(&busy, 0);
    atomic_store(&request, NULL);
    atomic_store(&complete, NULL);
    atomic_store(&dropped, 0);
}
