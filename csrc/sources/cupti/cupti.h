/* The driver level: what CUDA itself hands out, to whomever, as CUPTI sees it.
 *
 *   cupti_load.c      which libcupti, which of its functions there are          cuptisub
 *   cupti_session.c   the thread: when it subscribes, drains, gives up, ends    cuptisub
 *   cupti_subscribe.c subscribing, and what a refusal means                     cuptisub
 *   cupti_kineto.c    torch.profiler asks for CUPTI                             cuptisub
 *   cupti_driver.c    callbacks -> events (22, 23, 24, 27)                      cuptidriver
 *   cupti_calls.h     callback ids and parameter structures, our declarations   cuptidriver
 *   libraries.c       which library an address lies in; bounded unwinding       cuptidriver
 *   cuda_slots.c      the same events from relocation slots, without CUPTI      cuptidriver
 *   cupti_activity.c  buffers; cupti_records.c: records -> events (25, 26, 28)  cuptiactivity
 *   cupti_clock.c     CUPTI's time to the trace's                               cuptiactivity
 *   device_totals.c   totals of each device (29)                                cuptiactivity
 *
 * Nothing here is linked against CUDA or CUPTI, and no header of theirs is included. One thread,
 * the witness (cupti_session.c), makes every call of CUPTI, CUDA and NVML; callbacks come on the
 * program's threads, inside its CUDA calls, and are hooks (../capture/ring_producer.h). */
#ifndef CM_SOURCES_CUPTI_CUPTI_H
#define CM_SOURCES_CUPTI_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- cupti_load.c ------------------------------------------------------------------------------
 */

typedef void (*cm_cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*cm_cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*cm_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);

/* The functions that are used; NULL: this release has none. All return a CUptiResult. */
typedef struct cm_cupti_api {
    char path[256];   /* of the file that answers */
    uint32_t version; /* cuptiGetVersion's, 0 before a subscription: never a key to a table */
    int (*GetVersion)(uint32_t *version);
    int (*GetResultString)(int result, const char **text);
    int (*GetTimestamp)(uint64_t *time);
    int (*Subscribe)(void **subscriber, cm_cupti_callback callback, void *userdata);
    int (*Subscribe_v2)(void **subscriber, cm_cupti_callback callback, void *userdata,
                        void *parameters);
    int (*Unsubscribe)(void *subscriber);
    int (*EnableCallback)(uint32_t enable, void *subscriber, int domain, uint32_t id);
    int (*GetDeviceId)(void *context, uint32_t *device);
    int (*GetContextId)(void *context, uint32_t *id);
    int (*GetStreamIdEx)(void *context, void *stream, uint8_t per_thread, uint32_t *id);
    int (*ActivityRegisterCallbacks)(cm_cupti_request request, cm_cupti_complete complete);
    int (*ActivityRegisterCallbacks_v2)(void *subscriber, void *request, void *complete);
    int (*ActivityEnable)(int kind);
    int (*ActivityDisable)(int kind);
    int (*ActivityEnable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityDisable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityFlushAll)(uint32_t flag);
    int (*ActivityGetNextRecord)(uint8_t *buffer, size_t valid, void **record);
    int (*ActivityGetNumDroppedRecords)(void *context, uint32_t stream, size_t *dropped);
    int (*ActivityGetAttribute)(int attribute, size_t *size, void *value);
    int (*ActivitySetAttribute)(int attribute, size_t *size, void *value);
    int (*ActivityGetAttribute_v2)(void *subscriber, int attribute, size_t *size, void *value);
    int (*ActivitySetAttribute_v2)(void *subscriber, int attribute, size_t *size, void *value);
    int (*ActivityGetNextRecord_v2)(void *subscriber, uint8_t *buffer, size_t valid, void **record);
    int (*ActivityGetNumDroppedRecords_v2)(void *subscriber, void *context, uint32_t stream,
                                           size_t *dropped);
    int (*GetTimestamp_v2)(void *subscriber, uint64_t *time);
    int (*ActivityGetStructSize)(int kind, uint32_t version, size_t *size);
    int (*ActivityEnableDriverApi)(uint32_t id, uint8_t enable);
    int (*ActivityEnableRuntimeApi)(uint32_t id, uint8_t enable);
    int (*ActivityEnableDriverApi_v2)(void *subscriber, uint32_t id, uint8_t enable);
} cm_cupti_api;

