#define _GNU_SOURCE
#include "producers.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "../../../csrc/base/clock.h"
#include "../../../csrc/capture/ringfile.h"
#include "../../../csrc/capture/session.h"
#include "../../../csrc/capture/ring_producer.h"

bool later;

void start(const char *path, uint64_t ring_bytes)
{
    char error[CM_SESSION_ERROR_SIZE];
    const char *folder = getenv("STRESS_RING_DIR");
    cm_session_options options = {.path = path,
                                  .overwrite = true,
                                  .ring_bytes = ring_bytes,
                                  .ring_dir = folder,
                                  .shared_dir = getenv("STRESS_SHARED_DIR"),
                                  .later = later};
    const char *bound = getenv("STRESS_MAX_SIZE"); /* with the smallest side file */
    if (bound != NULL) {
        options.max_size = strtoull(bound, NULL, 0);
        options.side_bytes = 1;
    }

    cm_session_sweep(&options);
    if (cm_session_start(&options, error, sizeof error) < 0) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

void stop(void)
{
    char warning[CM_SESSION_ERROR_SIZE];

    cm_session_record(false);
    CHECK(cm_session_stop(NULL, warning, sizeof warning) == 0);
    if (warning[0] != '\0') {
        fprintf(stderr, "%s\n", warning);
        exit(1);
    }
}

void nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_sec = microseconds / 1000000,
                                 .tv_nsec = microseconds % 1000000 * 1000},
              NULL);
}

void wait_for_room(void)
{
    while (cm_producers_in_use() > CM_RING_COUNT / 2 ||
           atomic_load(&cm_blockpool.used) > cm_blockpool.count / 2)
        nap(100);
}

_Thread_local uint32_t only;
_Thread_local unsigned dawdle;
static _Thread_local unsigned hooks;

/* As the hooks of csrc/sources have it. */
static uint64_t now(uint8_t kind)
{
    return kind == CM_EV_FREE ? cm_clock_after_loads() : cm_clock_now();
}

void put(tally *count, uint8_t kind, uint64_t address, int64_t size, const char *name)
{
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    if (only != 0 && only != cm_self.capture) {
        cm_leave_hook(t);
        return;
    }
    uint32_t id = name != NULL ? cm_name_intern_text_hook(name) : 0;
    cm_event *e = cm_reserve_hook(t);
    if (e == NULL) {
        atomic_fetch_add_explicit(&count->lost, 1, memory_order_release);
    } else {
        *e = (cm_event){.time = now(kind),
                        .address = address,
                        .size = size,
                        .kind = kind,
                        .stack = id,
                        .device_index = -1};
        if (dawdle != 0 && ++hooks % dawdle == 0) {
            nap(hooks % 700);
            *e = (cm_event){.time = now(kind),
                            .address = address,
                            .size = size,
                            .kind = kind,
                            .stack = id,
                            .device_index = -1};
        }
        cm_commit_hook(t);
        atomic_fetch_add_explicit(&count->published, 1, memory_order_release);
    }
    cm_leave_hook(t);
}

void put_pair(tally *count, uint64_t n, uint64_t j)
{
    uint64_t address = n << 32 | j << 6;

    if (j % 16 == 1) {
        char name[160];
        snprintf(name, sizeof name, NAME_FORMAT, (unsigned long long)n, (unsigned long long)j, 0);
        put(count, CM_EV_OBJECT_NEW, address, 1, name);
    }
    put(count, CM_EV_ALLOC, address, (int64_t)j, NULL);
    put(count, CM_EV_FREE, address, (int64_t)j, NULL);
}

void *produce(void *argument)
{
    producer *p = argument;
    for (uint64_t j = 1; j <= p->pairs; j++)
        put_pair(p->count, p->number, j);
    return NULL;
}

producer *start_all(uint64_t threads, uint64_t pairs, void *(*work)(void *),
                    pthread_barrier_t *barrier)
{
    producer *all = calloc(threads, sizeof *all);
    pthread_attr_t attributes;

    CHECK(all != NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (uint64_t i = 0; i < threads; i++) {
        all[i].number = i + 1;
        all[i].pairs = pairs;
        all[i].count = &all[i].own;
        all[i].barrier = barrier;
        CHECK(pthread_create(&all[i].thread, &attributes, work, &all[i]) == 0);
    }
    pthread_attr_destroy(&attributes);
    return all;
}

void join_all(producer *all, uint64_t threads, uint64_t *published, uint64_t *lost)
{
    *published = *lost = 0;
    for (uint64_t i = 0; i < threads; i++) {
        CHECK(pthread_join(all[i].thread, NULL) == 0);
        *published += all[i].own.published;
        *lost += all[i].own.lost;
    }
    free(all);
}

void say(uint64_t published, uint64_t lost)
{
    printf("%llu %llu\n", (unsigned long long)published, (unsigned long long)lost);
}
