/* Asking clients for buffers and handing them back.
 *
 * A full buffer goes to a queue, and a thread of ours hands it back; a flush hands back itself what
 * is in the queue. The two interfaces' functions differ in their parameters beside the buffer. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti_delivery.h"

typedef void (*request_function)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);
typedef void (*request_function_v2)(uint8_t **buffer, size_t *size, size_t *max_records,
                                    cm_cupti_request_info *info);
typedef void (*complete_function_v2)(uint8_t *buffer, size_t size, size_t valid,
                                     cm_cupti_complete_info *info);

/* The first client's functions are of the first interface, all others' of the second. */
typedef union functions {
    request_function request;
    request_function_v2 request_v2;
    complete_function complete;
    complete_function_v2 complete_v2;
    void *any;
} functions;
static _Atomic(void *) requests[CM_CUPTI_CLIENTS], completes[CM_CUPTI_CLIENTS];
static _Thread_local bool in_client; /* this thread is in one of them */

typedef struct delivery {
    cm_cupti_buffer what;
    uint64_t ticket;
    struct delivery *next;
} delivery;

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

enum { EVERYBODY = (1 << CM_CUPTI_CLIENTS) - 1 };

bool cm_sim_cupti_in_client(void)
{
    return in_client;
}

/* --- The clients' functions ------------------------------------------------------------------- */

bool cm_sim_cupti_request(unsigned client, cm_cupti_buffer *fresh)
{
    functions function = {.any = atomic_load(&requests[client])};

    *fresh = (cm_cupti_buffer){.client = client, .thread = cm_sim_cupti_thread()};
    if (!function.any)
        return false;
    in_client = true;
    if (client == CM_CUPTI_FIRST)
        function.request(&fresh->data, &fresh->size, &fresh->max_records);
    else
        function.request_v2(&fresh->data, &fresh->size, &fresh->max_records,
                            &(cm_cupti_request_info){sizeof(cm_cupti_request_info)});
    in_client = false;
    if (!fresh->data)
        cm_sim_cupti_no_buffer();
    return fresh->data != NULL;
}

bool cm_sim_cupti_finished(cm_cupti_buffer *b)
{
    size_t left = 0;

    for (size_t i = 0; i < b->unfinished_count; i++)
        if (!cm_sim_cupti_done(&b->unfinished[i].work))
            b->unfinished[left++] = b->unfinished[i];
    b->unfinished_count = left;
    return left == 0;
}

/* In every record of work on the device `end` lies at the same place. */
_Static_assert(offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memcpy, end) &&
                   offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memcpy_peer, end) &&
                   offsetof(cm_cupti_kernel, end) == offsetof(cm_cupti_memset, end),
               "one place");

static void complete(unsigned client, uint32_t thread, uint8_t *data, size_t size, size_t used)
{
    functions function = {.any = atomic_load(&completes[client])};
    bool nested = in_client;

    if (!function.any)
        return;
    in_client = true;
    if (client == CM_CUPTI_FIRST)
        function.complete(NULL, 0, data, size, used);
    else
        function.complete_v2(data, size, used,
                             &(cm_cupti_complete_info){.structSize = sizeof(cm_cupti_complete_info),
                                                       .threadId = thread});
    in_client = nested;
}

void cm_sim_cupti_hand_back(cm_cupti_buffer *what)
{
    size_t bytes;
    uint8_t *foreign = cm_sim_cupti_foreign(&bytes);

    if (!cm_sim_cupti_finished(what))
        for (size_t i = 0; i < what->unfinished_count; i++)
            memset(what->data + what->unfinished[i].offset + offsetof(cm_cupti_kernel, end), 0,
                   sizeof(uint64_t));
    free(what->unfinished);
    what->unfinished = NULL;
    if (foreign)
        complete(what->client, what->thread, foreign, bytes, bytes);
    cm_sim_cupti_disorder(what->data, what->used);
    complete(what->client, what->thread, what->data, what->size, what->used);
}

/* --- The queue -------------------------------------------------------------------------------- */