/* $CUDA_HOME and $CUDA_PATH, for the search. GIL held: nobody changes the environment then. */
void cm_cupti_read_environment(void);
/* How often the loader has mapped an object: changes when CUDA may have arrived. Any thread. */
unsigned long long cm_cupti_loads(void);
/* Whether libcuda is in this process. Any thread. */
bool cm_cupti_driver_loaded(void);
/* Whether libcuda or a runtime that will load it is. Any thread. */
bool cm_cupti_runtime_loaded(void);
/* Whether somebody has initialised it, so that asking it for anything initialises nothing: a
 * program may fork up to then, and use CUDA in its children. Calls CUDA. */
bool cm_cupti_driver_ready(void);
/* The driver's own release, 13000 for 13.0; 0: unknown. Calls CUDA. */
int cm_cupti_driver_version(void);
/* Finds the library that fits what is loaded and fills in the functions: the copy in the process,
 * else the one beside CUDA's runtime or PyTorch, else the toolkit's. false: `why` says where it was
 * looked for and what to do. Never unloaded. Not in a hook: takes the loader's lock.
 *
 * Only once cm_cupti_driver_ready(), and none of the functions is called here: without a driver
 * that answers, cuptiGetVersion and cuptiSubscribe of 13.2 do not return, but end the process. */
bool cm_cupti_load(cm_cupti_api *api, char *why, size_t why_size);

/* A live subscription, as the other files are given it. */
typedef struct cm_cupti_link {
    const cm_cupti_api *api;
    void *subscriber; /* NULL: none; activity alone */
    bool v2;          /* every further call must be the _v2 one where there is one */
} cm_cupti_link;

/* --- cupti_subscribe.c -------------------------------------------------------------------------
 */

/* The first call of CUPTI that there is; asks for its version, then. May take seconds. v1_only: the
 * multi-subscriber interface would stand in another client's way. false with the reason, one line
 * that names the cause and what to do. */
bool cm_cupti_subscribe(cm_cupti_link *link, cm_cupti_api *api, bool v1_only, char *why,
                        size_t why_size);
void cm_cupti_unsubscribe(cm_cupti_link *link);
/* What a CUptiResult other than 0 means for the user, with the fix. holder: who has the
 * subscription, "" unknown. */
void cm_cupti_explain(int result, const char *holder, char *text, size_t size);

/* --- cupti_session.c: called from Python's side ------------------------------------------------
 */

typedef struct cm_cupti_options {
    bool kernels;  /* LAUNCH and WORK, too */
    bool activity; /* records as second witness; false: another client's, by the old interface */
    unsigned period_ms; /* between two looks at records and devices; 0: 200 */
} cm_cupti_options;

/* Starts the witness. With the driver initialised already it is waited for until it is subscribed
 * or has given up, wait_ms at most; else it waits for CUDA to arrive (cm_cupti_look), with
 * relocation slots recording until then. GIL released. 0, -EBUSY while the witness of an earlier
 * session hangs in CUPTI, or another negative errno. */
int cm_cupti_start(const cm_cupti_options *options, unsigned wait_ms);
/* The collector's idle callback: CUDA may have arrived. Costs a comparison when it has not. */
void cm_cupti_look(void);
/* A sample and a drain now, while recording is on. The first one of a session begins the samples:
 * what was there before must be in the trace by then, else the context is told with it. last: of
 * what is incomplete, too. Returns when they are on the witness's ring, or nothing is subscribed,
 * or after two seconds. GIL released. */
void cm_cupti_settle(bool last);
/* Before a fork: the witness's thread is gone when this returns (what is subscribed stays so),
 * unless CUPTI holds it for longer than two seconds. resume starts it again. In a child nothing. */
void cm_cupti_pause(void);
void cm_cupti_resume(void);
/* Unsubscribes; returns when no thread is inside a callback and the witness is gone. GIL released.
 */
void cm_cupti_stop(void);
/* In a forked child: nothing of CUPTI survives. */
void cm_cupti_forget(void);

typedef enum cm_cupti_mode {
    CM_CUPTI_OFF = 0,
    CM_CUPTI_WAITING, /* for CUDA to arrive */
    CM_CUPTI_STARTING,
    CM_CUPTI_CALLBACKS, /* subscribed */
    CM_CUPTI_SLOTS,     /* relocation slots only; `reason` says why */
    CM_CUPTI_NONE       /* nothing at driver level; `reason` says why */
} cm_cupti_mode;

