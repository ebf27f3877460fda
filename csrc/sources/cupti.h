/* The driver level: what CUDA itself hands out, to whomever, as CUPTI sees it.
 *
 *   cupti_load.c      which libcupti, which of its functions there are          cuptisub
 *   cupti_session.c   subscribing, the thread, handing over, what is missing    cuptisub
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
 * program's threads, inside its CUDA calls, and are hooks (../capture/thread.h). */
#ifndef CM_SOURCES_CUPTI_H
#define CM_SOURCES_CUPTI_H

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
    uint32_t version; /* cuptiGetVersion, 0 where it would not tell: never a key to a table */
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

/* A live subscription, as the other files are given it. */
typedef struct cm_cupti_link {
    const cm_cupti_api *api;
    void *subscriber; /* NULL: none; activity alone */
    bool v2;          /* every further call must be the _v2 one where there is one */
} cm_cupti_link;

/* --- cupti_session.c: called from Python's side ------------------------------------------------
 */

typedef struct cm_cupti_options {
    bool kernels;       /* LAUNCH and WORK, too */
    bool activity;      /* records as second witness */
    unsigned period_ms; /* between two looks at records and devices; 0: 200 */
} cm_cupti_options;

/* Starts the witness. With the driver in the process already it is waited for until it is
 * subscribed or has given up, wait_ms at most; else it waits for CUDA to arrive
 * (cm_cupti_look_hook). GIL released. 0 or a negative errno. */
int cm_cupti_start(const cm_cupti_options *options, unsigned wait_ms);
/* The collector's idle callback: CUDA may have arrived. Costs a comparison when it has not. */
void cm_cupti_look(void);
/* A last sample and drain while recording is still on. GIL released. */
void cm_cupti_settle(void);
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
    bool v2, activity, kernels;
    uint64_t callbacks, records, dropped, foreign_buffers, unknown_records, owners_unknown;
    bool time_base_changed;
} cm_cupti_state;
void cm_cupti_get_state(cm_cupti_state *state); /* any thread; of the running or the last one */

/* --- cupti_driver.c ----------------------------------------------------------------------------
 */

/* The one function that is subscribed. A hook: any thread, GIL held or not. */
void cm_cupti_callback_hook(void *userdata, int domain, uint32_t id, const void *data);
/* Enables the ids; those that this release does not know are left out. Returns how many are on. */
int cm_cupti_driver_enable(const cm_cupti_link *link, bool launches);
void cm_cupti_driver_disable(const cm_cupti_link *link);
/* Set while this thread makes calls of CUDA for us: they are not the program's, and no events. */
extern __thread bool cm_cupti_own_thread __attribute__((tls_model("initial-exec")));
/* Odd or changed between two looks: the driver was giving out or taking back memory. */
uint64_t cm_cupti_driver_moves(void);
uint64_t cm_cupti_driver_count(void); /* callbacks that became events since enable */
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
/* ... of the first frame of this thread that lies outside of CUDA's driver, runtime and CUPTI and
 * of ourselves. At most 32 frames. */
uint32_t cm_library_of_caller_hook(void);
/* Reads what is mapped now. The witness's thread and the collector's. */
void cm_libraries_refresh(void);

/* --- cupti_activity.c, device_totals.c: the witness's thread -----------------------------------
 */

/* false with a reason: no records; callbacks go on without them. */
bool cm_cupti_activity_begin(const cm_cupti_link *link, bool kernels, char *why, size_t why_size);
/* Collects, parses, emits. forced: what is incomplete, too (at the end only). */
void cm_cupti_activity_drain(bool forced);
void cm_cupti_activity_end(const cm_cupti_link *link);
typedef struct cm_cupti_activity_counts {
    uint64_t records, dropped, foreign_buffers, unknown_records;
    bool time_base_changed;
} cm_cupti_activity_counts;
void cm_cupti_activity_get_counts(cm_cupti_activity_counts *counts);

/* Emits CM_EV_DEVICE for every device with a context. */
void cm_device_totals_sample(void);

#endif
