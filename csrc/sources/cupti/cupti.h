/* Recording what CUDA allocates, for any library, by CUPTI.
 *
 *   api.h               load.c finds libcupti; subscribe.c subscribes and explains refusals
 *   cupti.h             cupti_thread.c: the thread that calls CUPTI, from start to stop
 *   callbacks.h         callbacks.c: callbacks -> DRIVER_NEW, DRIVER_FREE, LAUNCH
 *   calls.h             calls.c: what each call of CUDA does; calls_read.c reads its parameters
 *   activity.h          activity.c: the buffers of activity records
 *   activity_records.h  activity_records.c: records -> DRIVER_RECORD, POOL, WORK
 *   activity_clock.h    activity_clock.c: CUPTI's time stamps -> the trace's ticks
 *                       kineto.c: gives CUPTI up when torch.profiler asks for it
 *
 * One thread, the CUPTI thread, makes every call of CUPTI, CUDA and NVML. Callbacks run on the
 * program's threads, inside its CUDA calls, and are hooks (../../capture/ring_producer.h). */
#ifndef CM_SOURCES_CUPTI_CUPTI_H
#define CM_SOURCES_CUPTI_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cm_cupti_options {
    bool kernels;       /* also record LAUNCH and WORK */
    bool activity;      /* check the callbacks against activity records; false: leave the process-
                           wide activity interface to another client */
    unsigned period_ms; /* between two rounds: records drained, devices sampled; 0: 200 */
} cm_cupti_options;

/* Starts a session. If the driver is initialized, starts the CUPTI thread and waits until it has
 * subscribed or failed, at most wait_ms. Otherwise cm_cupti_poll starts it once CUDA arrives, and
 * relocation slots record until then. GIL released. 0, -EBUSY while the thread of an earlier
 * session hangs in CUPTI, or another negative errno. */
int cm_cupti_start(const cm_cupti_options *options, unsigned wait_ms);
/* The collector's idle callback: checks whether CUDA has arrived. Costs a comparison if not. */
void cm_cupti_poll(void);
/* Drains the records and samples the devices now, while recording is on. Returns when the events
 * are on the CUPTI thread's ring, when nothing is subscribed, or after two seconds. GIL released.
 * last: also takes incomplete records. The first flush of a session enables the samples: whatever
 * was allocated before must be in the trace by then, or it would be counted as context. */
void cm_cupti_flush(bool last);
/* Before a fork: ends the CUPTI thread but keeps the subscription. The thread survives only if
 * CUPTI blocks it for longer than two seconds. resume starts it again; in a child it does nothing.
 */
void cm_cupti_pause(void);
void cm_cupti_resume(void);
/* Unsubscribes; returns when no thread is inside a callback and the CUPTI thread is gone. GIL
 * released. */
void cm_cupti_stop(void);
/* In a forked child: drops all state, for CUPTI does not survive a fork. */
void cm_cupti_forget(void);

typedef enum cm_cupti_mode {
    CM_CUPTI_OFF = 0,
    CM_CUPTI_WAITING, /* for CUDA to arrive */
    CM_CUPTI_STARTING,
    CM_CUPTI_CALLBACKS, /* subscribed */
    CM_CUPTI_SLOTS,     /* relocation slots only; see `reason` */
    CM_CUPTI_NONE       /* nothing at driver level; see `reason` */
} cm_cupti_mode;

typedef struct cm_cupti_state {
    cm_cupti_mode mode;
    char path[256], reason[256]; /* reason: one line, names the cause and what to do */
    uint32_t version;
    bool v2, activity;
    bool kernels; /* kernel times are recorded, or were until the end */
    uint64_t callbacks, records, dropped, foreign_buffers, unknown_records;
    bool time_base_changed;
} cm_cupti_state;
void cm_cupti_get_state(cm_cupti_state *state); /* any thread; of the running or the last one */
/* Sets the function that the CUPTI thread calls, without the GIL, when mode or reason change. */
void cm_cupti_set_changed(void (*changed)(void));

/* What another client of CUPTI in this program is about to use. */
typedef enum cm_cupti_claim {
    CM_CUPTI_CLAIM_RECORDS = 1, /* the process-wide activity interface */
    CM_CUPTI_CLAIM_ALL          /* the subscription */
} cm_cupti_claim;
/* Gives up what the other client, such as "torch.profiler", needs; waits for that at most 20
 * seconds. Any thread of the program, GIL held or not. Costs a comparison if nothing is in use. */
void cm_cupti_give_up(cm_cupti_claim claim, const char *who);

#endif
