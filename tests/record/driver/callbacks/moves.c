/* Calls in flight, counted on each thread's own line, and on the shared one past the last. */
#include <pthread.h>
#include <stdatomic.h>

#include "cases.h"
#include "events.h"

enum { MANY = 1200, OWN = 1016, AT_ONCE = 8, FEW = 10, TIMES = 3000, LOOKS = 1000 };

static _Atomic uint64_t account; /* odd only while somebody is between a beginning and its end */
static atomic_bool over;
static pthread_barrier_t meeting, start;

static void spin(int turns)
{
    for (int i = 0; i < turns; i++)
        __asm__ volatile("");
}

static void move_once(void)
{
    uint32_t session = cm_inflight_begin_hook();

    atomic_fetch_add(&account, 1);
    spin(100);
    atomic_fetch_add(&account, 1);
    cm_inflight_end_hook(session);
}

static void *move(void *times)
{
    pthread_barrier_wait(&start);
    for (int i = 0; i < (int)(intptr_t)times; i++)
        move_once();
    return NULL;
}

static void *move_alone(void *moved)
{
    while (!atomic_load(&over)) {
        move_once();
        ++*(uint64_t *)moved;
        spin(1000);
    }
    return NULL;
}

/* Of two looks that agree, none was in flight between them. (That the count is seen before what the
 * driver does next is not tested: here that is a fence by itself.) */
static void look(void)
{
    for (int quiet = 0; quiet < LOOKS;) {
        uint64_t before = cm_inflight_state(), read = atomic_load(&account);
        if (before % 2 == 0 && cm_inflight_state() == before) {
            CHECK(read % 2 == 0);
            quiet += before != 0;
        }
    }
    atomic_store(&over, true);
}

static void *stay(void *unused)
{
    (void)unused;
    uint32_t session = cm_inflight_begin_hook();
    pthread_barrier_wait(&meeting); /* it is in flight */
    pthread_barrier_wait(&meeting); /* it may end */
    cm_inflight_end_hook(session);
    return NULL;
}

void moves(void)
{
    pthread_t all[AT_ONCE], other;
    uint64_t expected = 0, moved = 0;

    cm_inflight_new_session();
    CHECK(pthread_create(&other, NULL, move_alone, &moved) == 0);
    look();
    pthread_join(other, NULL);
    CHECK(cm_inflight_state() == 2 * moved);

    /* The last ones share a line, and move at the same time. */
    cm_inflight_new_session();
    pthread_barrier_init(&start, NULL, AT_ONCE);
    for (int begun = 0; begun < MANY; begun += AT_ONCE) {
        intptr_t times = begun < OWN ? FEW : TIMES;
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(pthread_create(&all[i], NULL, move, (void *)times) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(all[i], NULL);
        expected += 2ull * AT_ONCE * (uint64_t)times;
        CHECK(cm_inflight_state() == expected);
    }

    pthread_barrier_init(&meeting, NULL, 2);
    for (int left_over = 0; left_over < 2; left_over++) {
        cm_inflight_new_session();
        pthread_create(&other, NULL, stay, NULL);
        pthread_barrier_wait(&meeting);
        CHECK(cm_inflight_state() == 3);
        cm_inflight_end_hook(cm_inflight_begin_hook());
        CHECK(cm_inflight_state() == 5);
        if (left_over) /* it belongs to the session before */
            cm_inflight_new_session();
        pthread_barrier_wait(&meeting);
        pthread_join(other, NULL);
        CHECK(cm_inflight_state() == (left_over ? 0 : 4));
    }
    /* A session that has the place of one whose call ends now, or never. */
    uint32_t late = cm_inflight_begin_hook();
    cm_inflight_begin_hook();
    for (int i = 0; i < 8; i++) {
        cm_inflight_new_session();
        CHECK(cm_inflight_state() == 0);
        if (i == 3)
            cm_inflight_end_hook(late);
        CHECK(cm_inflight_state() == 0);
    }
}
