/* CUPTI at its worst: what its releases, other tools and other drivers do to a client, on demand.
 *
 *   CUPTIMEM_SIM_HOSTILE=word,word,...
 *
 *   drop=N       every Nth record is lost, and counted as dropped
 *   reorder      the latest full buffer comes first, and its records in reverse order
 *   wrap         correlation ids begin at 0xfffffff0: they start again after sixteen calls
 *   foreign      beside the first buffer and every fourth comes one that the client never gave,
 *                with a record in it (a release of address 0xdead000): another client's
 *   late         only a forced flush hands anything back
 *   taken[=NAME] another tool, NAME ("Nsight Systems"), is subscribed already: error 39
 *   refuse=CODE  subscribing returns CODE: 15 (old driver), 35 (privileges), 43 (MIG), ...
 *   nodriver     as on a machine without the driver: what needs it returns 999; from 13.3 on
 *                the version is 0, and nothing walks through a buffer either
 *   olddriver    several subscribers are refused, as CUPTI does with a driver before r610
 *   slow=MS      subscribing takes this long (7 to 15 seconds have been seen)
 *   timebase[=N] after N (1000) readings of the clock time is counted in ticks of a processor
 *                clock of 2.5 GHz, as if a client had registered such a clock for all
 *   nullbuffer   a client that gives no buffer when asked ends the process, before 12.9
 *   crash        13.2 ends the process where a buffer is walked through without a subscriber
 *   arrays       CUDA arrays, too, leave MEMORY2 records, of kind ARRAY
 *
 * A word that is none of these is reported on standard error: a test that uses it would test
 * nothing. */
#define _GNU_SOURCE /* secure_getenv */
#include "cupti_hostile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti.h"

enum { DEFAULT_TIMEBASE = 1000, FOREIGN_EVERY = 4, TICKS_PER_2_NS = 5 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cm_cupti_hostile chosen;
static char text[256]; /* what the words point to */
static atomic_uint records, deliveries, readings;

static bool number(const char *value, unsigned *to)
{
    char *end;
    unsigned long read = value ? strtoul(value, &end, 10) : 0;

    if (!value || end == value || *end || !read || read > UINT32_MAX)
        return false;
    *to = (unsigned)read;
    return true;
}

static bool word(char *name)
{
    const struct {
        const char *name;
        bool *on;
    } flags[] = {{"reorder", &chosen.reorder},       {"wrap", &chosen.wrap},
                 {"foreign", &chosen.foreign},       {"late", &chosen.late},
                 {"nodriver", &chosen.nodriver},     {"olddriver", &chosen.olddriver},
                 {"nullbuffer", &chosen.nullbuffer}, {"crash", &chosen.crash},
                 {"arrays", &chosen.arrays}};
    char *value = strchr(name, '=');
    unsigned code = 0;

    if (value)
        *value++ = 0;
    for (size_t i = 0; !value && i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(name, flags[i].name))
            return *flags[i].on = true;
    if (!strcmp(name, "taken")) {
        chosen.taken = value ? value : "Nsight Systems";
        return true;
    }
    if (!strcmp(name, "timebase") && !value) {
        chosen.timebase = DEFAULT_TIMEBASE;
        return true;
    }
    if (!strcmp(name, "drop"))
        return number(value, &chosen.drop);
    if (!strcmp(name, "slow"))
        return number(value, &chosen.slow_ms);
    if (!strcmp(name, "timebase"))
        return number(value, &chosen.timebase);
    if (strcmp(name, "refuse") || !number(value, &code))
        return false;
    chosen.refuse = (int)code;
    return true;
}

static void choose(void)
{
    const char *asked = secure_getenv("CUPTIMEM_SIM_HOSTILE");
    char *rest = text;

    if (!asked || !*asked)
        return;
    snprintf(text, sizeof text, "%s", asked);
    for (char *name; (name = strsep(&rest, ",")) != NULL;)
        if (*name && !word(name))
            fprintf(stderr, "cuptimem: CUPTIMEM_SIM_HOSTILE: not understood: %s\n", name);
}

const cm_cupti_hostile *cm_sim_cupti_hostile(void)
{
    pthread_once(&once, choose);
    return &chosen;
}

bool cm_sim_cupti_lose(void)
{
    unsigned drop = cm_sim_cupti_hostile()->drop;

    return drop && (atomic_fetch_add(&records, 1) + 1) % drop == 0;
}

void cm_sim_cupti_disorder(uint8_t *data, size_t used)
{
    uint8_t *reversed = cm_sim_cupti_hostile()->reorder && used ? malloc(used) : NULL;
    size_t to = used;
    uint32_t kind;

    if (!reversed)
        return;
    for (size_t at = 0; at < used;) {
        memcpy(&kind, data + at, sizeof kind);
        size_t bytes = cm_sim_cupti_record_size(kind);
        to -= bytes;
        memcpy(reversed + to, data + at, bytes);
        at += bytes;
    }
    memcpy(data, reversed, used);
    free(reversed);
}

uint8_t *cm_sim_cupti_foreign(size_t *bytes)
{
    static cm_cupti_memory records_of_others[8];
    unsigned count;

    if (!cm_sim_cupti_hostile()->foreign)
        return NULL;
    count = atomic_fetch_add(&deliveries, 1);
    if (count % FOREIGN_EVERY)
        return NULL;
    cm_cupti_memory *record = &records_of_others[count / FOREIGN_EVERY % 8];
    *record = (cm_cupti_memory){
        .kind = CM_CUPTI_MEMORY2,
        .memoryOperationType = CM_CUPTI_RELEASE,
        .memoryKind = CM_CUPTI_MEMORY_DEVICE,
        .correlationId = 1,
        .address = 0xdead000,
        .bytes = 4096,
        .processId = cm_sim_cupti_process(),
        .streamId = CM_CUPTI_NO_STREAM,
    };
    *bytes = cm_sim_cupti_record_size(CM_CUPTI_MEMORY2);
    return (uint8_t *)record;
}

void cm_sim_cupti_no_buffer(void)
{
    if (cm_sim_cupti_hostile()->nullbuffer && cm_sim_cupti_generation()->number < 1209)
        abort();
}

void cm_sim_cupti_walk_alone(void)
{
    if (cm_sim_cupti_hostile()->crash && cm_sim_cupti_generation()->number == 1302)
        abort();
}

void cm_sim_cupti_subscribe_slowly(void)
{
    unsigned ms = cm_sim_cupti_hostile()->slow_ms;

    if (ms)
        nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

bool cm_sim_cupti_ticks(uint64_t *now)
{
    unsigned after = cm_sim_cupti_hostile()->timebase;
    struct timespec at;

    if (!after)
        return false;
    if (atomic_load(&readings) < after && atomic_fetch_add(&readings, 1) < after)
        return false;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    *now = ((uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec) * TICKS_PER_2_NS / 2;
    return true;
}
