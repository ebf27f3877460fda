/* The clients' buffers: which are being filled, and with what.
 *
 * A client gives empty buffers when asked (request) and takes full ones back (complete). There is
 * one client for all users of the first interface, the last one that registered, and one for each
 * subscriber of the second. For each client, every thread fills a buffer of its own, or all threads
 * one, by PER_THREAD_ACTIVITY_BUFFER. Full buffers go to cupti_delivery.c. A client's functions are
 * called with no lock held.
 *
 * A writer belongs to the process and not to its thread: when the thread ends, the next one goes on
 * with its buffer, and a flush finds all of them.
 *
 * Where events lag (config.event_lag), so do records: a buffer with a record of unfinished work is
 * only handed back by a forced flush, which leaves that record without an end. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_delivery.h"

typedef struct writer {
    pthread_mutex_t lock;
    cm_cupti_buffer current;
    atomic_bool taken; /* by a thread */
    struct writer *next;
} writer;

/* Of one client. */
typedef struct source {
    atomic_size_t dropped;
    atomic_uint session;       /* ended when the client goes */
    _Atomic(writer *) writers; /* only ever grows */
    writer shared;
} source;

static source sources[CM_CUPTI_CLIENTS] = {
    [0 ... CM_CUPTI_CLIENTS - 1] = {.shared = {.lock = PTHREAD_MUTEX_INITIALIZER}}};
static atomic_uint busy; /* threads that hold a buffer which no writer and no queue has */

static _Thread_local writer *mine[CM_CUPTI_CLIENTS];
static pthread_key_t at_thread_end;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool have_key;

/* --- Writers ---------------------------------------------------------------------------------- */

static void leave(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < CM_CUPTI_CLIENTS; i++) {
        if (mine[i])
            atomic_store(&mine[i]->taken, false);
        mine[i] = NULL;
    }
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, leave) == 0;
}

static writer *take_writer(source *from)
{
    for (writer *one = atomic_load(&from->writers); one; one = one->next) {
        bool free_one = false;
        if (atomic_compare_exchange_strong(&one->taken, &free_one, true))
            return one;
    }
    writer *one = calloc(1, sizeof *one);
    if (!one)
        return NULL;
    pthread_mutex_init(&one->lock, NULL);
    atomic_store(&one->taken, true);
    one->next = atomic_load(&from->writers);
    while (!atomic_compare_exchange_weak(&from->writers, &one->next, one))
        ;
    return one;
}

static writer *my_writer(unsigned client)
{
    source *from = &sources[client];

    if (!cm_sim_cupti_per_thread_buffers(client))
        return &from->shared;
    if (mine[client])
        return mine[client];
    pthread_once(&key_once, make_key);
    writer *one = have_key ? take_writer(from) : NULL;
    if (!one)
        return &from->shared;
    if (pthread_setspecific(at_thread_end, mine) != 0) {
        atomic_store(&one->taken, false);
        return &from->shared;
    }
    return mine[client] = one;
}

/* --- Filling ---------------------------------------------------------------------------------- */

/* Whether the buffer takes a record of that many bytes. */
static bool fits(const cm_cupti_buffer *b, size_t bytes)
{
    return b->data && b->size - b->used >= bytes &&
           (!b->max_records || b->records < b->max_records);
}

/* An empty buffer that takes such a record, from the client. One that does not goes back. */
static bool ask(unsigned client, size_t bytes, cm_cupti_buffer *fresh)
{
    if (!cm_sim_cupti_request(client, fresh))
        return false;
    if ((uintptr_t)fresh->data % CM_CUPTI_ALIGNMENT == 0 && fits(fresh, bytes))
        return true;
    cm_sim_cupti_hand_back(fresh);
    return false;
}

/* Without memory to keep it as unfinished, a record counts as complete. */
static void add_unfinished(cm_cupti_buffer *b, size_t offset, const cm_cupti_work *work)
{
    if (b->unfinished_count == b->unfinished_room) {
        size_t room = b->unfinished_room ? 2 * b->unfinished_room : 64;
        cm_cupti_unfinished *larger = realloc(b->unfinished, room * sizeof *larger);
        if (!larger)
            return;
        b->unfinished = larger;
        b->unfinished_room = room;
    }
    b->unfinished[b->unfinished_count++] = (cm_cupti_unfinished){offset, *work};
}

