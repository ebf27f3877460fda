/* Calls in flight, counted on each thread's own line, and on the shared one past the last. */
#include <pthread.h>
#include <stdatomic.h>

#include "cases.h"
#include "events.h"

enum { MANY = 1200, AT_ONCE = 8, TIMES = 40 };

static _Atomic uint64_t account; /* odd only while somebody is between a beginning and its end */
static atomic_bool over;
static pthread_barrier_t meeting;

static void *move(void *unused)
{
    (void)unused;
    for (int i = 0; i < TIMES; i++) {
        uint32_t session = cm_driver_move_begins_hook();
        atomic_fetch_add(&account, 1);
        atomic_fetch_add(&account, 1);
        cm_driver_move_ends_hook(session);
    }
    return NULL;
}

/* Of two looks that agree, none was in flight between them. */
static void *look(void *odd)
{
    while (!atomic_load(&over)) {
        uint64_t before = cm_driver_moves(), read = atomic_load(&account);
        if (before % 2 == 0 && cm_driver_moves() == before)
            *(uint64_t *)odd += read % 2;
    }
    return NULL;
}

static void *stay(void *unused)
{
    (void)unused;
    uint32_t session = cm_driver_move_begins_hook();
    pthread_barrier_wait(&meeting); /* it is in flight */
    pthread_barrier_wait(&meeting); /* it may end */
    cm_driver_move_ends_hook(session);
    return NULL;
}

void moves(void)
{
    pthread_t all[AT_ONCE], other;
    uint64_t odd = 0;

    cm_driver_moves_anew();
    pthread_create(&other, NULL, look, &odd);
    for (int begun = 0; begun < MANY; begun += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++)
            pthread_create(&all[i], NULL, move, NULL);
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(all[i], NULL);
        CHECK(cm_driver_moves() == 2ull * (begun + AT_ONCE) * TIMES);
    }
    atomic_store(&over, true);
    pthread_join(other, NULL);
    CHECK(odd == 0);

    pthread_barrier_init(&meeting, NULL, 2);
    for (int left_over = 0; left_over < 2; left_over++) {
        cm_driver_moves_anew();
        pthread_create(&other, NULL, stay, NULL);
        pthread_barrier_wait(&meeting);
        CHECK(cm_driver_moves() == 3);
        cm_driver_move_ends_hook(cm_driver_move_begins_hook());
        CHECK(cm_driver_moves() == 5);
        if (left_over) /* it belongs to the session before */
            cm_driver_moves_anew();
        pthread_barrier_wait(&meeting);
        pthread_join(other, NULL);
        CHECK(cm_driver_moves() == (left_over ? 0 : 4));
    }
    /* A session that has the place of one whose call never ended. */
    cm_driver_move_begins_hook();
    for (int i = 0; i < 8; i++) {
        cm_driver_moves_anew();
        CHECK(cm_driver_moves() == 0);
    }
}