void cm_sim_cupti_enqueue(const cm_cupti_buffer *what)
{
    delivery *one = malloc(sizeof *one);

    if (!one) {
        cm_cupti_buffer now = *what;
        cm_sim_cupti_hand_back(&now);
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

static delivery **choose(uint32_t clients, uint64_t until, bool forced)
{
    delivery **chosen = NULL;

    for (delivery **at = &queue.first; *at && (*at)->ticket <= until; at = &(*at)->next)
        if (clients >> (*at)->what.client & 1 && (forced || cm_sim_cupti_finished(&(*at)->what))) {
            chosen = at;
            if (!cm_sim_cupti_hostile()->reorder)
                break;
        }
    return chosen;
}

/* Takes the oldest complete delivery (forced: any) that has been waiting since before `until`; with
 * the lock held. */
static delivery *take(uint32_t clients, uint64_t until, bool forced)
{
    delivery **at = choose(clients, until, forced);

    if (!at)
        return NULL;
    delivery *one = *at;
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
    cm_sim_cupti_hand_back(&one->what);
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

void cm_sim_cupti_drain(uint32_t clients, bool forced)
{
    pthread_mutex_lock(&queue.lock);
    uint64_t until = queue.tickets;
    for (delivery *one; (one = take(clients, until, forced)) != NULL;)
        deliver(one);
    while (under_way(until))
        pthread_cond_wait(&queue.finished, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
}

/* --- The thread that hands back --------------------------------------------------------------- */

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
        bool idle = queue.exiting || cm_sim_cupti_hostile()->late;
        delivery *one = idle ? NULL : take(EVERYBODY, UINT64_MAX, false);
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

void cm_sim_cupti_delivery_start(void)
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

/* --- The client's side ------------------------------------------------------------------------ */

int cm_sim_cupti_register(unsigned client, void *request, void *complete)
{
    if (!request || !complete)
        return CM_CUPTI_INVALID_PARAMETER;
    cm_sim_cupti_touch();
    atomic_store(&completes[client], complete);
    atomic_store(&requests[client], request);
    return CM_CUPTI_OK;
}

bool cm_sim_cupti_takes(unsigned client)
{
    return atomic_load(&completes[client]) != NULL;
}

bool cm_sim_cupti_anybody_takes(void)
{
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++)
        if (cm_sim_cupti_takes(client))
            return true;
    return false;
}

CM_SIM_EXPORT int cuptiActivityRegisterCallbacks(request_function requested,
                                                 complete_function completed)
{
    CM_CUPTI_FIRST_INTERFACE;
    return cm_sim_cupti_register(CM_CUPTI_FIRST, (functions){.request = requested}.any,
                                 (functions){.complete = completed}.any);
}

/* Queues what is full and became complete since the last check. */
CM_SIM_EXPORT int cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    CM_CUPTI_NEEDS_DRIVER;
    pthread_mutex_lock(&queue.lock);
    queue.period_ms = milliseconds;
    pthread_cond_signal(&queue.arrived);
    pthread_mutex_unlock(&queue.lock);
    return CM_CUPTI_OK;
}

/* --- The end ---------------------------------------------------------------------------------- */

void cm_sim_cupti_no_more(unsigned client)
{
    atomic_store(&requests[client], NULL);
}

void cm_sim_cupti_forget_client(unsigned client)
{
    atomic_store(&completes[client], NULL);
}

void cm_sim_cupti_delivery_stop(void)
{
    pthread_mutex_lock(&queue.lock);
    bool join = queue.running && !queue.stop && !pthread_equal(queue.thread, pthread_self());
    queue.stop = true;
    queue.period_ms = 0;
    pthread_cond_broadcast(&queue.arrived);
    pthread_mutex_unlock(&queue.lock);
    if (join)
        pthread_join(queue.thread, NULL);
}

void cm_sim_cupti_delivery_forked(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

    queue.lock = lock;
    queue.arrived = queue.finished = condition;
    queue.first = queue.under_way = NULL;
    queue.last = &queue.first;
    queue.period_ms = 0;
    queue.running = queue.stop = queue.exiting = false;
    in_client = false;
    for (unsigned client = 0; client < CM_CUPTI_CLIENTS; client++) {
        atomic_store(&requests[client], NULL);
        atomic_store(&completes[client], NULL);
    }
}
