/* A capture of events as a training publishes them, for counting what the collector spends on each
 * (collector.py). No Python: the rooms capture and trace, with tests/unit/capture/frames_double.c.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../csrc/base/clock.h"
#include "../csrc/capture/session.h"
#include "../csrc/capture/ring_producer.h"

enum { STEP = 4096, LIVE = 64, NODES = 32, AUTOGRAD_ID = 1 };

static uint64_t published;

static void put(cm_event event)
{
    cm_producer *t = cm_enter_hook();
    cm_event *e = t != NULL ? cm_reserve_hook(t) : NULL;

    if (e == NULL) {
        fputs("no room for an event\n", stderr);
        exit(1);
    }
    *e = event;
    e->time = cm_clock_now();
    cm_commit_hook(t);
    cm_leave_hook(t);
    published++;
}

static uint64_t address_of(uint64_t number)
{
    return UINT64_C(0x7f0000000000) + number * 256;
}

static void put_alloc(uint64_t number, uint32_t stack, uint8_t flags)
{
    put((cm_event){.kind = CM_EV_ALLOC,
                   .address = address_of(number),
                   .size = 64 + (int64_t)(number % 7) * 64,
                   .stack = stack,
                   .flags = flags,
                   .device_index = -1});
}

static void put_free(uint64_t number)
{
    put((cm_event){.kind = CM_EV_FREE, .address = address_of(number), .device_index = -1});
}

static void put_node(uint8_t kind, uint64_t sequence, uint32_t what)
{
    put((cm_event){.kind = kind,
                   .address = kind == CM_EV_NODE_DONE ? 0 : sequence,
                   .size = kind == CM_EV_NODE_RUN || kind == CM_EV_NODE_FREE ? AUTOGRAD_ID : 0,
                   .stack = what,
                   .device_index = -1});
}

/* `a + a` in a loop, with some results kept for a while. */
static void tiny(uint64_t round)
{
    for (uint64_t i = 0; i < STEP / 2; i++) {
        uint64_t number = (round * STEP + i) % LIVE;
        put_alloc(number, CM_STACK_FIRST + (uint32_t)(i % 5), 0);
        put_free(number);
    }
}

/* A forward that makes nodes, and the backward that runs and destroys them. */
static void training(uint64_t round)
{
    static uint64_t sequence;

    for (uint64_t i = 0; i < STEP / (NODES * 8); i++) {
        for (uint64_t n = 0; n < NODES; n++) {
            put_alloc(n, CM_STACK_FIRST + (uint32_t)n, 0);
            put_node(CM_EV_NODE_NEW, sequence + n, CM_STACK_FIRST + (uint32_t)n);
        }
        for (uint64_t n = NODES; n-- > 0;) {
            put_node(CM_EV_NODE_RUN, sequence + n, 0);
            put_alloc(NODES + n, CM_STACK_FIRST, CM_EVF_IN_NODE | CM_EVF_NODE_STACK);
            put_free(n);
            put_free(NODES + n);
            put_node(CM_EV_NODE_DONE, 0, 0);
            put_node(CM_EV_NODE_FREE, sequence + n, 0);
        }
        sequence += NODES;
    }
    (void)round;
}

/* Numbers the thread as autograd does, so that its nodes can be found. */
static void name_thread(void)
{
    put((cm_event){.kind = CM_EV_THREAD, .size = AUTOGRAD_ID, .device_index = -1});
}

int main(int count, char **words)
{
    char error[CM_SESSION_ERROR_SIZE];

    if (count != 5) {
        fputs("usage: collector TRACE RINGS tiny|training ROUNDS\n", stderr);
        return 2;
    }
    void (*work)(uint64_t) = strcmp(words[3], "tiny") == 0 ? tiny : training;
    const cm_session_options options = {.path = words[1], .overwrite = true, .ring_dir = words[2]};
    if (cm_session_start(&options, error, sizeof error) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    cm_session_record(true);
    name_thread();
    for (uint64_t round = 0; round < strtoull(words[4], NULL, 10); round++) {
        work(round);
        /* Many rounds to a chunk, as without a debugger's slowness. */
        if (round % 16 == 15 && cm_session_sync() < 0)
            return 1;
    }
    cm_session_record(false);
    if (cm_session_stop(NULL, error, sizeof error) < 0 || error[0] != '\0') {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    printf("%llu\n", (unsigned long long)published);
    return 0;
}