typedef struct cm_cupti_state {
    cm_cupti_mode mode;
    char path[256], reason[256]; /* reason: one line, names the cause and what to do */
    uint32_t version;
    bool v2, activity;
    bool kernels; /* they are told when they ran, or were until the end */
    uint64_t callbacks, records, dropped, foreign_buffers, unknown_records;
    bool time_base_changed;
} cm_cupti_state;
void cm_cupti_get_state(cm_cupti_state *state); /* any thread; of the running or the last one */
/* Called on the witness's thread, without the GIL, when mode or reason have changed. */
void cm_cupti_set_changed(void (*changed)(void));
/* Somebody else in this program is about to use CUPTI: what would stand in the way is given up
 * before this returns, or after 20 seconds not. who: "torch.profiler". Any thread of the program,
 * GIL held or not; costs a comparison when nothing of ours is there. */
typedef enum cm_cupti_claim {
    CM_CUPTI_CLAIM_RECORDS = 1, /* the process-wide activity interface */
    CM_CUPTI_CLAIM_ALL          /* the subscription */
} cm_cupti_claim;
void cm_cupti_give_up(cm_cupti_claim claim, const char *who);

/* --- cupti_driver.c ----------------------------------------------------------------------------
 */

/* The one function that is subscribed. A hook: any thread, GIL held or not. */
void cm_cupti_callback_hook(void *userdata, int domain, uint32_t id, const void *data);
/* Enables the ids; those that this release does not know are left out. Returns how many are on, 0
 * where none of them tells of memory. */
int cm_cupti_driver_enable(const cm_cupti_link *link, bool launches);
void cm_cupti_driver_disable(const cm_cupti_link *link);
/* Set while this thread makes calls of CUDA for us: they are not the program's, and no events. */
extern __thread bool cm_cupti_own_thread __attribute__((tls_model("initial-exec")));
uint64_t cm_cupti_driver_count(void); /* callbacks that became events since enable */
/* Whether a context is being destroyed: the driver must not be asked for it. */
bool cm_cupti_context_ends(void);
/* A context of this device that was seen being made or used and not destroyed; NULL: none. */
void *cm_cupti_context_on(int device);
/* Whether MEMORY2 records will tell the callers of what they cover: then nothing is unwound. */
void cm_cupti_driver_expect_records(bool expected);

/* --- cuda_slots.c ------------------------------------------------------------------------------
 */

/* Events from relocation slots, for as long as this is on. The slots themselves are patched with
 * all others (tables.h). */
void cm_cuda_slots_record(bool on);

/* --- libraries.c -------------------------------------------------------------------------------
 */

/* The name id of the file name of the library that holds this code address, 0: none. A hook; takes
 * no lock but the intern mutex, at a library's first time. */
uint32_t cm_library_of_hook(uintptr_t address);
/* The same of a call that this thread is in, although its library may have come since the last
 * refresh: it cannot go away meanwhile. */
uint32_t cm_library_of_site_hook(uintptr_t site);
/* ... of the first frame of this thread that lies outside of CUDA's driver, runtime and CUPTI and
 * of ourselves. At most 32 frames. */
uint32_t cm_library_of_caller_hook(void);
/* Reads what is mapped now. The witness's thread and the collector's. */
void cm_libraries_refresh(void);

/* --- cupti_activity.c, device_totals.c: the witness's thread -----------------------------------
 */

/* false with a reason: no records; callbacks go on without them. */
bool cm_cupti_activity_begin(const cm_cupti_link *link, bool kernels, char *why, size_t why_size);
/* Whether kernels are among what CUPTI agreed to. */
bool cm_cupti_activity_tells_kernels(void);
/* Collects, parses, emits. forced: what is incomplete, too (at the end only). */
void cm_cupti_activity_drain(bool forced);
void cm_cupti_activity_end(const cm_cupti_link *link);
typedef struct cm_cupti_activity_counts {
    uint64_t records, dropped, foreign_buffers, unknown_records;
    bool time_base_changed;
} cm_cupti_activity_counts;
void cm_cupti_activity_get_counts(cm_cupti_activity_counts *counts);

/* Emits CM_EV_DEVICE for every device with a context. anew: NVML, too, which may be slow, is asked
 * whenever it was asked last. */
void cm_device_totals_sample(bool anew);
/* The next sample is written even if nothing has changed: a window has opened, and the moments of
 * before are not its own. Any thread; costs a store. */
void cm_device_totals_renew(void);

#endif