static void emit_to(unsigned client, const void *record, size_t bytes, const cm_cupti_work *work)
{
    source *to = &sources[client];
    uint32_t kind;
    unsigned since = atomic_load(&to->session);

    if (cm_sim_cupti_lose()) {
        atomic_fetch_add(&to->dropped, 1);
        return;
    }
    memcpy(&kind, record, sizeof kind);
    size_t size = cm_sim_cupti_record_size(kind);
    writer *w = my_writer(client);

    pthread_mutex_lock(&w->lock);
    while (!fits(&w->current, size)) {
        cm_cupti_buffer full = w->current, fresh;
        w->current = (cm_cupti_buffer){0};
        atomic_fetch_add(&busy, 1);
        pthread_mutex_unlock(&w->lock);
        if (full.data)
            cm_sim_cupti_enqueue(&full);
        /* What a client calls while we ask it for a buffer cannot have another one. */
        bool given = !cm_sim_cupti_in_client() && ask(client, size, &fresh);
        pthread_mutex_lock(&w->lock);
        bool detached = since != atomic_load(&to->session);
        bool keep = given && !detached && !w->current.data;
        if (keep)
            w->current = fresh;
        if (given && !keep) {
            /* Another thread was quicker, or CUPTI was detached meanwhile. */
            pthread_mutex_unlock(&w->lock);
            cm_sim_cupti_hand_back(&fresh);
            pthread_mutex_lock(&w->lock);
        }
        atomic_fetch_sub(&busy, 1);
        if (detached || (!given && !fits(&w->current, size))) {
            pthread_mutex_unlock(&w->lock);
            if (!detached)
                atomic_fetch_add(&to->dropped, 1);
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

void cm_sim_cupti_emit(uint32_t clients, const void *record, size_t bytes)
{
    cm_sim_cupti_emit_work(clients, record, bytes, NULL);
}

void cm_sim_cupti_emit_work(uint32_t clients, const void *record, size_t bytes,
                            const cm_cupti_work *work)
{
    for (; clients; clients &= clients - 1)
        emit_to((unsigned)__builtin_ctz(clients), record, bytes, work);
}

/* --- Taking them away from the writers -------------------------------------------------------- */

static void detach(writer *w, bool forced)
{
    cm_cupti_buffer what = {0};

    pthread_mutex_lock(&w->lock);
    if (w->current.data && (forced || cm_sim_cupti_finished(&w->current))) {
        what = w->current;
        w->current = (cm_cupti_buffer){0};
    }
    pthread_mutex_unlock(&w->lock);
    if (what.data)
        cm_sim_cupti_enqueue(&what);
}

static void detach_all(unsigned client, bool forced)
{
    source *from = &sources[client];

    detach(&from->shared, forced);
    for (writer *w = atomic_load(&from->writers); w; w = w->next)
        detach(w, forced);
}

size_t cm_sim_cupti_dropped(unsigned client)
{
    return atomic_exchange(&sources[client].dropped, 0);
}

CM_SIM_EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    enum { FORCED = 1 };
    bool forced = flag & FORCED;

    CM_CUPTI_NEEDS_DRIVER;
    if (!cm_sim_cupti_anybody_takes() || cm_sim_cupti_in_client())
        return CM_CUPTI_INVALID_OPERATION;
    if (!forced && cm_sim_cupti_hostile()->late)
        return CM_CUPTI_OK;
    atomic_fetch_add(&busy, 1);
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        detach_all(client, forced);
    cm_sim_cupti_drain((1u << CM_CUPTI_CLIENTS) - 1, forced);
    atomic_fetch_sub(&busy, 1);
    return CM_CUPTI_OK;
}

CM_SIM_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream; /* one count for all, since CUDA 6 */
    if (!count)
        return CM_CUPTI_INVALID_PARAMETER;
    *count = cm_sim_cupti_dropped(CM_CUPTI_FIRST);
    return CM_CUPTI_OK;
}

/* --- The end ---------------------------------------------------------------------------------- */

void cm_sim_cupti_client_gone(unsigned client)
{
    if (!cm_sim_cupti_takes(client))
        return;
    /* Threads that bring a buffer from now on see that it is not needed. */
    atomic_fetch_add(&sources[client].session, 1);
    cm_sim_cupti_no_more(client);
    detach_all(client, true);
    if (!cm_sim_cupti_in_client()) {
        /* No thread has a buffer then, or requests one. */
        if (!cm_sim_cupti_wait(&busy, 0))
            cm_sim_note(CM_SIM_NOTE_LIMIT, "CUPTI: a buffer callback did not return", 0);
        cm_sim_cupti_drain(1u << client, true);
    }
    cm_sim_cupti_forget_client(client);
    atomic_store(&sources[client].dropped, 0);
}

void cm_sim_cupti_buffers_finalize(void)
{
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        cm_sim_cupti_client_gone(client);
    cm_sim_cupti_delivery_stop();
}

/* Nothing of CUPTI survives a fork: the parent's buffers are the parent's, and the thread is gone.
 */
void cm_sim_cupti_buffers_forked(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    cm_sim_cupti_delivery_forked();
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++) {
        source *one = &sources[client];
        one->shared.lock = lock;
        one->shared.current = (cm_cupti_buffer){0};
        for (writer *w = atomic_load(&one->writers); w; w = w->next) {
            w->lock = lock;
            w->current = (cm_cupti_buffer){0};
            atomic_store(&w->taken, w == mine[client]);
        }
        atomic_store(&one->dropped, 0);
    }
    atomic_store(&busy, 0);
}
