/* CUPTI's functions, found in the process at run time, and the subscription that calls them.
 * Nothing is linked against CUDA or CUPTI, and none of their headers is included. */
#ifndef CM_SOURCES_CUPTI_API_H
#define CM_SOURCES_CUPTI_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cm_cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*cm_cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*cm_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                                  size_t valid);

/* The functions that are used; NULL: this release lacks it. All return a CUptiResult. */
typedef struct cm_cupti_api {
    char path[256];   /* of the loaded file */
    uint32_t version; /* of cuptiGetVersion; 0 before a subscription, so no table is keyed by it */
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

/* Reads $CUDA_HOME and $CUDA_PATH. The GIL must be held: the environment cannot change then. */
void cm_cupti_read_environment(void);
/* How often the loader has mapped an object: CUDA can have arrived only if this changed. Any
 * thread, as the next two. */
unsigned long long cm_cupti_loads(void);
/* Whether libcuda is in this process. */
bool cm_cupti_driver_loaded(void);
/* Whether libcuda, or a runtime that will load it, is in this process. */
bool cm_cupti_runtime_loaded(void);
/* Whether the program has called cuInit. Before that no call of CUDA is allowed: it would
 * initialize the driver, and the program could no longer fork and use CUDA in its children. */
bool cm_cupti_driver_ready(void);
/* The driver's release, 13000 for 13.0; 0: unknown. Calls CUDA. */
int cm_cupti_driver_version(void);
/* Finds libcupti and fills in the functions: the copy in the process, else the one beside CUDA's
 * runtime or PyTorch, else the toolkit's. false: `why` gives the places searched and a fix. The
 * library is never unloaded. Not in a hook: takes the loader's lock.
 *
 * Call it only after cm_cupti_driver_ready(). It calls none of the functions: without a working
 * driver, cuptiGetVersion and cuptiSubscribe of 13.2 end the process. */
bool cm_cupti_load(cm_cupti_api *api, char *why, size_t why_size);

/* A live subscription. */
typedef struct cm_cupti_link {
    const cm_cupti_api *api;
    void *subscriber; /* NULL: not subscribed */
    bool v2;          /* subscribed by the _v2 interface: further calls must use it, too */
} cm_cupti_link;

/* Subscribes: the first call of CUPTI, which may take seconds. v1_only: do not use the
 * multi-subscriber interface, which would lock out another client. false: `why` is one line with
 * the cause and a fix. */
bool cm_cupti_subscribe(cm_cupti_link *link, cm_cupti_api *api, bool v1_only, char *why,
                        size_t why_size);
void cm_cupti_unsubscribe(cm_cupti_link *link);
/* Describes a CUptiResult other than 0 and its fix. holder: the client that has the subscription,
 * "" if unknown. */
void cm_cupti_explain(int result, const char *holder, char *text, size_t size);

#endif
